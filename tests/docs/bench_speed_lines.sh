#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What scripts/bench_speed_lines.py makes of figures that are known: a machine that reads 10 GB and does 100 Gop a second.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 - "$folder" <<'END_OF_FIGURES'
import json, sys
folder = sys.argv[1]
limits = [{'limit': name, 'per_second': value, 'ms_least': 1.0, 'ms_greatest': 2.0, 'pattern': f'by {name}'}
          for name, value in (('memory', 10e9), ('cache', 50e9), ('floats', 100e9), ('int8', 300e9))]

def row(part, ms, weights=0, kv_bytes=0, ops=0, rows=1, context=0, kv='f16', loops=1):
    return {'part': part, 'ms': ms, 'weight_bytes': weights, 'kv_bytes': kv_bytes, 'float_ops': ops, 'int8_ops': 0,
            'rows': rows, 'context': context, 'kv': kv, 'loops': loops}

def block(weights, threads, rows, weight_bytes=200_000_000):
    return {'device': 'cpu', 'weights': weights, 'threads': threads, 'weight_bytes': weight_bytes, 'limits': limits, 'rows': rows}

def write(name, report):
    json.dump(report, open(f'{folder}/{name}.json', 'w'))

cache = {'last_level_cache_bytes': 32_000_000}
weights = [
    # 200 MB at 10 GB/s are 20 ms; 8 Gop are 80 ms of the peak.
    block('f16', 1, [row('decode', 23.0, 190_000_000, 10_000_000), row('prefill', 100.0, ops=8e9, rows=512)]),
    block('f16', 2, [row('decode', 24.0, 200_000_000), row('prefill', 120.0, ops=8e9, rows=512),
                     row('passes', 10.0, rows=1), row('passes', 12.9, rows=6)]),
    block('q8', 2, [row('decode', 24.0, 200_000_000), row('prefill', 81.0, rows=512),
                    row('passes', 10.0, rows=1), row('passes', 13.1, rows=6)]),
    block('q4', 2, [row('decode', 25.0, 200_000_000), row('prefill', 119.0, rows=512)]),
    block('f32', 1, [row('prefill', 110.0, ops=8e9, rows=512)]),
    block('q4', 1, [row('decode', 100.0, 100_000_000)], weight_bytes=100_000_000),
]
write('weights', {**cache, 'blocks': weights})
# 30 MB of keys and values are 3 ms.
write('attention', {**cache, 'blocks': [block('q4', 1, [
    row('decode', 10.0, kv_bytes=1000, kv='int8'), row('decode', 15.9, kv_bytes=30_001_000, kv='int8', context=1024),
    row('decode', 10.0, kv_bytes=1000, kv='f32'), row('decode', 16.2, kv_bytes=30_001_000, kv='f32', context=4096)])]})
write('growth', {**cache, 'blocks': [block('q8', 2, [
    row('growth', ms, loops=loops, context=context)
    for loops, context, ms in ((1, 0, 10), (2, 0, 20), (8, 0, 80), (1, 64, 11), (2, 64, 26), (8, 64, 81))])]})
write('start', [{'threads': 2, 'wall_ms': 70.0, 'step_ms': 20.0, 'file_bytes': 500_000_000, 'peak_bytes': 530_000_000,
                 'working_bytes': 4_000_000, 'cache_bytes': 5_000_000},
                {'threads': 1, 'wall_ms': 71.0, 'step_ms': 20.0, 'file_bytes': 500_000_000, 'peak_bytes': 530_000_000,
                 'working_bytes': 4_000_000, 'cache_bytes': 5_000_000}])
END_OF_FIGURES

cat >"$folder/expected" <<'END_OF_LINES'
f16 decode, 1 thread, of read bandwidth | 87% | at least 85% | holds
f16 decode, 2 threads, of read bandwidth | 83% | at least 85% | misses
q8 decode, 2 threads, of read bandwidth | 83% | at least 80% | holds
q4 decode, 2 threads, of read bandwidth | 80% | at least 75% | holds
q4 decode, 1 thread, of read bandwidth | 10% | at least 75% | in the cache
f16 prefill of 512, 1 thread, of the multiply-add peak | 80% | at least 75% | holds
f16 prefill of 512, 2 threads, of the multiply-add peak | 67% | at least 75% | misses
q8 prefill of 512, 2 threads, over f16 | 1.48 x | at least 1.50 x | misses
q4 prefill of 512, 2 threads, over f16 | 1.01 x | at least 1.00 x | holds
f32 prefill of 512, 1 thread, of the multiply-add peak | 73% | at least 75% | misses
f16 pass of 6 rows over one of 1, 2 threads | 1.29 x | at most 1.30 x | holds
q8 pass of 6 rows over one of 1, 2 threads | 1.31 x | at most 1.30 x | misses
attention at 4096, f32, 1 thread, over one reading | 2.07 x | at most 2.00 x | misses
attention at 1024, int8, 1 thread, over one reading | 1.97 x | at most 2.00 x | holds
decode over loops, 2 threads, off a straight line | 24% | at most 10% | misses
process start to first id, 2 threads, over a decode step | 50 ms | at most 50 ms | holds
peak memory beyond the mapped weights, 2 threads | 30 MB | 9 MB of states, keys, values |
process start to first id, 1 thread, over a decode step | 51 ms | at most 50 ms | misses
peak memory beyond the mapped weights, 1 thread | 30 MB | 9 MB of states, keys, values |

8 hold, 8 miss
END_OF_LINES
python3 "$1/scripts/bench_speed_lines.py" "$folder" >"$folder/said"
grep -q 'memory 10.0 GB/s (by memory), ' "$folder/said" || { cat "$folder/said"; exit 1; }
sed '1,/^$/d; s/   */ | /g' "$folder/said" | sed 's/ | $//' >"$folder/lines"
diff <(sed 's/ |$//' "$folder/expected") "$folder/lines"
