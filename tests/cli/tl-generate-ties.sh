# SPDX-License-Identifier: Apache-2.0
# U-17: of equal logits the lower id wins, greedy and with top-k 1, whatever the seed.
. "$EXPECT"
generate() { tl-generate -m "$MODELS/tie.tinyloop" -n 1 --only-new "$@"; }

# After 32 the ids 20 and 53 are the best and equal (tests/tiny_models.h).
echo 20 >wanted
echo 32 | generate --temperature 0 >greedy
same wanted greedy
for seed in 0 1 2 3 4 5 6 7 8 9; do
  echo 32 | generate --top-k 1 --seed $seed >picked
  same wanted picked
done
# Both really are candidates: with the lower one taken away the other is next, and with top-k 2 both are drawn.
echo 53 >wanted
echo 32 | generate --temperature 0 --logit-bias 20:-inf >other
same wanted other
echo 32 | generate --top-k 2 --samples 32 --seed 0 | sort -n -u >drawn
printf '20\n53\n' >wanted
same wanted drawn
