# SPDX-License-Identifier: Apache-2.0
# The vocabulary of a folder travels in the model: the same ids from it as from tokenizer.json, and the same model.
. "$EXPECT"
cp -r "$MODELS/llama-hf" in
chmod -R u+w in
tl-convert in without.tinyloop >/dev/null
python3 - <<'END'
import json
letters = ' abcdefghijklmnop\n'
level = {ord(' '): 'Ġ', ord('\n'): 'Ċ'}
vocab = {letter.translate(level): i for i, letter in enumerate(letters)}
merges = ['a b', 'Ġ ab', 'c d']
for merge in merges:
    vocab[merge.replace(' ', '')] = len(vocab)
json.dump({'model': {'type': 'BPE', 'vocab': vocab, 'merges': merges}, 'decoder': {'type': 'ByteLevel'},
           'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': False, 'use_regex': True},
           'added_tokens': [{'id': len(vocab), 'content': '<|end|>', 'special': True}]},
          open('in/tokenizer.json', 'w'))
END
tl-convert in with.tinyloop >report
holds report fingerprint
[ "$(tl-inspect -m with.tinyloop --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["fingerprint"])')" = \
  "$(tl-inspect -m without.tinyloop --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["fingerprint"])')" ] ||
  fail 'the vocabulary changed the fingerprint'
tl-inspect -m with.tinyloop --verify >/dev/null
tl-inspect -m with.tinyloop >described
holds described 'tokenizer     byte-level BPE, 22 tokens, 1 of them added'
tl-inspect -m without.tinyloop >described
! grep tokenizer described || fail 'a tokenizer that is not there'
tl-inspect -m with.tinyloop --json | python3 -c '
import json, sys
assert json.load(sys.stdin)["tokenizer"] == {"kind": "byte-level BPE", "tokens": 22, "added": 1, "bos": None, "eos": None,
                                             "chat_template": ""}'
echo 1 2 3 >ids
tl-generate -m with.tinyloop -n 4 --temperature 0 ids >one
tl-generate -m without.tinyloop -n 4 --temperature 0 ids >two
same one two

echo 'an ab cd <|end|>' >text
for special in '' --special; do
  tl-tokenize --tokenizer in/tokenizer.json $special text >wanted
  tl-tokenize -m with.tinyloop $special text >got
  same wanted got
done
# Three programs talk, whatever ids the model comes to: those that the vocabulary does not have are no text.
echo 'ab cd' | tl-tokenize -m with.tinyloop | tl-generate -m with.tinyloop -n 30 --seed 1 --stream --only-new --ignore-eos >said
tr ' ' '\n' <said | awk '$1 >= 22' | grep -q . || fail 'the model said no id without text'
tl-detokenize -m with.tinyloop said >text_of_it
[ -s text_of_it ] || fail 'no text'
tl-tokenize -m with.tinyloop text | tl-detokenize -m with.tinyloop >back
printf 'an ab cd end\n' >wanted # the vocabulary has no signs
same wanted back
refused 1 'has no vocabulary' tl-tokenize -m without.tinyloop text

# An altered vocabulary is found, and a damaged one is refused.
python3 - <<'END'
data = bytearray(open('with.tinyloop', 'rb').read())
at = data.index(b'tinyloop vocabulary 1\n')
data[at + 1000 if at + 1000 < len(data) else len(data) - 1] ^= 1
open('altered.tinyloop', 'wb').write(data)
data[at] ^= 1
open('damaged.tinyloop', 'wb').write(data)
END
refused 1 'the vocabulary has been altered' tl-inspect -m altered.tinyloop --verify
refused 1 'the vocabulary has an unknown format' tl-tokenize -m damaged.tinyloop text

# What this program cannot read is told, and the model is there all the same.
sed -i 's/"ByteLevel", "add/"CharDelimiterSplit", "add/' in/tokenizer.json
ends 0 tl-convert in odd.tinyloop
holds err 'tl-convert: warning: in/tokenizer.json: pre_tokenizer: type "CharDelimiterSplit" is not supported; the model gets no vocabulary'
same without.tinyloop odd.tinyloop
echo '{}' >in/tokenizer.json
ends 0 tl-convert -q in odd.tinyloop
[ ! -s err ] || fail 'not quiet'
python3 - <<'END'
import json
json.dump({'model': {'type': 'BPE', 'vocab': {'a': 9999}, 'merges': []}, 'decoder': {'type': 'Fuse'}}, open('in/tokenizer.json', 'w'))
END
ends 0 tl-convert in odd.tinyloop
holds err 'has 10000 tokens, but the model'
same without.tinyloop odd.tinyloop
