# SPDX-License-Identifier: Apache-2.0
# What the figures of --stats mean, checked by their relations: nothing of it depends on the speed of the machine.
. "$EXPECT"
seq 20 | paste -s -d ' ' >prompts
echo 3 1 4 >>prompts
tl-pool-register -q --pool pool -m "$MODELS/m.tinyloop" --loops 4 prompts >registered
for options in '' '--speculative wavefront:d=1' '--speculative block:d=1,k=3' '--pool pool' '--exit latent:0.5' '-n 1' '-n 0'; do
  # shellcheck disable=SC2086 # several options
  tl-generate -m "$MODELS/m.tinyloop" --seed 1 -n 12 --only-new --loops 4 --stats=stats $options prompts >answers 2>err ||
    tl-generate -m "$MODELS/m.tinyloop" --seed 1 --only-new --loops 4 --stats=stats $options prompts >answers
  python3 - "$options" <<'END'
import json, sys
answers = [line.split() for line in open('answers')]
records = [json.loads(line) for line in open('stats')]
assert len(answers) == len(records) == 2
for answer, s in zip(answers, records):
    where = (sys.argv[1], s)
    assert s['generated'] == len(answer), where  # no end id here
    if s['generated'] > 0:
        assert s['prefilled'] + s['reused'] == s['prompt'], where
        assert s['first_token_ms'] >= s['prefill_ms'] >= 0, where
    assert s['prompt_loops'] == 4 * s['prefilled'], where
    assert s['accepted'] + s['undrafted'] == s['generated'], where
    assert s['drafted'] >= s['verified'] >= s['accepted'], where
    assert s['rows'] >= s['passes'] >= 0, where
    assert s['loops_run'] == s['prompt_loops'] + s['rows'], where
    assert sum(s['exits']) == s['generated'], where
    assert sum((4 - loop) * count for loop, count in enumerate(s['exits'], 1)) >= s['loops_saved'], where
    assert s['peak_resident_bytes'] > s['cache_bytes'], where
    if s['generated'] > 1 and s['decode_ms'] > 0:
        rate = (s['generated'] - 1) / s['decode_ms'] * 1000
        slack = rate * 0.0011 / s['decode_ms'] + 0.001  # times are rounded to a microsecond
        assert abs(s['tokens_per_second'] - rate) <= slack, where
END
done
