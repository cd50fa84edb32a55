# SPDX-License-Identifier: Apache-2.0
"""GGUF files for the shell cases: written from Hugging Face folders and from scratch, by the format's description.

Shares nothing with the library. Only what tests need; nothing is checked.
"""

import glob
import json
import math
import random
import struct

TYPES = {'F32': (0, 1, 4), 'F16': (1, 1, 2), 'BF16': (30, 1, 2), 'Q4_0': (2, 32, 18), 'Q4_1': (3, 32, 20),
         'Q5_0': (6, 32, 22), 'Q5_1': (7, 32, 24), 'Q8_0': (8, 32, 34), 'Q2_K': (10, 256, 84), 'Q3_K': (11, 256, 110),
         'Q4_K': (12, 256, 144), 'Q5_K': (13, 256, 176), 'Q6_K': (14, 256, 210)}


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return struct.pack('<Q', len(value)) + value


def typed(value):
    """A value as (type, bytes): bool, int (u32), float (f32), text, lists of them; or a pair given like this."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, bool):
        return 7, struct.pack('<?', value)
    if isinstance(value, int):
        return 4, struct.pack('<I', value)
    if isinstance(value, float):
        return 6, struct.pack('<f', value)
    if isinstance(value, (str, bytes)):
        return 8, text(value)
    parts = [typed(part) for part in value]
    return 9, struct.pack('<IQ', parts[0][0] if parts else 4, len(parts)) + b''.join(part for _, part in parts)


def gguf(metadata, tensors, version=3):
    """tensors: name to (type, shape with the rows first, bytes)."""
    alignment = metadata.get('general.alignment', 32)
    head = b'GGUF' + struct.pack('<IQQ', version, len(tensors), len(metadata))
    for key, value in metadata.items():
        kind, data = typed(value)
        head += text(key) + struct.pack('<I', kind) + data
    body = b''
    for name, (kind, shape, data) in tensors.items():
        number = TYPES[kind][0] if isinstance(kind, str) else kind
        head += text(name) + struct.pack(f'<I{len(shape)}QIQ', len(shape), *reversed(shape), number, len(body))
        body += data + bytes(-len(data) % alignment)
    return head + bytes(-len(head) % alignment) + body


def hf_folder(folder):
    """config.json and the tensors of a folder: name to (type, shape, bytes)."""
    config = json.load(open(folder + '/config.json'))
    tensors = {}
    for path in sorted(glob.glob(folder + '/*.safetensors')):
        blob = open(path, 'rb').read()
        size = int.from_bytes(blob[:8], 'little')
        for name, entry in json.loads(blob[8:8 + size]).items():
            if name != '__metadata__':
                first, last = entry['data_offsets']
                tensors[name] = (entry['dtype'], entry['shape'], blob[8 + size + first:8 + size + last])
    return config, tensors


def write_hf(folder, config, tensors):
    json.dump(config, open(folder + '/config.json', 'w'))
    header, data = {}, b''
    for name, (kind, shape, part) in tensors.items():
        header[name] = {'dtype': kind, 'shape': shape, 'data_offsets': [len(data), len(data) + len(part)]}
        data += part
    head = json.dumps(header).encode()
    open(folder + '/model.safetensors', 'wb').write(len(head).to_bytes(8, 'little') + head + data)


NAMES = {'input_layernorm': 'attn_norm', 'input_layernorm_2': 'post_attention_norm',
         'post_attention_layernorm': 'ffn_norm', 'post_attention_layernorm_2': 'post_ffw_norm',
         'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v',
         'self_attn.o_proj': 'attn_output', 'self_attn.q_norm': 'attn_q_norm', 'self_attn.k_norm': 'attn_k_norm',
         'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down'}
OTHER = {'model.embed_tokens.weight': 'token_embd.weight', 'model.norm.weight': 'output_norm.weight',
         'lm_head.weight': 'output.weight'}


def paired(data, head_dim, rows):
    """The rows of each head, first halves and second halves by turns, as rotary embeddings of neighbours need them."""
    size = len(data) // rows
    row = [data[i * size:(i + 1) * size] for i in range(rows)]
    half = head_dim // 2
    return b''.join(row[head + j + s * half] for head in range(0, rows, head_dim) for j in range(half) for s in (0, 1))


def rope_factors(scaling, theta, head_dim):
    """What llama3's scaling divides each frequency by."""
    low, high, context = (scaling[key] for key in ('low_freq_factor', 'high_freq_factor', 'original_max_position_embeddings'))
    factors = []
    for i in range(head_dim // 2):
        length = 2 * math.pi * theta ** (2 * i / head_dim)
        smooth = (context / length - low) / (high - low)
        factors.append(1.0 if length < context / high else scaling['factor'] if length > context / low else
                       1 / ((1 - smooth) / scaling['factor'] + smooth))
    return factors


def from_hf(config, tensors):
    """Metadata and tensors of the same model; the exit gate is left out, as published files leave it."""
    arch = config['model_type']
    head_dim = config.get('head_dim') or config['hidden_size'] // config['num_attention_heads']
    metadata = {'general.architecture': arch, f'{arch}.block_count': config['num_hidden_layers'],
                f'{arch}.context_length': config['max_position_embeddings'],
                f'{arch}.embedding_length': config['hidden_size'],
                f'{arch}.feed_forward_length': config['intermediate_size'],
                f'{arch}.attention.head_count': config['num_attention_heads'],
                f'{arch}.attention.head_count_kv': config['num_key_value_heads'],
                f'{arch}.attention.key_length': head_dim, f'{arch}.attention.value_length': head_dim,
                f'{arch}.attention.layer_norm_rms_epsilon': float(config['rms_norm_eps']),
                f'{arch}.rope.freq_base': float(config['rope_theta']), f'{arch}.vocab_size': config['vocab_size']}
    loops = config.get('total_ut_steps', config.get('num_loops'))
    if loops:
        metadata |= {f'{arch}.num_loops': loops,
                     f'{arch}.skip_loop_final_norm': config.get('skip_loop_final_norm', False)}
    ends = config.get('eos_token_id', [])
    for key, end in zip(('eos', 'eot', 'eom'), ends if isinstance(ends, list) else [ends]):
        metadata[f'tokenizer.ggml.{key}_token_id'] = end
    if 'bos_token_id' in config:
        metadata['tokenizer.ggml.bos_token_id'] = config['bos_token_id']
    made = {}
    if 'rope_scaling' in config:
        factors = rope_factors(config['rope_scaling'], config['rope_theta'], head_dim)
        made['rope_freqs.weight'] = ('F32', [len(factors)], struct.pack(f'<{len(factors)}f', *factors))
    for name, (kind, shape, data) in tensors.items():
        if name in OTHER:
            made[OTHER[name]] = (kind, shape, data)
        elif name.startswith('model.layers.'):
            number, rest = name.removeprefix('model.layers.').split('.', 1)
            if arch != 'qwen3' and ('q_proj' in rest or 'k_proj' in rest):
                data = paired(data, head_dim, shape[0])
            made[f'blk.{number}.{NAMES[rest.removesuffix(".weight")]}.weight'] = (kind, shape, data)
    return metadata, made


def plain(config, tensors):
    """Without an exit gate and without scaled frequencies of other numbers than published models have."""
    config = {key: value for key, value in config.items() if key != 'rope_scaling'}
    return config, {name: tensor for name, tensor in tensors.items() if 'early_exit_gate' not in name}


def half(block, at):
    return struct.unpack_from('<e', block, at)[0]


def block_values(kind, b):
    """The values of one block; products and sums are exact in Python's double before they are rounded to F32."""
    if kind == 'Q8_0':
        return [half(b, 0) * q for q in struct.unpack_from('<32b', b, 2)]
    if kind in ('Q4_0', 'Q4_1', 'Q5_0', 'Q5_1'):
        least, five = kind[3] == '1', kind[1] == '5'
        at = 4 if least else 2
        high = int.from_bytes(b[at:at + 4], 'little') if five else 0
        packed = b[-16:]
        q = [x & 15 for x in packed] + [x >> 4 for x in packed]
        q = [x | (high >> i & 1) << 4 for i, x in enumerate(q)]
        if least:
            return [half(b, 0) * x + half(b, 2) for x in q]
        return [half(b, 0) * (x - (16 if five else 8)) for x in q]
    if kind == 'Q2_K':
        scale, least, out = half(b, 80), half(b, 82), []
        for chunk in (b[16:48], b[48:80]):
            for shift in (0, 2, 4, 6):
                for x in chunk:
                    group = b[len(out) // 16]
                    out.append(scale * (group & 15) * (x >> shift & 3) - least * (group >> 4))
        return out
    if kind == 'Q3_K':
        s = b[96:108]
        scales = [(s[i] & 15 if i < 8 else s[i - 8] >> 4) + 16 * (s[8 + i % 4] >> 2 * (i // 4) & 3) - 32 for i in range(16)]
        out = []
        for n, chunk in enumerate((b[32:64], b[64:96])):
            for t in range(4):
                for x, mask in zip(chunk, b[:32]):
                    value = (x >> 2 * t & 3) - (0 if mask >> (4 * n + t) & 1 else 4)
                    out.append(half(b, 108) * scales[len(out) // 16] * value)
        return out
    if kind in ('Q4_K', 'Q5_K'):
        s, packed = b[4:16], b[16:] if kind == 'Q4_K' else b[48:]
        scales = [s[i] & 63 for i in range(4)] + [s[8 + i] & 15 | s[i] >> 6 << 4 for i in range(4)]
        leasts = [s[4 + i] & 63 for i in range(4)] + [s[8 + i] >> 4 | s[4 + i] >> 6 << 4 for i in range(4)]
        out = []
        for group in range(8):
            chunk = packed[group // 2 * 32:group // 2 * 32 + 32]
            for i, x in enumerate(chunk):
                q = x >> 4 if group % 2 else x & 15
                q += 16 * (b[16 + i] >> group & 1) if kind == 'Q5_K' else 0
                out.append(half(b, 0) * scales[group] * q - half(b, 2) * leasts[group])
        return out
    assert kind == 'Q6_K'
    out = [0.0] * 256
    for n in (0, 1):
        low, high, scales = b[64 * n:64 * n + 64], b[128 + 32 * n:160 + 32 * n], b[192 + 8 * n:200 + 8 * n]
        scales = struct.unpack('<8b', scales)
        for i in range(32):
            q = (low[i] & 15 | (high[i] & 3) << 4, low[i + 32] & 15 | (high[i] >> 2 & 3) << 4,
                 low[i] >> 4 | (high[i] >> 4 & 3) << 4, low[i + 32] >> 4 | (high[i] >> 6 & 3) << 4)
            for quarter in range(4):
                out[128 * n + 32 * quarter + i] = half(b, 208) * scales[2 * quarter + i // 16] * (q[quarter] - 32)
    return out


SCALES = {'Q4_0': (0,), 'Q4_1': (0, 2), 'Q5_0': (0,), 'Q5_1': (0, 2), 'Q8_0': (0,), 'Q2_K': (80, 82), 'Q3_K': (108,),
          'Q4_K': (0, 2), 'Q5_K': (0, 2), 'Q6_K': (208,)}


def random_blocks(rng, kind, shape):
    """Random blocks of a tensor, and its values as F32."""
    _, values, size = TYPES[kind]
    count = shape[0] * shape[1] // values
    blocks = b''
    for _ in range(count):
        block = bytearray(rng.randbytes(size))
        for at in SCALES[kind]:
            block[at:at + 2] = struct.pack('<e', rng.uniform(-0.01, 0.01))
        if kind == 'Q8_0':
            block[2:] = bytes(x if x != 0x80 else 0x81 for x in block[2:])
        blocks += block
    floats = [value for i in range(count) for value in block_values(kind, blocks[i * size:(i + 1) * size])]
    return blocks, struct.pack(f'<{len(floats)}f', *floats)


def every_type(seed):
    """A small llama whose matrices have all types, as a folder of F32 and as GGUF: (config, tensors), (metadata, tensors)."""
    rng = random.Random(seed)
    hidden = 256
    config = {'model_type': 'llama', 'vocab_size': 32, 'hidden_size': hidden, 'intermediate_size': 256,
              'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 32, 'num_hidden_layers': 2,
              'max_position_embeddings': 64, 'rms_norm_eps': 1e-5, 'rope_theta': 10000.0, 'eos_token_id': 2}
    kinds = {'self_attn.q_proj': ('Q2_K', 64, 256), 'self_attn.k_proj': ('Q3_K', 32, 256),
             'self_attn.v_proj': ('Q4_K', 32, 256), 'self_attn.o_proj': ('Q4_0', 256, 64),
             'mlp.gate_proj': ('Q5_K', 256, 256), 'mlp.up_proj': ('Q6_K', 256, 256), 'mlp.down_proj': ('Q4_1', 256, 256)}
    second = {'self_attn.q_proj': 'Q8_0', 'self_attn.k_proj': 'Q5_0', 'self_attn.o_proj': 'F16', 'mlp.down_proj': 'BF16'}
    norm = struct.pack(f'<{hidden}f', *(rng.uniform(0.5, 1.5) for _ in range(hidden)))
    plain, blocked = {}, {}
    everything = [('model.embed_tokens', ('Q5_0', 32, 256)), ('lm_head', ('Q5_1', 32, 256))]
    for layer in (0, 1):
        for name in ('input_layernorm', 'post_attention_layernorm'):
            plain[f'model.layers.{layer}.{name}.weight'] = ('F32', [hidden], norm)
        for name, (kind, rows, columns) in kinds.items():
            kind = second.get(name, kind) if layer else kind
            everything.append((f'model.layers.{layer}.{name}', (kind, rows, columns)))
    plain['model.norm.weight'] = ('F32', [hidden], norm)
    for name, (kind, rows, columns) in everything:
        if kind in ('F16', 'BF16'):
            values = [rng.uniform(-1, 1) for _ in range(rows * columns)]
            if kind == 'F16':
                data = struct.pack(f'<{len(values)}e', *values)
                floats = struct.pack(f'<{len(values)}f', *struct.unpack(f'<{len(values)}e', data))
            else:
                floats = b''.join(b'\0\0' + struct.pack('<f', value)[2:] for value in values)
                data = b''.join(floats[i + 2:i + 4] for i in range(0, len(floats), 4))
        else:
            data, floats = random_blocks(rng, kind, (rows, columns))
        plain[name + '.weight'] = ('F32', [rows, columns], floats)
        blocked[name + '.weight'] = (kind, [rows, columns], data)
    return (config, plain), from_hf(config, plain | blocked)
