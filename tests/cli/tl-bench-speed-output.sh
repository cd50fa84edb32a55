# SPDX-License-Identifier: Apache-2.0
# The three forms of the answer hold what was asked for, with samples counted as asked; nothing is said about how fast.
. "$EXPECT"
shape=dim=32,ffn=48,heads=4,kv-heads=2,layers=2,loops=3,vocab=64
small() { tl-bench-speed --quiet --array 2 --threads 1 --repeats 1 --warm-up 0 "$@"; }

tl-bench-speed -q --array 2 --shape $shape,prelude=1,coda=1 --dtype f16,q8,q4,f32,bf16 --kv f16,int4 --threads 1,2 --repeats 2 --warm-up 1 \
  --loops 1,2 --prefill 1,5 --context 0,20 --rows 1,3 --json >json
python3 - <<'END_OF_CHECK'
import json, re
r = json.load(open('json'))
assert r['model'] is None and r['repeats'] == 2 and r['warm_up'] == 1 and r['array_bytes'] == 2_000_000
assert r['shape'] == {'dim': 32, 'ffn': 48, 'heads': 4, 'kv_heads': 2, 'head_dim': 8, 'prelude': 1, 'layers': 2, 'coda': 1,
                      'loops': 3, 'vocab': 64}
assert [(b['weights'], b['threads']) for b in r['blocks']] == [(w, t) for w in ('f16', 'q8', 'q4', 'f32', 'bf16') for t in (1, 2)]
for block in r['blocks']:
    assert {limit['limit'] for limit in block['limits']} == {'memory', 'cache', 'floats', 'int8'}
    assert block['weight_bytes'] > 0 and block['working_bytes'] > 0 and block['cache_bytes'] > 0 and block['device']
    for limit in block['limits']:
        assert limit['per_second'] > 0 and limit['samples'] >= 2
        what = limit['limit']
        words = 'stream|panels of' if what in ('memory', 'cache') else 'chain'
        assert re.match('[0-9]+ (%s)' % words, limit['pattern']), limit  # which of the ways was the fastest
    cases = [(row['part'], row['loops'], row['kv'], row['rows'], row['context']) for row in block['rows']]
    wanted = [('prefill', l, kv, n, 0) for kv in ('f16', 'int4') for l in (1, 2) for n in (1, 5)]
    wanted += [('decode', l, kv, 1, c) for kv in ('f16', 'int4') for l in (1, 2) for c in (0, 20)]
    wanted += [('passes', 1, kv, n, 0) for kv in ('f16', 'int4') for n in (1, 3)]
    assert sorted(cases) == sorted(wanted), cases
    for row in block['rows']:
        assert row['samples'] == 2 and row['runs'] >= 1
        assert 0 < row['ms_least'] <= row['ms'] <= row['ms_greatest'] and row['limit_ms'] > 0
        assert abs(row['share'] - row['limit_ms'] / row['ms']) < 1e-9
        assert abs(row['tokens_per_second'] * row['ms'] / 1000 - row['rows']) < 1e-6
        assert row['limit'] in ('memory', 'cache', 'floats', 'int8')
        assert (row['int8_ops'] > 0) == (block['weights'] in ('q8', 'q4')) and row['float_ops'] > 0
END_OF_CHECK

# No warm-up: one run a sample, as many samples as repeats.
small --shape $shape --only decode --context 0 --json >json
python3 -c 'import json; row, = json.load(open("json"))["blocks"][0]["rows"]; assert (row["samples"], row["runs"], row["loops"]) == (1, 1, 3), row'
small --shape $shape --only limits --json >json
python3 -c 'import json; b, = json.load(open("json"))["blocks"]; assert b["rows"] == [] and len(b["limits"]) == 4 and all(l["samples"] == 1 and l["runs"] == 1 for l in b["limits"])'
# The budget ends the rounds early, but not before the first.
tl-bench-speed -q --array 2 --threads 1 --repeats 100000 --seconds 0.001 --shape $shape --only decode --context 0 --json >json
python3 -c 'import json; row, = json.load(open("json"))["blocks"][0]["rows"]; assert 1 <= row["samples"] < 1000, row'

# Comma-separated values: the same number of fields in each line, limits first.
small --shape $shape --csv --context 0,40 --prefill 4 --rows 2 >csv
python3 - <<'END_OF_CHECK'
import csv
header, *rows = csv.reader(open('csv'))
assert header == ('part,threads,weights,loops,kv,rows,context,per_second,ms,ms_least,ms_greatest,samples,runs,weight_bytes,kv_bytes,'
                  'float_ops,int8_ops,limit,limit_ms,share,pattern').split(',')
assert all(len(row) == len(header) for row in rows)
assert [row[0] for row in rows] == ['limit'] * 4 + ['prefill', 'decode', 'decode', 'passes']
records = [dict(zip(header, row)) for row in rows]
assert [r['pattern'] != '' for r in records] == [True] * 4 + [False] * 4
assert [r['context'] for r in records[5:7]] == ['0', '40'] and all(float(r['per_second']) > 0 for r in records)
END_OF_CHECK

# A table for people; of a model file, with growth; into a file.
model=$MODELS/ouro.tinyloop
small -m "$model" --only growth --context 0,30 -o table
! LC_ALL=C grep -q -P '[^ -~\n]' table || fail 'the table is not plain text'
[ "$(grep -c '^growth  ' table)" -eq 8 ] || fail 'not 8 rows of growth'
holds table 'milliseconds per token'
grep -q '^memory .* [0-9]* \(stream\|panels\)' table || fail 'the table does not name the pattern that read the fastest'
small -m "$model" --only growth --context 0 --loops 2,3 --json >json
python3 -c 'import json; r = json.load(open("json")); assert r["model"] == "'"$model"'" and [row["loops"] for row in r["blocks"][0]["rows"]] == [2, 3], r'
# A free initial state and a context that is shorter than the usual lists.
small -m "$MODELS/huginn.tinyloop" >table
small -m "$MODELS/m.tinyloop" --json >json
python3 -c 'import json; rows = json.load(open("json"))["blocks"][0]["rows"]; assert max(r["context"] + r["rows"] for r in rows) <= 64 and len(rows) == 10, rows'
