# SPDX-License-Identifier: Apache-2.0
# One line a sequence and loop count, in order; the JSON form says the same; chunks and threads change nothing.
. "$EXPECT"
model=$MODELS/m.tinyloop
printf '3 1 4 15 9 2\n7\n8 8 8\n' >prompts

tl-score -m "$model" --loops 1,2,4 prompts >scores
cut -f 1-3 scores >columns
printf '%s\t%s\t%s\n' 1 1 5 1 2 5 1 4 5 2 1 0 2 2 0 2 4 0 3 1 2 3 2 2 3 4 2 >wanted
same wanted columns
# A sequence of one id has nothing to score.
[ "$(grep -c -P '^2\t.\t0\t-?0\t-$' scores)" -eq 3 ] || fail "a single id: $(cat scores)"
for loops in 1 2 4; do tl-score -m "$model" --loops $loops prompts >one && grep -P "^\d\t$loops\t" scores >some && same some one; done
tl-score -m "$model" prompts >own
grep -P '^\d\t4\t' scores >four
same four own
tl-score -m "$model" --loops 1,2,4 <prompts >other
same scores other
tl-score -m "$model" --loops 1,2,4 -o written prompts
same scores written

tl-score -m "$model" --loops 1,2,4 --per-token prompts >plain
tl-score -m "$model" --loops 1,2,4 --per-token --threads 3 --prefill-chunk 2 --isa portable prompts >other
same plain other
cut -f 1-5 plain >other
same scores other

tl-score -m "$model" --loops 1,2,4 --per-token --jsonl --input-format text prompts >records
python3 - <<'END'
import json
records = [json.loads(line) for line in open('records')]
lines = [line.rstrip('\n').split('\t') for line in open('plain')]
assert len(records) == len(lines) == 9
for record, line in zip(records, lines):
    assert list(record) == ['line', 'loops', 'tokens', 'sum', 'perplexity', 'log_probabilities'], record
    assert [str(record[key]) for key in ('line', 'loops', 'tokens')] == line[:3]
    assert abs(record['sum'] - float(line[3])) < 1e-6
    if record['tokens'] == 0:
        assert record['perplexity'] is None and line[4] == '-', record
    else:
        assert abs(record['perplexity'] / float(line[4]) - 1) < 1e-6
    assert len(record['log_probabilities']) == record['tokens']
END
echo '{"id":"x","tokens":[3,1,4,15,9,2]}' | tl-score -m "$model" --jsonl >record
[ "$(value id record)" = x ] || fail 'the id is not echoed'
