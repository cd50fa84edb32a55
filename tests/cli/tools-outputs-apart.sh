# SPDX-License-Identifier: Apache-2.0
# An output never replaces an input or another output, whatever option names it.
. "$EXPECT"
cp "$MODELS/m.tinyloop" model
cp model kept
echo '1 2 3' >in
cp -r "$MODELS/ouro-hf" hf

refused 2 --save-state tl-generate -m model -n 1 --save-state model in
refused 2 --save-state tl-generate -m model -n 1 --save-state in in
refused 2 --plot tl-bench-spec -m model -n 2 --prompts 1 --repeats 1 --speculative block:d=1 --plot model
refused 2 --save-profile tl-bench-spec -m model -n 2 --prompts 1 --repeats 1 --speculative block:d=1 --save-profile=model
refused 2 OUT tl-convert hf hf/config.json
same kept model
[ "$(cat in)" = '1 2 3' ] || fail 'the input was changed'
cmp hf/config.json "$MODELS/ouro-hf/config.json" || fail 'the checkpoint was changed'

refused 2 'name the same file' tl-generate -m model -n 1 -o o --stats=o in
refused 2 'name the same file' tl-generate -m model -n 1 -o o --save-state ./o in
refused 2 'name the same file' tl-score -m model --logits x --states x in
refused 2 'name the same file' tl-score -m model --logits x -o x in
refused 2 'name the same file' tl-bench-spec -m model -n 2 --prompts 1 --speculative block:d=1 -o b --plot b
[ ! -e o ] && [ ! -e x ] && [ ! -e b ] || fail 'something was written'
refused 2 'Is a directory' tl-generate -m model -n 1 --save-state hf in

# Whatever option names what is read: each output of each tool against each of the tool's inputs.
cp "$MODELS/huginn.tinyloop" huginn
python3 - <<'END'
import struct
head = "{'descr': '<f4', 'fortran_order': False, 'shape': (64, 32), }"
head += ' ' * (-(len(head) + 11) % 64) + '\n'
open('states.npy', 'wb').write(b'\x93NUMPY\1\0' + struct.pack('<H', len(head)) + head.encode() + bytes(64 * 32 * 4))
END
tl-bench-spec -q -m model --repeats 1 --prompts 1 -n 2 --speculative block --save-profile=profile >bench
tl-bench-spec -q -m model --repeats 1 --prompts 1 -n 2 --speculative block --save-profile >bench
tl-generate -m model -n 1 --save-state state in >answer
tl-pool-register --pool pool -m model --capacity 9 in >key
entry=$(ls pool/*/*.*)
[ -s "$entry" ] || fail 'the pool has no entry'
mkdir kept_files
cp -r model huginn in states.npy profile model.speculation.json state hf pool kept_files
apart() { # INPUT 'OUTPUT-OPTION ...' COMMAND...: INPUT is refused as each of these outputs
  local input=$1 outputs=$2 output
  shift 2
  for output in $outputs; do
    [[ $output == *= ]] || output+=' '
    # shellcheck disable=SC2086 # one word or two
    refused 2 "${output%[ =]} $input: " "$@" $output$input
  done
}
generate='--output --stats= --save-state'
for input in model in; do
  apart $input "$generate" tl-generate -m model in
  apart $input '--output --stats=' tl-batch -m model in
  apart $input '--output --logits --states' tl-score -m model in
  apart $input '--output --plot --save-profile=' tl-bench-spec -m model in
  apart $input --output tl-inspect -m model --trace in
  apart $input --output tl-pool-register --pool pool -m model in
done
apart states.npy "$generate" tl-generate -m huginn --init-state states.npy in
apart states.npy '--output --stats=' tl-batch -m huginn --init-state states.npy in
apart states.npy '--output --logits --states' tl-score -m huginn --init-state states.npy in
apart states.npy '--output --plot --save-profile=' tl-bench-spec -m huginn --init-state states.npy in
apart states.npy --output tl-inspect -m huginn --trace --init-state states.npy in
apart states.npy --output tl-pool-register --pool pool -m huginn --init-state states.npy in
apart profile "$generate" tl-generate -m model --speculative auto:profile in
apart model.speculation.json "$generate" tl-generate -m model --speculative auto in
apart state '--output --stats=' tl-generate -m model --resume state
apart model --output tl-bench-speed -m model --only limits
apart model --output tl-inspect -m model
apart model --output tl-pool-evict --pool pool --model model
# What is in the pool, by whatever name, there or not; and the pool's folder.
ln -s "$PWD/pool" link
for input in pool/pool.json pool/uses.log "$entry" pool/new link/pool.json "$PWD/pool/pool.json"; do
  apart "$input" '--output --stats=' tl-generate -m model --pool pool in
  apart "$input" '--output --stats=' tl-batch -m model --pool pool in
  apart "$input" --output tl-pool-register --pool pool -m model in
  apart "$input" --output tl-pool-list --pool pool
  apart "$input" --output tl-pool-evict --pool pool --all
done
TL_POOL=pool apart pool/pool.json --output tl-batch -m model in
apart nowhere --output tl-pool-register --pool nowhere -m model in
apart pool --output tl-pool-list --pool pool
for kept in kept_files/*; do diff -r "$kept" "${kept#*/}" || fail "$kept was changed"; done
# Standard output, and error with --stats, that go on in what is read: a run would read its own answers and never end.
grows() { # TEXT COMMAND...
  local text=$1 status=0
  shift
  cp kept_files/in self
  timeout 20 "$@" >>self 2>grown || status=$?
  [ "$status" -eq 2 ] || fail "exit status $status, not 2: $*"
  holds grown "$text"
  same self kept_files/in
}
ln -sf self other_name
for name in self ./self other_name; do
  grows "standard output: the file is also an input, $name" tl-batch -m model -n 1 $name
  grows "standard output: the file is also an input, $name" tl-generate -m model -n 1 --stream $name
done
for command in 'tl-generate' 'tl-score' 'tl-inspect --trace' 'tl-bench-spec -n 2 --prompts 1' 'tl-pool-register --pool pool'; do
  # shellcheck disable=SC2086 # words
  grows 'the file is also an input, self' $command -m model self
done
for tool in tl-batch tl-generate tl-score 'tl-inspect --trace' 'tl-pool-register --pool pool'; do
  # shellcheck disable=SC2086 # words
  grows 'standard output: the file is also an input, standard input' $tool -m model <self
done
grows '--output /dev/stdout: the file is also an input' tl-batch -m model -n 1 -o /dev/stdout self
status=0
tl-convert hf made >>hf/config.json 2>grown || status=$?
[ "$status" -eq 2 ] && [ ! -e made ] || fail 'a report in the checkpoint'
cmp hf/config.json "$MODELS/ouro-hf/config.json" || fail 'the checkpoint was changed'
cp in self
status=0
tl-batch -m model -n 1 --stats self >answer 2>>self || status=$?
[ "$status" -eq 2 ] && [ ! -s answer ] || fail 'statistics went to the input'
cp in self
# An answer in a file needs no standard output.
tl-batch -m model -n 1 -o batch self >>self
# Words that are no files are no inputs.
tl-generate -m huginn -n 1 --init-state zero -o zero in
tl-generate -m huginn -n 1 --init-state zero -o zero in
[ -s zero ] || fail 'no output with the name of a word'

# Devices take everything.
tl-generate -m model -n 1 -o /dev/null --stats=/dev/null in
# A failure of the computation names file and line.
printf '1 2\n3 7 5\n' >poisoned
ends 1 tl-generate -m "$MODELS/nan.tinyloop" -n 2 --logit-bias 7:-inf poisoned
holds err 'poisoned:2: step 1'

# What only a file can be is told before the work.
refused 2 '--save-state /dev/null: is not a regular file' tl-generate -m model -n 1 --save-state /dev/null in
refused 2 '--logits /dev/null: is not a regular file' tl-score -m model --logits /dev/null in
refused 2 '--states /dev/null: is not a regular file' tl-score -m model --states /dev/null in
refused 2 '--plot /dev/null: is not a regular file' tl-bench-spec -m model -n 2 --prompts 1 --speculative block --plot /dev/null
refused 2 '--save-profile /dev/null: is not a regular file' tl-bench-spec -m model -n 2 --prompts 1 --speculative block --save-profile=/dev/null
refused 2 'OUT /dev/null: is not a regular file' tl-convert hf /dev/null

# A symbolic link stays one, whether what it leads to is there or not; the journal is beside that.
tl-batch -m model --seed 1 -n 1 -o wanted in
mkdir far
ln -s far/target first
ln -s first second
for round in made replaced; do
  tl-batch -m model --seed 1 -n 1 -o second in
  [ -L first ] && [ -L second ] && [ ! -L far/target ] || fail "$round: a link is gone"
  same wanted far/target
done
rm far/target
mkdir far/target.journal
refused 2 'far/target.journal: Is a directory' tl-batch -m model --seed 1 -n 1 -o second in
ln -s circle circle # which leads to nothing that could be made
tl-batch -m model --seed 1 -n 1 -o circle in
same wanted circle
ln -s pool/new into_pool
refused 2 'into_pool: the file is in the pool pool' tl-batch -m model --pool pool -n 1 -o into_pool in
ln -s later one_name
refused 2 'name the same file' tl-batch -m model -n 1 -o one_name --stats=later in
