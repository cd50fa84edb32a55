#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a Hugging Face Llama checkpoint with random bf16 weights, for measurements.

Usage: random_checkpoint.py FOLDER dim=N,ffn=N,heads=N,layers=N,vocab=N[,kv-heads=N,head-dim=N,...]
Other keys of tl-bench-speed's --shape are ignored. Not a meaningful model.
"""

import json
import pathlib
import random
import struct
import sys

BLOCK = 1 << 20  # values drawn and then repeated


def random_block():
    """Random bf16 values of either sign with magnitudes from 0.008 to 0.03."""
    low = random.Random(1).randbytes(BLOCK)
    signs = bytes(0x3c | (byte & 0x80) for byte in range(256))
    block = bytearray(2 * BLOCK)
    block[0::2] = low
    block[1::2] = random.Random(2).randbytes(BLOCK).translate(signs)
    return bytes(block)


def tensors_of(shape):
    dim, ffn, vocab = shape['dim'], shape['ffn'], shape['vocab']
    q, kv = shape['heads'] * shape['head-dim'], shape['kv-heads'] * shape['head-dim']
    yield 'model.embed_tokens.weight', (vocab, dim)
    for layer in range(shape['layers']):
        prefix = f'model.layers.{layer}.'
        yield prefix + 'input_layernorm.weight', (dim,)
        for name, n, k in (('q', q, dim), ('k', kv, dim), ('v', kv, dim), ('o', dim, q)):
            yield f'{prefix}self_attn.{name}_proj.weight', (n, k)
        yield prefix + 'post_attention_layernorm.weight', (dim,)
        for name, n, k in (('gate', ffn, dim), ('up', ffn, dim), ('down', dim, ffn)):
            yield f'{prefix}mlp.{name}_proj.weight', (n, k)
    yield 'model.norm.weight', (dim,)
    yield 'lm_head.weight', (vocab, dim)


def main(folder, text):
    shape = {key: int(value) for key, value in (pair.split('=') for pair in text.split(','))}
    shape.setdefault('kv-heads', shape['heads'])
    shape.setdefault('head-dim', shape['dim'] // shape['heads'])
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    (folder / 'config.json').write_text(json.dumps({
        'model_type': 'llama', 'hidden_size': shape['dim'], 'intermediate_size': shape['ffn'],
        'num_hidden_layers': shape['layers'], 'num_attention_heads': shape['heads'],
        'num_key_value_heads': shape['kv-heads'], 'head_dim': shape['head-dim'], 'hidden_act': 'silu',
        'rms_norm_eps': 1e-6, 'rope_theta': 10000.0, 'max_position_embeddings': 8192,
        'vocab_size': shape['vocab'], 'tie_word_embeddings': False, 'torch_dtype': 'bfloat16'}))
    header, sizes, at = {}, [], 0
    for name, dimensions in tensors_of(shape):
        values = dimensions[0] * (dimensions[1] if len(dimensions) > 1 else 1)
        header[name] = {'dtype': 'BF16', 'shape': dimensions, 'data_offsets': [at, at + 2 * values]}
        sizes.append((len(dimensions) == 1, 2 * values))
        at += 2 * values
    block, ones = random_block(), struct.pack('<H', 0x3f80)
    text = json.dumps(header).encode()
    with open(folder / 'model.safetensors', 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text)
        for is_norm, size in sizes:
            if is_norm:
                file.write(ones * (size // 2))
                continue
            for done in range(0, size, len(block)):
                file.write(block[:size - done])


if __name__ == '__main__':
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
