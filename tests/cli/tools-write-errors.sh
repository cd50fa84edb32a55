# SPDX-License-Identifier: Apache-2.0
# U-20: a full disk or closed standard output is exit 1 with the cause; a broken pipe is quiet.
. "$EXPECT"
model=$MODELS/m.tinyloop
echo '1 2 3' >prompts

full() {
  local status=0
  "$@" >/dev/full 2>err || status=$?
  [ "$status" -eq 1 ] || fail "exit status $status with a full disk: $*"
  [ "$(cat err)" = "$1: standard output: No space left on device" ] || fail "message: $(cat err)"
}
closed() {
  local status=0
  "$@" >&- 2>err || status=$?
  [ "$status" -eq 1 ] || fail "exit status $status with stdout closed: $*"
  [ "$(cat err)" = "$1: standard output: Bad file descriptor" ] || fail "message: $(cat err)"
}
for what in full closed; do
  $what tl-generate -m "$model" -n 4 prompts
  $what tl-generate -m "$model" -n 4 --stream prompts
  $what tl-generate -m "$model" -n 4 --jsonl --input-format text prompts
  $what tl-batch -m "$model" -n 4 prompts
  $what tl-score -m "$model" prompts
  $what tl-inspect -m "$model"
  $what tl-inspect -m "$model" --trace prompts
  $what tl-tokenize --tokenizer "$CASES/../text/byte_level.json" prompts
  $what tl-detokenize --tokenizer "$CASES/../text/byte_level.json" prompts
  $what tl-generate --help
  $what tl-convert --version
  $what tl-bench-speed -q --shape dim=16,ffn=16,heads=1,layers=1,vocab=16 --threads 1 --array 1 --only limits --repeats 1
done

# The reader goes away: SIGPIPE ends the tool, it says nothing.
seq 2000 | sed 's/.*/1 2 3/' >many
status=0
tl-generate -m "$model" -n 40 many 2>err | head -n 1 >first || status=${PIPESTATUS[0]}
[ "$status" -eq 141 ] || fail "exit status $status after a broken pipe"
[ ! -s err ] || fail "a broken pipe is not quiet: $(cat err)"
[ "$(wc -l <first)" -eq 1 ] || fail 'the first line did not arrive'

# Where the answer has no room nothing of that name appears.
refused 1 nowhere/out tl-batch -m "$model" -n 4 -o nowhere/out prompts
refused 1 nowhere/out tl-generate -m "$model" -n 4 -o nowhere/out prompts
refused 1 nowhere tl-generate -m "$model" -n 4 --stats=nowhere/stats prompts
refused 1 nowhere tl-score -m "$model" --logits nowhere/logits.npy prompts
(
  ulimit -f 1
  trap '' XFSZ
  ends 1 tl-score -m "$model" -o score --logits large.npy many
)
[ ! -e large.npy ] && [ ! -e score ] || fail 'a part of an output was left behind'
[ -z "$(find . -name '.tmp*')" ] || fail 'a temporary file was left behind'
