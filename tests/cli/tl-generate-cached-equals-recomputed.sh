# SPDX-License-Identifier: Apache-2.0
# U-10: with each loop count the cached stream is what feeding the growing prompt back one id at a time gives.
. "$EXPECT"
generate() { tl-generate -m "$MODELS/m.tinyloop" --temperature 0 --ignore-eos "$@"; }

for loops in 1 2 3 4 5 6 7 8; do
  echo '3 1 4 1 5' | generate --loops "$loops" -n 24 >cached."$loops"
  # Every proper beginning of the stream as a prompt of its own, one more id asked for each: nothing is cached.
  for length in $(seq 5 28); do cut -d ' ' -f "1-$length" cached."$loops"; done >beginnings
  generate --loops "$loops" -n 1 --only-new <beginnings | paste -s -d ' ' >recomputed
  cut -d ' ' -f 6- cached."$loops" >continuation
  same continuation recomputed
done
cat cached.? | sort -u >kinds
[ "$(wc -l <kinds)" -gt 1 ] || fail 'the loops do nothing'
