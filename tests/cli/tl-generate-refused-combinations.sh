# SPDX-License-Identifier: Apache-2.0
# What cannot work together is refused at entry, both options named; an output that is an input is left untouched.
. "$EXPECT"
model=$MODELS/m.tinyloop
echo '1 2 3' >prompts
cp prompts original

refused 2 --stream tl-generate -m "$model" --stream --output out.txt prompts
holds err --output
refused 2 --stream tl-generate -m "$model" --stream --jsonl prompts
holds err --jsonl
refused 2 prompts tl-generate -m "$model" --output prompts prompts
refused 2 prompts tl-generate -m "$model" --output ./prompts prompts
ln -s prompts link
refused 2 link tl-generate -m "$model" --output link prompts
ln prompts hard
refused 2 hard tl-generate -m "$model" --output hard prompts
refused 2 prompts tl-score -m "$model" --output prompts prompts
refused 2 prompts tl-score -m "$model" --logits prompts prompts
refused 2 prompts tl-generate -m "$model" --stats=prompts prompts
cp "$model" own.tinyloop
refused 2 own.tinyloop tl-generate -m own.tinyloop --output own.tinyloop prompts
same "$model" own.tinyloop
same original prompts

refused 2 twice tl-generate -m "$model" --speculative wavefront:d=1,d=2 prompts
refused 2 auto tl-generate -m "$model" --speculative foo prompts
refused 2 auto: tl-generate -m "$model" --speculative auto: prompts
refused 2 --init-state tl-generate -m "$model" --init-state zero prompts
refused 2 --logits tl-score -m "$model" --loops 1,2 --logits logits.npy prompts
holds err --loops
refused 2 --states tl-score -m "$model" --loops 1,2 --states states.npy prompts
[ ! -e logits.npy ] && [ ! -e states.npy ] && [ ! -e out.txt ] || fail 'something was written'

# An existing output is replaced only by a complete one.
echo precious >out.txt
echo 'x' >bad
refused 2 bad:1:1 tl-generate -m "$model" -o out.txt bad
[ "$(cat out.txt)" = precious ] || fail 'the old output is gone'
tl-generate -m "$model" -n 2 --temperature 0 -o out.txt prompts
tl-generate -m "$model" -n 2 --temperature 0 prompts >wanted
same wanted out.txt
[ -z "$(find . -name '.tmp*')" ] || fail 'a temporary file was left behind'
