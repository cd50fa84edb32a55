# SPDX-License-Identifier: Apache-2.0
# Records are in the order of the input whatever is done first; --unordered and priorities show what was. Too little memory
# for a job is that job's error; --timings and statistics have what the manual says.
. "$EXPECT"
model=$MODELS/m.tinyloop
python3 - >jobs <<'END'
for i in range(40): print('{"tokens":[%d],"id":%d,"max_tokens":%d,"priority":%d,"seed":1}' % (i % 64, i, 40 if i % 4 == 0 else 1, i))
END
batch=(tl-batch -m "$model" --jsonl --ignore-eos)
ids() { grep -o '"id":[0-9]*' "$1" | cut -d : -f 2 | paste -s -d ' '; }
"${batch[@]}" --lanes 4 jobs >ordered
[ "$(ids ordered)" = "$(seq -s ' ' 0 39)" ] || fail "$(ids ordered)"
# One lane: the greatest priority first.
"${batch[@]}" --lanes 1 --unordered jobs >unordered
[ "$(ids unordered)" = "$(seq -s ' ' 39 -1 0)" ] || fail "$(ids unordered)"
"${batch[@]}" --lanes 4 --unordered -o unordered jobs
[ "$(ids unordered)" != "$(seq -s ' ' 0 39)" ] || fail 'nothing was out of order'
sort -t : -k 2 -n unordered >sorted
same ordered sorted

# Statistics come as jobs end, each with its line, and the summary last.
"${batch[@]}" --lanes 4 --stats=stats jobs >/dev/null
python3 - <<'END'
import json
*lines, summary = [json.loads(line) for line in open('stats')]
assert sorted(line['line'] for line in lines) == list(range(1, 41))
assert [line['line'] for line in lines] != list(range(1, 41))
assert list(lines[0]) == ['line', 'id', 'prompt', 'prefilled', 'reused', 'shared', 'generated', 'loops_run', 'prompt_loops',
                          'queue_ms', 'prefill_ms', 'first_token_ms', 'decode_ms', 'stop_reason', 'seed', 'logits_hash'], lines[0]
summary = summary['summary']
assert list(summary) == ['jobs', 'errors', 'earlier', 'prefilled', 'reused', 'shared', 'generated', 'seconds', 'tokens_per_second',
                         'lanes', 'lane_occupancy', 'passes', 'rows_per_pass', 'tokens_per_pass', 'pool_hits',
                         'pool_misses', 'peak_resident_bytes'], summary
assert summary['generated'] == 430 and summary['lanes'] == 4 and 0 < summary['lane_occupancy'] <= 1, summary
assert 1 <= summary['rows_per_pass'] and summary['tokens_per_pass'] == round(430 / summary['passes'], 3), summary
END
# The hash of the logits is tl-generate's.
hashes() { grep -o '"logits_hash":"[0-9a-f]*"' "$1" | sort; }
hashes stats >got
sed 's/,"priority":[0-9]*//' jobs | tl-generate -m "$model" --jsonl --ignore-eos --stats=stats >/dev/null
hashes stats >wanted
same wanted got

"${batch[@]}" --timings jobs >timed
python3 - <<'END'
import json
for timed, plain in zip(open('timed'), open('ordered')):
    timed, plain = json.loads(timed), json.loads(plain)
    assert list(timed)[len(plain):] == ['queue_ms', 'prefill_ms', 'first_token_ms', 'decode_ms', 'prefilled', 'reused', 'shared']
    assert {key: timed[key] for key in plain} == plain
END

# Room for two at a time; for none.
"${batch[@]}" --lanes auto --memory 512K jobs >few
same ordered few
ends 3 "${batch[@]}" --memory 1K jobs
[ "$(grep -c '"error":"jobs:[0-9]*: .* 1024 of --memory for all lanes"' out)" -eq 40 ] || fail "$(head -n 1 out)"
