#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the output of tl-bench-speed --json with tinyloop's speed targets.

Usage: bench_speed_lines.py FOLDER. Reads weights.json (types f32, f16, q8, q4), attention.json (all
--kv modes), growth.json and start.json (see bench_speed.sh), each if it exists, and prints one line
per target: the figure, the target, and whether it holds. Runs nothing.
"""

import json
import pathlib
import sys

MODES = ('f32', 'f16', 'int8', 'int4')


def rows_of(block, **wanted):
    return [row for row in block['rows'] if all(row[key] == value for key, value in wanted.items())]


def row_of(block, **wanted):
    found = rows_of(block, **wanted)
    return found[0] if found else None


def per_ms(block, limit):
    return next(l['per_second'] for l in block['limits'] if l['limit'] == limit) / 1000


def read_ms(block, row):
    return (row['weight_bytes'] + row['kv_bytes']) / per_ms(block, 'memory')


def threads(block):
    return f"{block['threads']} thread{'' if block['threads'] == 1 else 's'}"


def at_least(what, figure, target, form='{:.0%}', judged=True):
    verdict = ('holds' if figure >= target else 'misses') if judged else 'in the cache'
    return what, form.format(figure), 'at least ' + form.format(target), verdict


def at_most(what, figure, target, form='{:.2f} x', judged=True):
    verdict = ('holds' if figure <= target else 'misses') if judged else 'in the cache'
    return what, form.format(figure), 'at most ' + form.format(target), verdict


def weight_lines(report):
    """Decode and prefill of each type; a pass of 6 rows against one of 1."""
    shares = {'f16': 0.85, 'q8': 0.80, 'q4': 0.75}
    blocks = {(block['weights'], block['threads']): block for block in report['blocks']}
    for (weights, count), block in blocks.items():
        # Weights that partly fit in the cache are read faster than memory allows, so they are not judged.
        beyond = block['weight_bytes'] > 4 * report['last_level_cache_bytes']
        decode = row_of(block, part='decode', context=0)
        if weights in shares and decode:
            yield at_least(f'{weights} decode, {threads(block)}, of read bandwidth',
                           read_ms(block, decode) / decode['ms'], shares[weights], judged=beyond)
    for (weights, count), block in blocks.items():
        prefill = row_of(block, part='prefill', rows=512)
        if not prefill:
            continue
        if weights in ('f16', 'f32'):
            yield at_least(f'{weights} prefill of 512, {threads(block)}, of the multiply-add peak',
                           prefill['float_ops'] / per_ms(block, 'floats') / prefill['ms'], 0.75)
        f16 = blocks.get(('f16', count))
        f16 = f16 and row_of(f16, part='prefill', rows=512)
        if weights in ('q8', 'q4') and f16:
            yield at_least(f'{weights} prefill of 512, {threads(block)}, over f16',
                           f16['ms'] / prefill['ms'], 1.5 if weights == 'q8' else 1.0, '{:.2f} x')
    for (weights, count), block in blocks.items():
        beyond = block['weight_bytes'] > 4 * report['last_level_cache_bytes']
        one, six = (row_of(block, part='passes', rows=rows) for rows in (1, 6))
        if count == 2 and one and six:
            yield at_most(f'{weights} pass of 6 rows over one of 1, {threads(block)}',
                          six['ms'] / one['ms'], 1.3, judged=beyond)


def attention_lines(report):
    """What a context adds to a decode step, against reading its keys and values once."""
    for block in report['blocks']:
        for mode in MODES:
            none = row_of(block, part='decode', kv=mode, context=0)
            for row in rows_of(block, part='decode', kv=mode):
                if not none or row['context'] == 0:
                    continue
                once = (row['kv_bytes'] - none['kv_bytes']) / per_ms(block, 'memory')
                yield at_most(f"attention at {row['context']}, {mode}, {threads(block)}, over one reading",
                              (row['ms'] - none['ms']) / once, 2.0)


def growth_lines(report):
    """The deviation of the middle figures from a straight line through the outer ones."""
    for block in report['blocks']:
        rows = rows_of(block, part='growth')
        for key, other in (('loops', 'context'), ('context', 'loops')):
            worst = None
            for fixed in {row[other] for row in rows}:
                line = sorted((row[key], row['ms']) for row in rows if row[other] == fixed)
                if len(line) < 3:
                    continue
                (x0, y0), (x1, y1) = line[0], line[-1]
                worst = max([worst or 0.0] + [abs(y / (y0 + (y1 - y0) * (x - x0) / (x1 - x0)) - 1)
                                       for x, y in line[1:-1]])
            if worst is not None:
                yield at_most(f'decode over {key}, {threads(block)}, off a straight line', worst, 0.10, '{:.0%}')


def start_lines(report):
    for start in report:
        allowed = 20 + 60 * start['file_bytes'] / 1e9
        yield at_most(f"process start to first id, {threads(start)}, over a decode step",
                      start['wall_ms'] - start['step_ms'], allowed, '{:.0f} ms')
        extra = start['peak_bytes'] - start['file_bytes']
        yield (f"peak memory beyond the mapped weights, {threads(start)}", f'{extra / 1e6:.0f} MB',
               f"{(start['working_bytes'] + start['cache_bytes']) / 1e6:.0f} MB of states, keys, values", '')


def limit_lines(reports):
    for block in (block for report in reports for block in report['blocks']):
        gb = {limit['limit']: limit['per_second'] / 1e9 for limit in block['limits']}
        spread = max(limit['ms_greatest'] / limit['ms_least'] for limit in block['limits'])
        pattern = next(limit['pattern'] for limit in block['limits'] if limit['limit'] == 'memory')
        yield (f"{block['device']}, {block['weights']}: memory {gb['memory']:.1f} GB/s ({pattern}), cache "
               f"{gb['cache']:.0f} GB/s, floats {gb['floats']:.0f} Gop/s, int8 {gb['int8']:.0f} Gop/s; "
               f"max over min of a limit's samples {spread:.1f}")


def main(folder):
    folder = pathlib.Path(folder)
    makers = {'weights': weight_lines, 'attention': attention_lines, 'growth': growth_lines, 'start': start_lines}
    reports = {name: json.loads((folder / f'{name}.json').read_text())
               for name in makers if (folder / f'{name}.json').exists()}
    for line in limit_lines(report for name, report in reports.items() if name != 'start'):
        print(line)
    print()
    lines = [line for name, report in reports.items() for line in makers[name](report)]
    for line in lines:
        print('{:<58} {:>8}   {:<38} {}'.format(*line).rstrip())
    verdicts = [line[3] for line in lines]
    print(f"\n{verdicts.count('holds')} hold, {verdicts.count('misses')} miss")


if __name__ == '__main__':
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
