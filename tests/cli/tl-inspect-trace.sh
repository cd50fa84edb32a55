# SPDX-License-Identifier: Apache-2.0
# --trace: loop by loop; after the last loop the best id is the one that is generated, with the probability of tl-score.
. "$EXPECT"
for name in m ouro huginn llama; do
  model=$MODELS/$name.tinyloop
  echo '3 1 4 15' >prompts
  tl-inspect -m "$model" --trace --json prompts >trace
  tl-generate -m "$model" -n 1 --temperature 0 --ignore-eos prompts >stream
  tl-score -m "$model" --per-token --jsonl --input-format text stream >score
  python3 - $name <<'END'
import json, math, sys

line = json.loads(open('trace').read())
assert list(line) == ['line', 'ids', 'trace'] and line['line'] == 1 and line['ids'] == 4, line
rows = line['trace']
best = int(open('stream').read().split()[-1])
probability = math.exp(json.loads(open('score').readline())['log_probabilities'][-1])
assert [row['loop'] for row in rows] == list(range(1, len(rows) + 1))
for row in rows:
    keys = ['loop', 'best', 'probability', 'entropy', 'relative_change', 'update_ratio']
    assert list(row) == keys + (['gate'] if sys.argv[1] in ('m', 'ouro') else []), row
    assert 0 < row.get('gate', 0.5) < 1 and row['relative_change'] > 0, row
    assert 0 < row['probability'] <= 1 and 0 <= row['entropy'] <= math.log(64)
# The ratios are those of the moves, which relative_change gives up to the size of the states.
assert rows[0]['update_ratio'] is None and all(row['update_ratio'] > 0 for row in rows[1:])
assert rows[-1]['best'] == best, (rows[-1], best)
assert abs(rows[-1]['probability'] - probability) < 1e-6, (rows[-1], probability)
END
  tl-inspect -m "$model" --trace prompts >table
  tl-inspect -m "$model" --trace <prompts >other
  same table other
  tl-inspect -m "$model" --trace --threads 3 --isa portable prompts >other
  same table other
done
tl-inspect -m "$MODELS/m.tinyloop" --trace --json --loops 2 prompts >two
tl-inspect -m "$MODELS/m.tinyloop" --trace --json --loops 3 prompts >three
differ two three
echo x >prompts
refused 2 prompts:1:1 tl-inspect -m "$MODELS/m.tinyloop" --trace prompts
# What only computing would obey is refused without it; the environment's defaults are not.
for option in '--threads 1' '--backend cpu' '--backend cuda' '--gpu-memory 1G' '--isa portable' '--kv f16' '--init-state zero' '--prefill-chunk 1' '--input-format text'; do
  # shellcheck disable=SC2086 # two words
  refused 2 "${option% *} needs --trace" tl-inspect -m "$MODELS/m.tinyloop" $option
done
TL_BACKEND=cuda TL_THREADS=1 TL_CPU_ISA=portable TINYLOOP_KV_H_MODE=h8 ends 0 tl-inspect -m "$MODELS/m.tinyloop"
