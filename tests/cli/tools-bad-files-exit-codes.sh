# SPDX-License-Identifier: Apache-2.0
# One kind of bad file has one exit code, in every tool and for every cause: 1 for what is computed with (models, states,
# checkpoints), 2 for what is to be answered (ids); a batch answers what it can.
. "$EXPECT"
echo 1 2 3 >in
cp "$MODELS/m.tinyloop" model
head -c 500 model >cut
head -c -10 model >short
: >empty
mkdir dir
echo garbage >junk
ln -s nowhere dangling
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 5\n' >lfs

codes() { # CODE BAD COMMAND...: every command ends with the code, and the message names the bad file
  local code=$1 bad=$2
  for command in "${@:3}"; do
    # shellcheck disable=SC2086 # several words
    ends "$code" $command
    holds err "$bad"
    [ "$(wc -l <err)" -eq 1 ] || { cat err >&2; fail "not one line: $command"; }
    [ ! -s out ] || fail "an answer: $command"
  done
}
for bad in absent dir empty junk cut short dangling lfs; do
  codes 1 $bad "tl-generate -n 1 -m $bad in" "tl-batch -n 1 -m $bad in" "tl-score -m $bad in" "tl-inspect -m $bad" \
    "tl-bench-spec -m $bad in" "tl-bench-speed -m $bad" "tl-pool-register --pool pool -m $bad in" \
    "tl-generate -n 1 -m model --resume $bad" "tl-convert $bad new"
done
[ ! -e pool ] || fail 'a pool was made'
[ ! -e new ] || fail 'a model was made'
for bad in absent dir dangling; do
  codes 2 $bad "tl-generate -n 1 -m model $bad" "tl-batch -n 1 -m model $bad" "tl-score -m model $bad" \
    "tl-inspect --trace -m model $bad" "tl-bench-spec -m model $bad" "tl-pool-register --pool pool -m model $bad"
done
for form in text jsonl npy i32; do
  for bad in empty junk lfs; do
    [ "$form $bad" != 'i32 empty' ] || continue  # a sequence of no ids
    codes 2 $bad "tl-generate -n 1 -m model --input-format $form $bad" "tl-score -m model --input-format $form $bad" \
      "tl-inspect --trace -m model --input-format $form $bad" "tl-bench-spec -m model --input-format $form $bad" \
      "tl-pool-register --pool pool -m model --input-format $form $bad"
    if [ $bad = empty ] && [ $form != npy ]; then
      ends 0 tl-batch -n 1 -m model --input-format $form $bad
    else
      ends 3 tl-batch -n 1 -m model --input-format $form $bad
      holds out $bad
    fi
  done
done
[ ! -e pool ] || fail 'a pool was made'
