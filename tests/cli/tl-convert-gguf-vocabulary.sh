# SPDX-License-Identifier: Apache-2.0
# The vocabulary of a GGUF file travels in the model: the same ids as by the tokenizer.json with the same tokens.
. "$EXPECT"
export PYTHONPATH=$CASES PYTHONDONTWRITEBYTECODE=1
make() { # PYTHON over `keys` of a byte-level vocabulary; in.gguf and tokenizer.json are the same one
  python3 - "$MODELS/llama-hf" "$1" <<'END'
import json, sys, gguf
keys, tensors = gguf.from_hf(*gguf.plain(*gguf.hf_folder(sys.argv[1])))
letters = ' abcdefghijklmnop0123456789.\n'
level = {ord(' '): 'Ġ', ord('\n'): 'Ċ'}
vocab = {letter.translate(level): i for i, letter in enumerate(letters)}
merges = ['a b', 'Ġ ab', 'c d', '1 2']
for merge in merges:
    vocab[merge.replace(' ', '')] = len(vocab)
json.dump({'model': {'type': 'BPE', 'vocab': vocab, 'merges': merges}, 'decoder': {'type': 'ByteLevel'},
           'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [
               {'type': 'Digits', 'individual_digits': True},
               {'type': 'ByteLevel', 'add_prefix_space': False, 'use_regex': True}]},
           'added_tokens': [{'id': len(vocab), 'content': '<|im_start|>', 'special': True},
                            {'id': len(vocab) + 1, 'content': '<|im_end|>', 'special': True},
                            {'id': len(vocab) + 2, 'content': 'nop', 'special': False}]}, open('tokenizer.json', 'w'))
tokens = list(vocab) + ['<|im_start|>', '<|im_end|>', 'nop', '[PAD]']
keys |= {'tokenizer.ggml.model': 'gpt2', 'tokenizer.ggml.pre': 'smollm', 'tokenizer.ggml.tokens': tokens,
         'tokenizer.ggml.token_type': [(5, n.to_bytes(4, 'little')) for n in [1] * len(vocab) + [3, 3, 4, 5]],
         'tokenizer.ggml.merges': merges, 'tokenizer.ggml.bos_token_id': len(vocab),
         'tokenizer.ggml.eos_token_id': len(vocab) + 1, 'tokenizer.ggml.add_bos_token': False,
         'tokenizer.chat_template': "{{'<|im_start|>' + message['role'] + '\n' + '<|im_end|>' }}"}
exec(sys.argv[2])
open('in.gguf', 'wb').write(gguf.gguf(keys, tensors))
END
}
make ''
ends 0 tl-convert in.gguf m.tinyloop
[ ! -s err ] || fail "a warning: $(cat err)"
tl-inspect -m m.tinyloop --verify >/dev/null
tl-inspect -m m.tinyloop >described
holds described 'byte-level BPE, '
printf 'ab cd nop 12 <|im_end|>\n\nabnop. a  b\n' >text
for special in '' --special; do
  tl-tokenize --tokenizer tokenizer.json $special text >wanted
  for source in '-m m.tinyloop' '--tokenizer in.gguf'; do
    tl-tokenize $source $special text >got
    same wanted got
    tl-detokenize $source got >back
    tl-detokenize --tokenizer tokenizer.json got >wanted.back
    same wanted.back back
  done
done
echo 'ab cd' | tl-tokenize -m m.tinyloop | tl-generate -m m.tinyloop -n 8 --temperature 0 --only-new | tl-detokenize -m m.tinyloop >said
[ -s said ] || fail 'no answer'
# A file of a vocabulary alone is enough for the tokenizer.
make 'tensors = {}'
tl-tokenize --tokenizer in.gguf --special text >got
same wanted got
make 'keys["tokenizer.ggml.add_bos_token"] = True'
tl-tokenize --tokenizer in.gguf --bos text >got
read -r begin _ <got
[ "$begin" -eq "$(tl-tokenize --tokenizer in.gguf --special <<<'<|im_start|>')" ] || fail "$begin is not the first token"

# What is not supported is told, and the model is there all the same.
warned() { # TEXT
  ends 0 tl-convert in.gguf odd.tinyloop
  [ "$(wc -l <err)" -eq 1 ] || fail 'not one warning'
  holds err "tl-convert: warning: in.gguf: $1"
  holds err 'the model gets no vocabulary'
  refused 1 'has no vocabulary' tl-tokenize -m odd.tinyloop text
  refused 1 "$1" tl-tokenize --tokenizer in.gguf text
}
make 'keys["tokenizer.ggml.model"] = "bert"' && warned 'tokenizer.ggml.model is "bert", which is not supported; gpt2 and llama are'
make 'keys["tokenizer.ggml.pre"] = "default"' && warned 'tokenizer.ggml.pre is "default", a pre-tokenizer that is not supported'
make 'del keys["tokenizer.ggml.pre"]' && warned 'tokenizer.ggml.pre is missing'
make 'keys["tokenizer.ggml.merges"] = ["a zz"]' && warned 'tokenizer.ggml.merges: "zz" is no token'
make 'keys["tokenizer.ggml.merges"] = ["ab"]' && warned 'tokenizer.ggml.merges: "ab" is not two texts'
make 'keys["tokenizer.ggml.token_type"] = keys["tokenizer.ggml.token_type"][1:]' && warned 'tokenizer.ggml.token_type is a list of'
make 'keys["tokenizer.ggml.tokens"][1] = "b"' && warned 'tokenizer.ggml.tokens: duplicate token "b"'
make 'keys["tokenizer.ggml.tokens"][1] = b"\xff"' && warned 'tokenizer.ggml.tokens: token 1 is not UTF-8'

# SentencePiece's kind: unions by their scores, leftmost first; a space is U+2581; other bytes have tokens of their own.
make '
words = {"<unk>": 0, "<s>": 0, "</s>": 0} | {f"<0x{i:02X}>": 0 for i in range(256)}
words |= {"\u2581": -20, "a": -21, "b": -22, "c": -23, "ab": -3, "bc": -2, "\u2581a": -4, "abc": -5, "\u2581abc": -6}
kinds = [2, 3, 3] + [6] * 256 + [1] * 9
keys |= {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": list(words),
         "tokenizer.ggml.scores": [float(n) for n in words.values()],
         "tokenizer.ggml.token_type": [(5, n.to_bytes(4, "little")) for n in kinds],
         "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
         "tokenizer.ggml.add_bos_token": True}
del keys["tokenizer.ggml.pre"]; del keys["tokenizer.ggml.merges"]'
# ▁abc: bc goes first (-2), then ▁a (-4): no union of both is there but ▁abc, of ▁a and bc.
printf 'abc\nab c\nz\n' | tl-tokenize --tokenizer in.gguf >got
printf '267\n259 263 259 262\n259 125\n' >wanted
same wanted got
tl-detokenize --tokenizer in.gguf got >back
printf 'abc\nab c\nz\n' >wanted
same wanted back
make 'keys["tokenizer.ggml.model"] = "llama"' && warned 'tokenizer.ggml.scores is missing'
