# SPDX-License-Identifier: Apache-2.0
# An output never replaces an input or another output, whatever option names it.
. "$EXPECT"
cp "$MODELS/m.tinyloop" model
cp model kept
echo '1 2 3' >in
cp -r "$MODELS/ouro-hf" hf

refused 2 --save-state tl-generate -m model -n 1 --save-state model in
refused 2 --save-state tl-generate -m model -n 1 --save-state in in
refused 2 --plot tl-bench-spec -m model -n 2 --prompts 1 --repeats 1 --schedule block:d=1 --plot model
refused 2 --save-profile tl-bench-spec -m model -n 2 --prompts 1 --repeats 1 --schedule block:d=1 --save-profile=model
refused 2 OUT tl-convert hf hf/config.json
same kept model
[ "$(cat in)" = '1 2 3' ] || fail 'the input was changed'
cmp hf/config.json "$MODELS/ouro-hf/config.json" || fail 'the checkpoint was changed'

refused 2 'name the same file' tl-generate -m model -n 1 -o o --stats=o in
refused 2 'name the same file' tl-generate -m model -n 1 -o o --save-state ./o in
refused 2 'name the same file' tl-score -m model --logits x --states x in
refused 2 'name the same file' tl-score -m model --logits x -o x in
refused 2 'name the same file' tl-bench-spec -m model -n 2 --prompts 1 --schedule block:d=1 -o b --plot b
[ ! -e o ] && [ ! -e x ] && [ ! -e b ] || fail 'something was written'
refused 2 'Is a directory' tl-generate -m model -n 1 --save-state hf in

# Devices take everything.
tl-generate -m model -n 1 -o /dev/null --stats=/dev/null in
# A failure of the computation names file and line.
printf '1 2\n3 7 5\n' >poisoned
ends 1 tl-generate -m "$MODELS/nan.tinyloop" -n 2 --logit-bias 7:-inf poisoned
holds err 'poisoned:2: step 1'
