#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times tinyloop and llama.cpp on one random looped model, by turns, and prints a table with ratios.

Run by bench_peer.sh, which builds both. Medians; a ratio above 1 means that tinyloop is faster. Start-up and the stored
prompt are whole processes for tinyloop, and for llama.cpp what happens inside one that has loaded its library.
"""

import argparse
import ctypes
import json
import os
import statistics
import struct
import subprocess
import sys
import time

import llama_cpp
import numpy
from llama_cpp import Llama

F32, F16, Q4_0, Q8_0 = 0, 1, 2, 8
CONTEXT = 2048


def pack(value):
    """A metadata value of GGUF as (type, bytes)."""
    if isinstance(value, bool):
        return 7, struct.pack('<?', value)
    if isinstance(value, int):
        return 4, struct.pack('<I', value)
    if isinstance(value, float):
        return 6, struct.pack('<f', value)
    return 8, struct.pack('<Q', len(value)) + value.encode()


def quantised(kind, rows):
    """The bytes of f32 rows in a storage type."""
    if kind == F32:
        return rows.astype('<f4').tobytes()
    if kind == F16:
        return rows.astype('<f2').tobytes()
    groups = rows.reshape(-1, 32)
    if kind == Q8_0:
        scale = (numpy.abs(groups).max(1, keepdims=True) / 127).astype('<f2')
        values = numpy.rint(groups / numpy.maximum(scale.astype('f4'), 1e-30)).clip(-127, 127).astype('i1')
        return numpy.concatenate([scale.view('u1'), values.view('u1')], 1).tobytes()
    largest = numpy.take_along_axis(groups, numpy.abs(groups).argmax(1)[:, None], 1)
    scale = (largest / -8).astype('<f2')
    safe = numpy.where(scale == 0, 1, scale.astype('f4'))
    values = (numpy.rint(groups / safe).clip(-8, 7) + 8).astype('u1')
    return numpy.concatenate([scale.view('u1'), values[:, :16] | values[:, 16:] << 4], 1).tobytes()


def write_gguf(path, shape, kind):
    """A looped Nanbeige model with random weights, the same for each type but for its rounding."""
    dim, ffn, heads, layers, loops, vocab = (shape[k] for k in ('dim', 'ffn', 'heads', 'layers', 'loops', 'vocab'))
    arch = 'nanbeige'
    metadata = {'general.architecture': arch, f'{arch}.block_count': layers, f'{arch}.context_length': CONTEXT,
                f'{arch}.embedding_length': dim, f'{arch}.feed_forward_length': ffn, f'{arch}.attention.head_count': heads,
                f'{arch}.attention.head_count_kv': heads, f'{arch}.attention.key_length': dim // heads,
                f'{arch}.attention.value_length': dim // heads, f'{arch}.rope.dimension_count': dim // heads,
                f'{arch}.attention.layer_norm_rms_epsilon': 1e-5, f'{arch}.rope.freq_base': 10000.0,
                f'{arch}.vocab_size': vocab, f'{arch}.num_loops': loops, f'{arch}.skip_loop_final_norm': False,
                'tokenizer.ggml.model': 'no_vocab'}
    tensors = [('token_embd.weight', vocab, dim), ('output.weight', vocab, dim), ('output_norm.weight', 1, dim)]
    for i in range(layers):
        tensors += [(f'blk.{i}.{name}.weight', rows, columns) for name, rows, columns in
                    (('attn_norm', 1, dim), ('attn_q', dim, dim), ('attn_k', dim, dim), ('attn_v', dim, dim),
                     ('attn_output', dim, dim), ('ffn_norm', 1, dim), ('ffn_gate', ffn, dim), ('ffn_up', ffn, dim),
                     ('ffn_down', dim, ffn))]
    bytes_of = {F32: lambda n: 4 * n, F16: lambda n: 2 * n, Q8_0: lambda n: n // 32 * 34, Q4_0: lambda n: n // 32 * 18}
    head = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        number, data = pack(value)
        head += struct.pack('<Q', len(key)) + key.encode() + struct.pack('<I', number) + data
    offset = 0
    for name, rows, columns in tensors:
        own = F32 if rows == 1 else kind
        sizes = (columns,) if rows == 1 else (columns, rows)
        head += struct.pack('<Q', len(name)) + name.encode()
        head += struct.pack(f'<I{len(sizes)}QIQ', len(sizes), *sizes, own, offset)
        offset += -(-bytes_of[own](rows * columns) // 32) * 32
    random = numpy.random.default_rng(1)
    with open(path + '.part', 'wb') as file:
        file.write(head + bytes(-len(head) % 32))
        for name, rows, columns in tensors:
            if rows == 1:
                data = quantised(F32, numpy.ones((1, columns), 'f4'))
            else:
                scale = 1.0 if name == 'token_embd.weight' else columns ** -0.5
                data = quantised(kind, random.standard_normal((rows, columns), 'f4') * scale)
            file.write(data + bytes(-len(data) % 32))
    os.replace(path + '.part', path)


class Tinyloop:
    """One model file and the tools."""

    def __init__(self, tools, model, threads):
        self.tools, self.model, self.threads = tools, model, threads

    def run(self, tool, *options, text):
        command = [f'{self.tools}/{tool}', '-m', self.model, '--threads', str(self.threads), *options]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f'{" ".join(command)}: {done.stderr}')
        return done

    def generate(self, ids, count, *options):
        """The new ids and the statistics."""
        done = self.run('tl-generate', '--temperature', '0', '-n', str(count), '--ignore-eos', '--only-new', '--stats',
                        *options, text=' '.join(map(str, ids)) + '\n')
        lines = [line for line in done.stderr.splitlines() if line.startswith('{')]
        return [int(word) for word in done.stdout.split()], json.loads(lines[0])

    def decode(self, ids, count):
        return self.generate(ids, count)[1]['tokens_per_second']

    def prefill(self, ids):
        return 1000 * len(ids) / self.generate(ids, 1)[1]['prefill_ms']

    def batch(self, prompts, count):
        text = ''.join(' '.join(map(str, ids)) + '\n' for ids in prompts)
        done = self.run('tl-batch', '--temperature', '0', '-n', str(count), '--ignore-eos', '--lanes', '16', '--stats',
                        text=text)
        summary = json.loads([line for line in done.stderr.splitlines() if '"summary"' in line][0])['summary']
        return summary['tokens_per_second']

    def start(self, ids, *options):
        begin = time.perf_counter()
        self.generate(ids, 1, *options)
        return time.perf_counter() - begin


class Peer:
    """The same through llama-cpp-python."""

    def __init__(self, model, threads):
        self.path, self.threads = model, threads
        self.llama = self.load()

    def load(self, sequences=1):
        llama = Llama(self.path, n_ctx=CONTEXT, n_threads=self.threads, n_threads_batch=self.threads, n_batch=512, n_ubatch=512,
                      verbose=False)
        return llama

    def best(self):
        logits = llama_cpp.llama_get_logits_ith(self.llama.ctx, -1)
        return int(numpy.ctypeslib.as_array(logits, (self.llama.n_vocab(),)).argmax())

    def greedy(self, ids, count):
        self.llama.reset()
        self.llama.eval(ids)
        answer = [self.best()]
        while len(answer) < count:
            self.llama.eval([answer[-1]])
            answer.append(self.best())
        return answer

    def decode(self, ids, count):
        self.llama.reset()
        self.llama.eval(ids)
        newest = self.best()
        begin = time.perf_counter()
        for _ in range(count - 1):
            self.llama.eval([newest])
            newest = self.best()
        return (count - 1) / (time.perf_counter() - begin)

    def prefill(self, ids):
        self.llama.reset()
        begin = time.perf_counter()
        self.llama.eval(ids)
        self.best()
        return len(ids) / (time.perf_counter() - begin)

    def batch(self, prompts, count):
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = CONTEXT, 512, 512, len(prompts)
        params.n_threads = params.n_threads_batch = self.threads
        context = llama_cpp.llama_init_from_model(self.llama.model, params)
        batch = llama_cpp.llama_batch_init(512, 0, 1)
        vocab = self.llama.n_vocab()

        def add(rows):
            batch.n_tokens = len(rows)
            for i, (token, position, sequence, wanted) in enumerate(rows):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
                batch.seq_id[i][0] = sequence
            if llama_cpp.llama_decode(context, batch) != 0:
                sys.exit('llama_decode failed')

        def best(row):
            return int(numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, row), (vocab,)).argmax())

        begin = time.perf_counter()
        rows = [(token, p, s, p + 1 == len(ids)) for s, ids in enumerate(prompts) for p, token in enumerate(ids)]
        add(rows)
        newest = [best(i) for i, row in enumerate(rows) if row[3]]
        for step in range(count - 1):
            add([(token, len(prompts[s]) + step, s, True) for s, token in enumerate(newest)])
            newest = [best(s) for s in range(len(prompts))]
        seconds = time.perf_counter() - begin
        llama_cpp.llama_batch_free(batch)
        llama_cpp.llama_free(context)
        return len(prompts) * count / seconds

    def start(self, ids):
        begin = time.perf_counter()
        self.llama = self.load()
        self.llama.eval(ids)
        self.best()
        return time.perf_counter() - begin

    def store(self, ids, path):
        self.llama.reset()
        self.llama.eval(ids)
        tokens = (llama_cpp.llama_token * len(ids))(*ids)
        llama_cpp.llama_state_seq_save_file(self.llama.ctx, path.encode(), 0, tokens, len(ids))

    def from_store(self, path, newest, position):
        begin = time.perf_counter()
        self.llama = self.load()
        tokens, count = (llama_cpp.llama_token * CONTEXT)(), ctypes.c_size_t()
        llama_cpp.llama_state_seq_load_file(self.llama.ctx, path.encode(), 0, tokens, CONTEXT, ctypes.byref(count))
        self.llama.n_tokens = position
        self.llama.eval([newest])
        self.best()
        return time.perf_counter() - begin


def busy_share(seconds=1.0):
    """What other processes take of the machine now."""
    def read():
        words = [int(word) for word in open('/proc/stat').readline().split()[1:9]]
        return sum(words), words[3] + words[4]
    total, idle = read()
    time.sleep(seconds)
    later, later_idle = read()
    return 1 - (later_idle - idle) / max(1, later - total)


def by_turns(repeats, ours, theirs):
    """Medians of two measurements that alternate."""
    pairs = [(ours(), theirs()) for _ in range(repeats)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def main():
    parser = argparse.ArgumentParser(description='Times tinyloop and llama.cpp by turns.')
    parser.add_argument('--tools', required=True)
    parser.add_argument('--folder', required=True, help='for model files')
    parser.add_argument('--shape', required=True)
    parser.add_argument('--repeats', type=int, default=5)
    options = parser.parse_args()
    shape = {'dim': 768, 'ffn': 2048, 'heads': 12, 'layers': 12, 'loops': 4, 'vocab': 32000}
    for part in options.shape.split(','):
        key, _, value = part.partition('=')
        if key not in shape or not value.isdigit():
            sys.exit(f'--shape: {part} is not one of {", ".join(shape)} with a number')
        shape[key] = int(value)
    busy = busy_share()
    if busy > 0.05:
        print(f'warning: other processes take {100 * busy:.0f} % of the machine; the figures are not to be trusted',
              file=sys.stderr)
    print(f'llama-cpp-python {llama_cpp.__version__}; {options.shape}; tokens/s or seconds, medians of {options.repeats}')
    print(f'{"":<34} {"llama.cpp":>10} {"tinyloop":>10} {"ratio":>7}')
    random = numpy.random.default_rng(2)
    ids = [int(i) for i in random.integers(3, shape['vocab'], 1025)]
    threads = sorted({1, len(os.sched_getaffinity(0))})
    name = options.folder + '/' + '-'.join(f'{key}{value}' for key, value in shape.items())

    def row(label, ours, theirs, seconds=False):
        mine, other = by_turns(options.repeats, ours, theirs)
        ratio = other / mine if seconds else mine / other
        print(f'{label:<34} {other:>10.3g} {mine:>10.3g} {ratio:>7.2f}', flush=True)

    for label, kind, dtype in (('f16', F16, 'keep'), ('q8', Q8_0, 'keep'), ('q4', Q4_0, 'q4')):
        gguf, model = f'{name}-{label}.gguf', f'{name}-{label}.tinyloop'
        if not os.path.exists(gguf):
            write_gguf(gguf, shape, kind)
        source = gguf
        if dtype != 'keep':  # of weights that were not rounded before
            source = f'{name}-f16.gguf'
        subprocess.run([f'{options.tools}/tl-convert', '-q', '--dtype', dtype, source, model], check=True,
                       stdout=subprocess.DEVNULL)
        for count in threads:
            ours, theirs = Tinyloop(options.tools, model, count), Peer(gguf, count)
            if label != 'q4' and count == threads[0]:
                mine, other = ours.generate(ids[:16], 24)[0], theirs.greedy(ids[:16], 24)
                same = next((i for i, (a, b) in enumerate(zip(mine, other)) if a != b), len(mine))
                print(f'{label}: the first {same} of {len(mine)} greedy ids are equal')
                if same == 0:
                    sys.exit(f'{label}: the two do not compute the same model')
            what = f'{label}, {count} thread{"s" if count > 1 else ""}'
            row(f'{what}: decode', lambda: ours.decode(ids[:16], 48), lambda: theirs.decode(ids[:16], 48))
            row(f'{what}: prefill 512', lambda: ours.prefill(ids[:512]), lambda: theirs.prefill(ids[:512]))
            if count != threads[-1]:
                continue
            prompts = [ids[4 * i:4 * i + 4] for i in range(16)]
            row(f'{what}: batch of 16', lambda: ours.batch(prompts, 32), lambda: theirs.batch(prompts, 32))
            row(f'{what}: start to first id, s', lambda: ours.start(ids[:16]), lambda: theirs.start(ids[:16]), True)
            pool, state = f'{name}-{label}.pool', f'{name}-{label}.state'
            ours.run('tl-pool-register', '--pool', pool, text=' '.join(map(str, ids[:1024])) + '\n')
            theirs.store(ids[:1024], state)
            row(f'{what}: stored 1024 ids, s', lambda: ours.start(ids, '--pool', pool),
                lambda: theirs.from_store(state, ids[1024], 1024), True)


if __name__ == '__main__':
    main()
