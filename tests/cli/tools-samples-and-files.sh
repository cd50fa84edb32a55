# SPDX-License-Identifier: Apache-2.0
# What is counted is what was done: the reading of a prompt that samples share counts once, and lines of several files tell theirs.
. "$EXPECT"
model=$MODELS/m.tinyloop
echo 1 2 3 4 5 >prompt
figures() { python3 -c 'import json, sys
for line in sys.stdin:
    r = json.loads(line)
    print(*(r[key] for key in ("prefilled", "reused", "generated", "prompt_loops", "loops_run")))'; }

# Four loops, five positions: 20 for the prompt, and 4 for each token but the last.
tl-generate -m "$model" -n 2 --temperature 0 --ignore-eos --stats=one prompt >alone
figures <one >got && echo '5 0 2 20 24' >wanted && same wanted got
tl-generate -m "$model" -n 2 --temperature 0 --ignore-eos --samples 3 --stats=three prompt >answers
figures <three >got && printf '%s\n' '5 0 2 20 24' '0 0 2 0 4' '0 0 2 0 4' >wanted && same wanted got
cat alone alone alone >wanted && same wanted answers

# An exit rule reads the last position anew, on its own, for each sample.
tl-generate -m "$model" -n 2 --temperature 0 --ignore-eos --exit latent:0 --stats=rule prompt >alone
tl-generate -m "$model" -n 2 --temperature 0 --ignore-eos --exit latent:0 --samples 2 prompt >answers
cat alone alone >wanted && same wanted answers

# From a pool: reused is what came from there, once.
echo 1 2 3 >prefix
tl-pool-register --pool pool -m "$model" prefix >/dev/null
tl-generate -m "$model" -n 2 --temperature 0 --ignore-eos --pool pool --samples 2 --stats=pooled prompt >answers
figures <pooled >got && printf '%s\n' '2 3 2 8 12' '0 0 2 0 4' >wanted && same wanted got

# Of no token there is no time and no speed.
tl-generate -m "$model" -n 0 --stats=none prompt >/dev/null
python3 - <<'END'
import json
r = json.loads(open('none').readline())
assert all(r[key] is None for key in ('prefill_ms', 'first_token_ms', 'decode_ms', 'tokens_per_second')), r
one = json.loads(open('one').readline())
assert one['tokens_per_second'] > 0 and one['decode_ms'] > 0, one
END
tl-generate -m "$model" -n 1 --ignore-eos --stats=single prompt >/dev/null
[ "$(value tokens_per_second single)" = None ] || fail 'one token has a speed'
printf '%s\n' '{"tokens":[1],"max_tokens":0}' >job
tl-batch -m "$model" --jsonl --timings job >record
[ "$(value decode_ms record)" = None ] || fail 'no token took time'
tl-batch -m "$model" -n 0 --stats=summary prompt >/dev/null
tail -n 1 summary | python3 -c 'import json, sys; s = json.load(sys.stdin)["summary"]; assert s["tokens_per_second"] is None and s["rows_per_pass"] is None, s'

# Several files: each record names its own; with one file none does.
printf '5\n6 7\n' >other
for run in "tl-generate -n 1 --jsonl --input-format text" "tl-score --jsonl --input-format text" "tl-inspect --trace --json" \
  "tl-generate -n 1 --stats=stats" "tl-batch -n 1 --jsonl --input-format text"; do
  # shellcheck disable=SC2086 # several words
  $run -m "$model" prompt other >out && case $run in *stats=*) cp stats out ;; esac
  python3 -c 'import json, sys; print(*[(r["file"], r["line"]) for r in map(json.loads, open("out")) if "line" in r])' >got
  echo "('prompt', 1) ('other', 1) ('other', 2)" >wanted
  same wanted got
  # shellcheck disable=SC2086
  $run -m "$model" other >out && case $run in *stats=*) cp stats out ;; esac
  ! grep -q '"file"' out || fail "$run names the only file"
done
tl-score -m "$model" prompt other | cut -f 1,2 >got
printf '%s\t%s\n' prompt 1 other 1 other 2 >wanted && same wanted got
tl-score -m "$model" other | cut -f 1,2 | head -n 1 >got
printf '1\t4\n' >wanted && same wanted got
