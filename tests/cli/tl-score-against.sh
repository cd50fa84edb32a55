# SPDX-License-Identifier: Apache-2.0
# --against: divergence and agreement are those of the logits that both runs write; chunks and threads change nothing.
. "$EXPECT"
model=$MODELS/m.tinyloop
printf '3 1 4 15 9 2 6 5 3 5\n7\n8 8 8 1\n' >prompts

score() { tl-score -m "$MODELS/m-q8.tinyloop" --kv int4 "$@" prompts; }
score --against "$model" --loops 1,4 >scores
for loops in 1 4; do
  score --loops $loops --logits q$loops.npy >own$loops
  tl-score -m "$model" --kv f32 --loops $loops --logits p$loops.npy prompts >other
done
python3 - <<'END'
import math, re, struct

def rows_of(name):
    data = open(name, 'rb').read()
    size = int.from_bytes(data[8:10], 'little')
    rows, vocab = map(int, re.search(r'\((\d+), (\d+)\)', data[10:10 + size].decode()).groups())
    values = struct.unpack(f'<{rows * vocab}f', data[10 + size:])
    return [values[i * vocab:(i + 1) * vocab] for i in range(rows)]

def logs_of(row):
    total = math.log(math.fsum(math.exp(x) for x in row))
    return [x - total for x in row]

lines = [line.rstrip('\n').split('\t') for line in open('scores')]
assert len(lines) == 6
for loops in 1, 4:
    p, q = rows_of(f'p{loops}.npy'), rows_of(f'q{loops}.npy')
    own = [line.rstrip('\n').split('\t') for line in open(f'own{loops}')]
    first = 0
    for number, length in enumerate([10, 1, 4]):
        line = lines[2 * number + (loops == 4)]
        assert line[:5] == own[number], (line, own[number])
        pairs = list(zip(p[first:first + length], q[first:first + length]))
        first += length
        divergence = math.fsum(math.exp(a) * (a - b) for x, y in pairs for a, b in zip(logs_of(x), logs_of(y)))
        same = sum(x.index(max(x)) == y.index(max(y)) for x, y in pairs)
        assert abs(float(line[5]) * length - divergence) < 1e-10 + 1e-6 * divergence, (line, divergence / length)
        assert abs(float(line[6]) - same / length) < 1e-8, (line, same)
        assert divergence > 1e-9 or length == 1, line
END
score --against "$model" --loops 1,4 --threads 3 --prefill-chunk 3 >other
same scores other
score --against "$model" --loops 1,4 --per-token >long
cut -f 1-7 long >other
same scores other
[ "$(head -n 1 long | cut -f 8 | wc -w)" -eq 9 ] || fail 'the log-probabilities are not the last field'
score --against "$model" --loops 1,4 --jsonl --input-format text >records
python3 - <<'END'
import json
for record, line in zip(map(json.loads, open('records')), open('scores')):
    fields = line.split('\t')
    assert list(record) == ['line', 'loops', 'tokens', 'sum', 'perplexity', 'divergence', 'same_best'], record
    assert abs(record['divergence'] - float(fields[5])) <= 1e-7 * record['divergence'], (record, line)
    assert abs(record['same_best'] - float(fields[6])) < 1e-7, (record, line)
END

# A model against itself: nothing lies between them but how keys and values are stored.
tl-score -m "$model" --kv f32 --against "$model" prompts | cut -f 6,7 | sort -u >fields
printf '0\t1\n' >wanted
same wanted fields
TINYLOOP_KV_INT8=1 tl-score -m "$model" --against "$model" prompts >rounded
[ "$(head -n 1 rounded | cut -f 6)" != 0 ] || fail 'keys and values in eight bits changed nothing'

refused 2 "--against $MODELS/odd.tinyloop: has 71 ids, the model 64" tl-score -m "$model" --against "$MODELS/odd.tinyloop" prompts
refused 1 missing tl-score -m "$model" --against missing prompts
cp "$model" kept
refused 2 '--output kept' tl-score -m "$model" --against kept -o kept prompts
same "$model" kept
