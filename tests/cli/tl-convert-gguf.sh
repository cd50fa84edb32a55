# SPDX-License-Identifier: Apache-2.0
# A GGUF file makes the same model, bit for bit, as the Hugging Face folder with the same weights.
. "$EXPECT"
export PYTHONPATH=$CASES PYTHONDONTWRITEBYTECODE=1
for name in llama qwen3 nanbeige ouro; do
  mkdir -p $name
  python3 - "$MODELS/$name-hf" $name <<'END'
import sys, gguf
config, tensors = gguf.plain(*gguf.hf_folder(sys.argv[1]))
gguf.write_hf(sys.argv[2], config, tensors)
open(sys.argv[2] + '.gguf', 'wb').write(gguf.gguf(*gguf.from_hf(config, tensors)))
open(sys.argv[2] + '2.gguf', 'wb').write(gguf.gguf(*gguf.from_hf(config, tensors), version=2))
END
  for type in keep f32 q8 q4; do
    tl-convert --dtype $type $name wanted.tinyloop >report
    tl-convert --dtype $type $name.gguf got.tinyloop >report.gguf
    same wanted.tinyloop got.tinyloop
    same report report.gguf
  done
  tl-convert -q $name.gguf wanted.tinyloop >report
  tl-convert -q ${name}2.gguf got.tinyloop >report
  same wanted.tinyloop got.tinyloop
done
tl-convert --loop-layers 1:1 --substeps 3 llama wanted.tinyloop >report
tl-convert --loop-layers 1:1 --substeps 3 llama.gguf got.tinyloop >report
same wanted.tinyloop got.tinyloop
refused 2 'is looped already' tl-convert --loop-layers 1:1 ouro.gguf out.tinyloop

# Scaled rotary frequencies: GGUF has a tensor of factors where the folder has four numbers.
python3 - llama <<'END'
import sys, gguf
config, tensors = gguf.hf_folder(sys.argv[1])
config |= {'rope_theta': 500000.0, 'rope_scaling': {'rope_type': 'llama3', 'factor': 32.0, 'low_freq_factor': 1.0,
                                                    'high_freq_factor': 4.0, 'original_max_position_embeddings': 8192}}
gguf.write_hf(sys.argv[1], config, tensors)
open('llama.gguf', 'wb').write(gguf.gguf(*gguf.from_hf(config, tensors)))
END
tl-convert llama wanted.tinyloop >report
tl-convert llama.gguf got.tinyloop >report
same wanted.tinyloop got.tinyloop

# Every type of blocks, against values computed elsewhere.
mkdir every
python3 - <<'END'
import gguf
plain, blocked = gguf.every_type(1)
gguf.write_hf('every', *plain)
open('every.gguf', 'wb').write(gguf.gguf(*blocked))
metadata, tensors = blocked
# In three parts.
names = list(tensors)
for number in range(3):
    part = {name: tensors[name] for name in names[number::3]}
    keys = {'split.no': number, 'split.count': 3, 'split.tensors.count': len(names)}
    open(f'part-{number + 1:05}-of-00003.gguf', 'wb').write(gguf.gguf((metadata if number == 0 else {}) | keys, part))
# With another alignment.
open('aligned.gguf', 'wb').write(gguf.gguf(metadata | {'general.alignment': 256}, tensors))
END
for type in f32 f16 q8; do
  tl-convert -q --dtype $type every wanted.$type >report
  tl-convert -q --dtype $type every.gguf got.$type >report.gguf
done
same wanted.f32 got.f32
same wanted.f16 got.f16
for file in part-00001-of-00003.gguf aligned.gguf; do
  tl-convert -q --dtype f32 $file got.f32 >report
  same wanted.f32 got.f32
done

# What is rounded again is told, in one line; what is not rounded again is not.
ends 0 tl-convert every.gguf got.keep
[ "$(wc -l <err)" -eq 1 ] || fail 'not one warning'
holds err 'tl-convert: warning: every.gguf: 6 of 10 matrices were rounded to Q2_K, Q3_K, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K and are rounded again to q8; --dtype f16'
ends 0 tl-convert --dtype f16 every.gguf got.f16
[ ! -s err ] || fail 'a warning for f16'

# Q4_0 and Q4_1 become q4_1 with their bytes as they are; the minimum of Q4_0 is -8 scales.
python3 - <<'END'
import json, struct, gguf
_, (metadata, tensors) = gguf.every_type(1)
blob = open('got.keep', 'rb').read()
size = int.from_bytes(blob[:8], 'little')
header = json.loads(blob[8:8 + size])
def bytes_of(name):
    first, last = header[name]['data_offsets']
    return blob[8 + size + first:8 + size + last]
for name, source, kind in (('layers.0.out', 'blk.0.attn_output', 'Q4_0'), ('layers.0.down', 'blk.0.ffn_down', 'Q4_1')):
    found, (n, k), blocks = tensors[source + '.weight']
    assert found == kind, found
    data, scales, head = bytes_of(name), bytes_of(name + '.scales'), 2 if kind == 'Q4_0' else 4
    for row in range(n):
        for group in range(k // 32):
            block = blocks[(row * k // 32 + group) * (head + 16):][:head + 16]
            at = row // 16 * (k // 32) + group
            scale, minimum = (struct.unpack_from('<e', scales, 2 * ((2 * at + part) * 16 + row % 16))[0] for part in (0, 1))
            wanted = struct.unpack_from('<e' if kind == 'Q4_0' else '<ee', block)
            assert (scale, minimum) == (wanted if kind == 'Q4_1' else (wanted[0], -8 * wanted[0])), (name, row, group)
            stored = b''.join(data[((4 * at + quad) * 16 + row % 16) * 4:][:4] for quad in range(4))
            assert stored == block[head:], (name, row, group)
END

# Q8_0 becomes q8 with its bytes as they are, scales and integers, whatever the greatest integer is.
python3 - <<'END'
import random, struct, gguf
rng = random.Random(2)
_, (metadata, tensors) = gguf.every_type(2)
for name, (kind, shape, data) in list(tensors.items()):
    if len(shape) == 2:
        blocks = b''.join(struct.pack('<e', rng.uniform(-0.01, 0.01)) + struct.pack('<32b', *(rng.randint(-90, 90) for _ in range(32)))
                          for _ in range(shape[0] * shape[1] // 32))
        tensors[name] = ('Q8_0', shape, blocks)
open('q8.gguf', 'wb').write(gguf.gguf(metadata, tensors))
import pickle
pickle.dump(tensors, open('tensors', 'wb'))
END
ends 0 tl-convert q8.gguf q8.tinyloop
[ ! -s err ] || fail 'a warning for Q8_0'
holds out '0 %'
python3 - <<'END'
import json, pickle
tensors = pickle.load(open('tensors', 'rb'))
blob = open('q8.tinyloop', 'rb').read()
size = int.from_bytes(blob[:8], 'little')
header = json.loads(blob[8:8 + size])
def bytes_of(name):
    first, last = header[name]['data_offsets']
    return blob[8 + size + first:8 + size + last]
def row_of(name, row, groups):  # of our file, as blocks, by tl-model(5)
    data, scales, out = bytes_of(name), bytes_of(name + '.scales'), b''
    panel, lane = divmod(row, 16)
    for group in range(groups):
        at = panel * groups + group
        out += scales[2 * (16 * at + lane):2 * (16 * at + lane) + 2]
        for quad in range(8):
            first = ((8 * at + quad) * 16 + lane) * 4
            out += data[first:first + 4]
    return out
for name, source, rows, first in (('embedding', 'token_embd', 32, 0), ('head', 'output', 32, 0),
                                  ('layers.0.down', 'blk.0.ffn_down', 256, 0), ('layers.1.qkv', 'blk.1.attn_v', 32, 96)):
    _, (n, k), data = tensors[source + '.weight']
    groups = k // 32
    for row in range(rows):
        assert row_of(name, first + row, groups) == data[row * groups * 34:(row + 1) * groups * 34], (name, row)
END
