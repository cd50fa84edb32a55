# SPDX-License-Identifier: Apache-2.0
# A checkpoint that is damaged, incomplete or of another kind: a message with place and cause, and no output, not even a part.
. "$EXPECT"
fresh() { rm -rf in && cp -r "$MODELS/llama-hf" in && chmod -R u+w in; }
edit() { # PYTHON over `config`, a dictionary
  fresh
  python3 - "$1" <<'END'
import json, sys
config = json.load(open('in/config.json'))
exec(sys.argv[1])
json.dump(config, open('in/config.json', 'w'))
END
}
weights() { # PYTHON over `header`, the safetensors header, and `data`, the bytes behind it
  fresh
  python3 - "$1" <<'END'
import glob, json, sys
path, = glob.glob('in/*.safetensors')
blob = open(path, 'rb').read()
size = int.from_bytes(blob[:8], 'little')
header, data = json.loads(blob[8:8 + size]), bytearray(blob[8 + size:])
names = [name for name in header if name != '__metadata__']
exec(sys.argv[1])
text = json.dumps(header).encode()
open(path, 'wb').write(len(text).to_bytes(8, 'little') + text + data)
END
}
refuse() { # TEXT
  refused 1 "$1" tl-convert in out.tinyloop
  [ "$(find . -name 'out.tinyloop*' -o -name '.tmp*' | wc -l)" -eq 0 ] || fail 'something was written'
}

rm -rf in && mkdir in && refuse config.json
fresh && tl-convert -q in out.tinyloop >out && rm out.tinyloop
edit 'config["model_type"] = "mamba"' && refuse mamba
holds err ouro
edit 'config["hidden_act"] = "gelu"' && refuse hidden_act
edit 'config["rope_scaling"] = {"rope_type": "yarn", "factor": 4.0}' && refuse yarn
edit 'config["attention_bias"] = True' && refuse attention_bias
edit 'del config["hidden_size"]' && refuse hidden_size
edit 'config["hidden_size"] = -32' && refuse hidden_size
edit 'config["num_hidden_layers"] = 3' && refuse layers
fresh && echo '{' >in/config.json && refuse config.json
fresh && printf '{\n "rope_theta": Infinity\n}\n' >in/config.json && refuse config.json:2:16:
edit 'config["rope_scaling"] = {"rope_type": "default", "rope_theta": 500}' && refuse rope_scaling.rope_theta
edit 'config["rope_parameters"] = {"full_attention": {"rope_type": "default"}}' && refuse 'layer type'
edit 'del config["tie_word_embeddings"]' && refuse lm_head.weight
holds err tie_word_embeddings
rm -r in && cp -r "$MODELS/ouro-hf" in && chmod -R u+w in
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' in/config.json && refuse lm_head.weight
holds err tie_word_embeddings
fresh
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 12\n' 0 >pointer
cp pointer in/model.safetensors && refuse 'in/model.safetensors: is a Git LFS pointer'
refused 1 'pointer: is a Git LFS pointer' tl-inspect -m pointer

# Of a single file and an index the single file is read, and a warning says so.
fresh
echo '{"weight_map":{}}' >in/model.safetensors.index.json
tl-convert in out.tinyloop >out 2>err && rm out.tinyloop
holds err 'warning: in: using model.safetensors, ignoring model.safetensors.index.json'

weights 'header[names[0] + ".copy"] = header.pop(names[0])' && refuse in
weights 'header[names[0]]["shape"][0] += 1' && refuse in
weights 'header[names[0]]["shape"].reverse() or header[names[0]]["shape"].append(1)' && refuse in
weights 'header[names[0]]["dtype"] = "F99"' && refuse F99
weights 'header[names[1]]["data_offsets"][0] += 4' && refuse in
weights 'header[names[0]]["data_offsets"][1] = 1 << 60' && refuse in
weights 'data = data[:-1]' && refuse in
weights 'data += b"x"' && refuse in
weights 'data[0:4] = b"\x00\x00\xc0\x7f"' && refuse finite
for file in in/*.safetensors; do printf '\377\377\377\377\377\377\377\177{}' >"$file"; done
refuse in

# An existing file survives a conversion that fails; wrong options are USAGE.
echo precious >old.tinyloop
refused 1 in tl-convert in old.tinyloop
[ "$(cat old.tinyloop)" = precious ] || fail 'the old file is gone'
fresh
refused 1 nowhere tl-convert in nowhere/out.tinyloop
refused 2 --loop-layers tl-convert --loop-layers 1 in out.tinyloop
refused 2 --loop-layers tl-convert --loop-layers 2:1 in out.tinyloop
refused 2 --loop-layers tl-convert --loop-layers 0:99 in out.tinyloop
refused 2 --substeps tl-convert --loop-layers 0:1 --substeps 0 in out.tinyloop
refused 2 --substeps tl-convert --substeps 2 in out.tinyloop
cp -r "$MODELS/ouro-hf" ouro
refused 2 --loop-layers tl-convert --loop-layers 0:1 ouro out.tinyloop
[ ! -e out.tinyloop ] || fail 'something was written'
