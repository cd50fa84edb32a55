# SPDX-License-Identifier: Apache-2.0
# --seed-by-line: line n is answered as it would be alone with the seed S + n - 1, by every tool, in every shard.
. "$EXPECT"
model=(-m "$MODELS/m.tinyloop" -n 12 --temperature 1.5 --ignore-eos)
printf '1 2 3\n1 2 3\n4 5\n' >a
printf '1 2 3\n9\n' >b
alone() { # SEED LINE: one line alone
  sed -n "$2p" <(cat a b) | tl-generate "${model[@]}" --seed "$1"
}
for i in 1 2 3 4 5; do alone $((7 + i - 1)) $i; done >wanted
[ "$(sed -n 1p wanted)" != "$(sed -n 2p wanted)" ] || fail 'two seeds, one answer'
tl-generate "${model[@]}" --seed 7 --seed-by-line a b >got
same wanted got
cat a b | tl-generate "${model[@]}" --seed 7 --seed-by-line --stream >got
same wanted got
tl-batch "${model[@]}" --seed 7 --seed-by-line --lanes 3 a b >got
same wanted got
for i in 0 1; do tl-batch "${model[@]}" --seed 7 --seed-by-line --shard $i/2 a b >part.$i; done
paste -d '\n' part.0 part.1 | head -n 5 >got
same wanted got
tl-batch "${model[@]}" --seed 7 a b >got
differ wanted got
[ "$(sed -n 1p got)" = "$(sed -n 2p got)" ] || fail 'one seed, two answers to a prompt'

# Samples take the seeds in turn; after the greatest one comes 0.
for seed in 18446744073709551614 18446744073709551615 0 1; do
  alone "$seed" $((seed < 2 && seed >= 0 ? 2 : 1))
done >wanted
tl-generate "${model[@]}" --seed 18446744073709551614 --seed-by-line --samples 2 <(head -n 2 a) >got
same wanted got

# A line that brings a seed keeps it, and records say what was used.
printf '{"tokens":[1,2,3]}\n{"tokens":[4,5],"seed":3}\n{"tokens":[6]}\n' >jobs
for tool in tl-generate tl-batch; do
  seeds=$("$tool" "${model[@]}" --jsonl --seed 7 --seed-by-line jobs | grep -o '"seed":[0-9]*' | paste -s -d ' ')
  [ "$seeds" = '"seed":7 "seed":3 "seed":9' ] || fail "$tool: $seeds"
done

# A run that was begun with it goes on with it.
seq 3000 | sed 's|.*|1 2 3|' >many
tl-batch "${model[@]}" --seed 7 --seed-by-line many >wanted
tl-batch "${model[@]}" --seed 7 --seed-by-line --threads 1 -o out.ids many &
sleep 0.15
{ kill -9 $! && wait $!; } 2>/dev/null || true  # timeout -s KILL would not wait for it
if [ -s out.ids.journal ]; then
  refused 2 "--seed-by-line was 'true' when the run started and is 'false' now" \
    tl-batch "${model[@]}" --seed 7 --continue -o out.ids many
fi
tl-batch -q "${model[@]}" --seed-by-line --seed 7 --continue -o out.ids many 2>/dev/null
same wanted out.ids
