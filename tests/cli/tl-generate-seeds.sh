# SPDX-License-Identifier: Apache-2.0
# The same seed gives the same ids, 0 is a seed like any other, a drawn one is reported, samples count up from the seed.
. "$EXPECT"
generate() { tl-generate -m "$MODELS/m.tinyloop" -n 16 --ignore-eos prompts "$@"; }

echo '3 1 4' >prompts
generate --seed 0 >zero
generate --seed 0 >again
same zero again
generate --seed 1 >one
differ zero one
generate --seed 18446744073709551615 >greatest
differ zero greatest

generate --stats=stats >drawn
seed=$(value seed stats)
generate --seed "$seed" >again
same drawn again
generate --stats=stats >other
[ "$(value seed stats)" != "$seed" ] || fail 'the same seed was drawn twice'

generate --samples 3 --seed 5 >samples
for seed in 5 6 7; do generate --seed $seed; done >wanted
same wanted samples
printf '3 1 4\n9 8\n' >prompts
generate --samples 2 --seed 5 >samples
for line in '3 1 4' '9 8'; do
  echo "$line" >prompts
  for seed in 5 6; do generate --seed $seed; done
done >wanted
same wanted samples
generate --samples 2 --seed 5 --jsonl --input-format text >records
python3 -c 'import json
for line in open("records"): r = json.loads(line); print(r["line"], r["sample"], r["seed"])' >numbers
printf '1 0 5\n1 1 6\n' >wanted
same wanted numbers

# Greedy: the seed makes no difference.
generate --temperature 0 --seed 1 >greedy
generate --temperature 0 --seed 2 >again
same greedy again
