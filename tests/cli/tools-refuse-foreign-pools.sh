# SPDX-License-Identifier: Apache-2.0
# A folder that holds something, but no pool, is nobody's pool: every tool refuses it and writes nothing into it. An empty one
# becomes a pool by registering only.
. "$EXPECT"
model=$MODELS/m.tinyloop
echo 1 2 3 >prompt
mkdir letters && echo dear >letters/letter
for command in "tl-generate -m $model prompt" "tl-generate -m $model --pool-add prompt" "tl-batch -m $model prompt" \
  "tl-batch -m $model --pool-min-share 2 prompt" "tl-pool-register -m $model prompt" 'tl-pool-list' 'tl-pool-evict --all'; do
  # shellcheck disable=SC2086 # several words
  refused 2 'letters: is not a pool' $command --pool letters
  [ "$(ls -A letters)" = letter ] || fail "$command wrote into the folder"
done

mkdir empty
tl-generate -m "$model" -n 2 --temperature 0 prompt >plain
for command in "tl-generate -m $model -n 2 --temperature 0" "tl-batch -m $model -n 2 --temperature 0"; do
  # shellcheck disable=SC2086
  $command --pool empty prompt >answer 2>err
  same plain answer
  holds err 'empty: there is no pool yet'
  [ -z "$(ls -A empty)" ] || fail "$command wrote into the empty folder"
done
tl-pool-register -m "$model" --pool empty prompt >/dev/null
tl-generate -m "$model" -n 2 --temperature 0 --pool empty --stats prompt 2>&1 >answer | grep -q '"pool_hit":"whole"' || fail 'no hit'
same plain answer
