# SPDX-License-Identifier: Apache-2.0
# With --quiet no tool shows progress, on a terminal either.
. "$EXPECT"
model=$MODELS/m.tinyloop
echo 1 2 3 >in

on_terminal tl-pool-register --pool pool -m "$model" in >answer
holds terminal '1 of 1 prefixes'  # or the test tests nothing
silent() { on_terminal "$@" >answer && [ ! -s terminal ] || fail "$*: $(cat terminal)"; }
for quiet in -q --quiet; do
  silent tl-pool-register --pool pool -m "$model" $quiet in
  silent tl-pool-list --pool pool $quiet
  silent tl-generate -m "$model" -n 2 $quiet in
  silent tl-batch -m "$model" -n 2 $quiet in
  silent tl-score -m "$model" $quiet in
  silent tl-inspect -m "$model" $quiet
  silent tl-pool-evict --pool pool --all $quiet
done
