# SPDX-License-Identifier: Apache-2.0
# A GGUF file that is damaged, incomplete, of another kind or contradicts itself: a message with place and cause, and no output.
. "$EXPECT"
export PYTHONPATH=$CASES PYTHONDONTWRITEBYTECODE=1
edit() { # PYTHON over `keys` and `tensors`, dictionaries; a third argument of gguf.gguf() may be set as `version`
  python3 - "$MODELS/llama-hf" "$1" <<'END'
import struct, sys, gguf
keys, tensors = gguf.from_hf(*gguf.plain(*gguf.hf_folder(sys.argv[1])))
version = 3
def rename(old, new):
    global keys
    keys = {key.replace(old, new, 1): value for key, value in keys.items()}
exec(sys.argv[2])
open('in.gguf', 'wb').write(gguf.gguf(keys, tensors, version))
END
}
refuse() { # TEXT
  refused 1 "$1" tl-convert in.gguf out.tinyloop
  holds err in.gguf
  [ "$(find . -name 'out.tinyloop*' -o -name '.tmp*' | wc -l)" -eq 0 ] || fail 'something was written'
}

edit '' && tl-convert -q in.gguf out.tinyloop >out && rm out.tinyloop
refused 2 'in.gguf' tl-convert in.gguf in.gguf
edit 'version = 1' && refuse 'is a GGUF file of version 1; 2 and 3 are supported'
edit 'version = 3 << 24' && refuse 'is a big-endian GGUF file'
printf 'version https://git-lfs.github.com/spec/v1\n' >in.gguf && refuse 'is a Git LFS pointer'
echo text >in && refused 1 'in: is neither a folder with config.json and the weights nor a GGUF file' tl-convert in out.tinyloop
rm in.gguf && refuse 'No such file'
edit 'rename("llama.", "mamba."); keys["general.architecture"] = "mamba"' && refuse 'general.architecture is "mamba", which is unknown; known are llama, qwen3, nanbeige, ouro'
edit 'keys["general.type"] = "adapter"' && refuse 'general.type is "adapter"'
edit 'del keys["general.architecture"]' && refuse 'general.architecture is missing'

# What the metadata say twice, or otherwise than the tensors: both numbers are named.
rows=$(edit 'print(tensors["token_embd.weight"][1][0])')
edit 'keys["llama.vocab_size"] += 1' && refuse "llama.vocab_size is $((rows + 1)), tensor token_embd.weight has $rows rows"
edit 'keys["llama.embedding_length"] *= 2' && refuse 'but the configuration needs ['
holds err 'its shape is ['
edit 'keys["llama.block_count"] += 1' && refuse 'tensor blk.2.attn_norm.weight is missing'
edit 'keys["llama.block_count"] -= 1' && refuse 'has no such tensor (the configuration has'
edit 'keys["llama.attention.value_length"] *= 2' && refuse 'llama.attention.value_length is'
edit 'keys["llama.rope.dimension_count"] = 2' && refuse 'llama.rope.dimension_count is 2, where heads have'
edit 'keys["llama.feed_forward_length"] += 32' && refuse 'ffn_gate.weight: its shape is ['
edit 'keys["tokenizer.ggml.eos_token_id"] = 70000' && refuse 'tokenizer.ggml.eos_token_id is 70000, of'

# Keys that change the math; the same keys with nothing in them are no matter.
edit 'keys["llama.expert_count"] = 8' && refuse 'llama.expert_count is 8, which is not supported'
edit 'keys["llama.expert_count"] = 0' && tl-convert -q in.gguf out.tinyloop >out && rm out.tinyloop
edit 'keys["llama.attention.causal"] = False' && refuse 'llama.attention.causal is false'
edit 'keys["llama.rope.scaling.type"] = "yarn"' && refuse 'llama.rope.scaling.type is "yarn"'
edit 'keys["llama.attention.head_count"] = [4, 4]' && refuse 'llama.attention.head_count is a list of 2, an integer is needed'
edit 'keys["llama.embedding_length"] = "64"' && refuse 'an integer is needed'
edit 'keys["general.quantization_version"] = 1; tensors["output_norm.weight"] = ("Q8_0", [64], bytes(68))' && refuse 'general.quantization_version is 1'

# Scaled rotary frequencies are a tensor: llama3's are known by their numbers, others are not.
edit 'n = keys["llama.attention.key_length"] // 2; tensors["rope_freqs.weight"] = ("F32", [n], struct.pack(f"<{n}f", *range(1, n + 1)))' &&
  refuse 'tensor rope_freqs.weight: factor'

# Tensors.
edit 'tensors["blk.0.attn_q.bias"] = ("F32", [64], bytes(256))' && refuse 'tensor blk.0.attn_q.bias: a model of family llama has no such tensor'
edit 'tensors["output_norm.weight"] = (20, tensors["output_norm.weight"][1], bytes(18))' && refuse 'tensor output_norm.weight: type IQ4_NL is not supported'
edit 'tensors["output_norm.weight"] = (99, tensors["output_norm.weight"][1], bytes(18))' && refuse 'tensor output_norm.weight: type 99 is not supported'
edit 'shape = tensors["output_norm.weight"][1]; tensors["output_norm.weight"] = ("F32", shape, struct.pack("<f", float("nan")) * shape[0])' &&
  refuse 'tensor output_norm.weight: value nan at element 0 is not finite'
edit 'n, k = tensors["token_embd.weight"][1]; tensors["token_embd.weight"] = ("Q8_0", [n, k], (b"\0\x3c" + b"\x80" * 32) * (n * k // 32))'
refuse 'has the value -128, which q8 does not; --dtype f16 takes it'
tl-convert -q --dtype f16 in.gguf out.tinyloop >out && rm out.tinyloop

# Parts of a split file.
edit 'keys |= {"split.no": 0, "split.count": 2}' && refuse 'its name does not end in -00001-of-00002.gguf'
edit 'keys |= {"split.no": 1, "split.count": 2}' && refuse 'split.no is 1, which makes it part 2 of 2; give the first'
edit 'keys |= {"split.no": 0, "split.count": 2}' && mv in.gguf in.gguf-00001-of-00002.gguf
refused 1 'in.gguf-00002-of-00002.gguf: No such file' tl-convert in.gguf-00001-of-00002.gguf out.tinyloop
edit 'keys |= {"split.no": 0, "split.count": 2}' && mv in.gguf in.gguf-00002-of-00002.gguf
refused 1 'split.no is 0, its name asks for 1' tl-convert in.gguf-00001-of-00002.gguf out.tinyloop
edit 'keys |= {"split.no": 1, "split.count": 2}' && mv in.gguf in.gguf-00002-of-00002.gguf
refused 1 'is in another part, too' tl-convert in.gguf-00001-of-00002.gguf out.tinyloop
edit 'keys |= {"split.no": 1, "split.count": 2}; tensors = {}' && mv in.gguf in.gguf-00002-of-00002.gguf
tl-convert -q in.gguf-00001-of-00002.gguf out.tinyloop >out && rm out.tinyloop

# Cut anywhere: header, table, data.
edit ''
python3 - <<'END'
data = open('in.gguf', 'rb').read()
for i in range(12):
    open(f'cut{i}.gguf', 'wb').write(data[:len(data) * i // 12 + (1 if i == 0 else 0)])
END
for i in 0 1 2 3 4 5 6 7 8 9 10 11; do
  refused 1 "cut$i.gguf" tl-convert cut$i.gguf out.tinyloop
done
[ ! -e out.tinyloop ] || fail 'something was written'
