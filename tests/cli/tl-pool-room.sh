# SPDX-License-Identifier: Apache-2.0
# An entry that can never fit the pool's limit in bytes is refused before anything is stored or evicted, whoever brings it.
. "$EXPECT"
model=$MODELS/m.tinyloop
line() { seq "$1" $(($1 + $2 - 1)) | paste -s -d ' '; }
# Entries and settings; the use of an entry is no change of it.
state() { find "$1" -type f ! -name 'uses.*' ! -name '*.order' -exec md5sum {} + | sort -k 2; }
unchanged() { state pool | diff before - >&2 || fail "the pool was changed: $*"; }
register=(tl-pool-register --pool pool -m "$model")

for i in 1 2 3; do line $i 10; done >short
line 1 60 >long
"${register[@]}" short >/dev/null
one=$(find pool -name '10-*' -printf '%s\n' | sort -u)
[ "$(wc -w <<<"$one")" -eq 1 ] || fail "entries of one length differ in size: $one"
state pool >before

# The limit and all that is given with it, the place and what is needed; a later line of several, too.
cat short long >both
refused 1 "both:4: its entry takes " "${register[@]}" --max-bytes $((one + 100)) both
holds err "bytes, but --max-bytes is $((one + 100)); nothing was changed"
unchanged --max-bytes
needed=$(grep -o 'takes [0-9]*' err | cut -d ' ' -f 2)
refused 1 "both:4: its entry takes $needed bytes, but --max-bytes is 20480;" "${register[@]}" --capacity 1 --policy cost --max-bytes 20K both
unchanged several options
refused 1 "short:1: its entry takes $one bytes, but --max-bytes is $((one - 1));" "${register[@]}" --max-bytes $((one - 1)) short
unchanged 'an entry that is there'
refused 1 "standard input:1: its entry takes " "${register[@]}" --max-bytes 1 - <long
refused 1 'nothing was changed' tl-pool-register --pool new -m "$model" --max-bytes 10K long
[ ! -e new ] || fail 'a pool was made'

# The bytes told are those that the entry has, and one of exactly so many fits.
tl-pool-register --pool exact -m "$model" --max-bytes "$needed" long >/dev/null
[ "$(find exact -name '60-*' -printf '%s\n')" -eq "$needed" ] || fail 'not the bytes that it takes'
tl-pool-register --pool exact -m "$model" --max-bytes "$one" "--capacity=5" <(head -n 1 short) >/dev/null
[ "$(find exact -name '*.safetensors' -printf '%f\n' | cut -d - -f 1)" = 10 ] || fail 'what fits makes no room'

# States to go on from make an entry larger; a mode that has none is refused as early.
refused 1 'both:1: its entry takes ' "${register[@]}" --resumable --max-bytes "$one" --capacity 1 both
refused 2 'h8' "${register[@]}" --resumable --kv h8 --capacity 1 short
unchanged --resumable

# A limit that the pool has already.
"${register[@]}" --max-bytes $((3 * one)) short >/dev/null
state pool >before
refused 1 "both:4: its entry takes $needed bytes, but the pool's --max-bytes is $((3 * one)); nothing was changed" "${register[@]}" both
unchanged 'its own limit'
refused 1 'nothing was changed' "${register[@]}" --capacity 2 both
unchanged --capacity

# Whoever only adds on the way gives the plain answer and a warning; a full disk makes no difference.
generate() { tl-generate -m "$model" -n 3 --temperature 0 --ignore-eos "$@"; }
generate long >plain
for limit in unlimited 8; do
  (ulimit -f $limit && generate --pool pool --pool-add --no-crop long >answer 2>err) || fail "tl-generate with a file size of $limit"
  same plain answer
  [ "$(wc -l <err)" -eq 1 ] || { cat err >&2; fail 'not one warning'; }
  holds err "an entry of $needed bytes exceeds the pool's limit of $((3 * one))"
  unchanged "--pool-add, a file size of $limit"
done
for i in 1 2 3; do echo "$(cat long) $i"; done >jobs
generate jobs >plain
tl-batch -m "$model" -n 3 --temperature 0 --ignore-eos --pool pool --pool-min-share 2 jobs >answers 2>err || fail "$(cat err)"
same plain answers
holds err "bytes exceeds the pool's limit of $((3 * one))"
unchanged --pool-min-share

# An entry that takes another one's place needs no room of a third.
for i in 1 2; do line $i 10; done >two
tl-pool-register --pool full -m "$model" --capacity 2 two >/dev/null
tail -n 1 two | tl-pool-register --pool full -m "$model" --resumable - >/dev/null
tl-pool-list --pool full --json >list
python3 -c 'import json; assert sorted(e["resumable"] for e in json.load(open("list"))["entries"]) == [False, True]'
