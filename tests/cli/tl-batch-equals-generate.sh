# SPDX-License-Identifier: Apache-2.0
# U-15: each record is the answer that its line gets alone from tl-generate, whatever the lanes, the schedule, the order,
# the grouping, the chunk and the pool; statistics count a line's own tokens only.
. "$EXPECT"

# 12 lines of 1 to 60 ids; a third of them begin with the same 20.
python3 - <<'END'
import json, random
rng = random.Random(15)
system = [rng.randrange(64) for _ in range(20)]
with open('jobs', 'w') as jobs, open('text', 'w') as text:
    for i, length in enumerate([1, 60, 17, 2, 33, 25, 40, 16, 7, 48, 31, 32]):
        ids = [rng.randrange(64) for _ in range(length)]
        if length > 20 and i % 3 != 0: ids[:20] = system
        print(json.dumps({'id': i, 'tokens': ids, 'seed': 1000 + i, 'group': str(i % 3)}), file=jobs)
        print(*ids, file=text)
END
tac jobs >reversed
by_id() { python3 -c 'import json, sys
for record in sorted(map(json.loads, sys.stdin), key=lambda r: r["id"]):
    print(*(record.get(key) for key in ("id", "tokens", "stop", "matched", "seed")))'; }
alone() { # each line by itself
  while read -r line; do tl-generate --jsonl "$@" <<<"$line"; done < <(sed 's/, "group": "."//' jobs) | by_id
}
batch() {
  tl-batch --jsonl "${options[@]}" "$@" | by_id >got
  same wanted got
}

for run in 'm 0' 'm 0.8' 'huginn 0.8'; do
  read -r model temperature <<<"$run"
  options=(-m "$MODELS/$model.tinyloop" --temperature "$temperature" -n 4 --stop '12' --stop '3 3')
  alone "${options[@]}" >wanted
  for lanes in 1 2 5 12; do
    batch --lanes $lanes --schedule lockstep jobs
    batch --lanes $lanes reversed
  done
  batch --lanes 5 --schedule lockstep reversed
  batch --lanes 5 --group none jobs
  batch --lanes 5 --group key --prefill-chunk 7 reversed
  batch --lanes auto --memory 1M reversed
  batch --unordered --threads 3 jobs
  batch --pool pool --pool-min-share 2 jobs
  batch --pool pool jobs
  batch --stats=stats jobs
  python3 - <<'END'
import json
jobs = [json.loads(line) for line in open('jobs')]
lines = [json.loads(line) for line in open('stats')]
summary = lines.pop()['summary']
assert len(lines) == 12 and summary['jobs'] == 12 and summary['errors'] == 0
for line in lines:
  assert line['prompt'] == len(jobs[line['id']]['tokens']) == line['prefilled'] + line['reused'] + line['shared'], line
  assert 0 < line['generated'] <= 4, line
total = {key: sum(line[key] for line in lines) for key in ('prefilled', 'reused', 'shared', 'generated')}
assert all(summary[key] == total[key] for key in ('reused', 'shared', 'generated')), summary
# What is shared is computed once, for no line in particular.
assert total['reused'] == 0 < total['shared'] and total['prefilled'] < summary['prefilled'] < total['prefilled'] + total['shared'], summary
END
done

# Text has no seeds of its own; the one given is that of every line, as with tl-generate.
for seed in 0 7; do
  tl-generate -m "$MODELS/m.tinyloop" --seed $seed -n 4 text >wanted
  tl-batch -m "$MODELS/m.tinyloop" --seed $seed -n 4 --lanes 5 <text >got
  same wanted got
  tl-batch -m "$MODELS/m.tinyloop" --seed $seed -n 4 --lanes 5 -o got text
  same wanted got
  tl-generate -m "$MODELS/m.tinyloop" --seed $seed -n 4 --only-new text >wanted
  tl-batch -m "$MODELS/m.tinyloop" --seed $seed -n 4 --only-new text >got
  same wanted got
done
for more in '--exit latent:0.3' '--exit latent:0.3 --exit-select' '--kv int8 --loops 3' '--cache-window 16' '--kv h8' \
  '--eos 5 --eos 9 --repetition-penalty 1.3 --top-k 5'; do
  # shellcheck disable=SC2086 # several words
  tl-generate -m "$MODELS/m.tinyloop" --seed 3 -n 4 $more text >wanted
  for schedule in lockstep continuous; do
    # shellcheck disable=SC2086
    tl-batch -m "$MODELS/m.tinyloop" --seed 3 -n 4 --lanes 5 --schedule $schedule $more text >got
    same wanted got
  done
done
[ "$(ls)" = "$(printf '%s\n' got jobs pool reversed stats text wanted)" ] || fail "left behind: $(ls)"
