# SPDX-License-Identifier: Apache-2.0
# What all lanes share a job cannot ask for: its record names the key. What it may ask for acts.
. "$EXPECT"
model=$MODELS/m.tinyloop
for key in temperature top_k top_p min_p repetition_penalty presence_penalty frequency_penalty loops exit kv cache_window \
  logit_bias eos; do
  echo "{\"$key\":[[1,{}]],\"tokens\":[1,2],\"id\":\"$key\"}"
done >jobs
echo '{"tokens":[1,2],"top-p":1}' >>jobs
echo '{"tokens":[1,2],"colour":"red"}' >>jobs
ends 3 tl-batch -m "$model" --jsonl jobs
[ "$(wc -l <out)" -eq 15 ] || fail 'not a record a job'
python3 - out <<'END'
import json, sys
records = [json.loads(line) for line in open(sys.argv[1])]
for record in records[:13]:
    key = record['id']
    wanted = f"jobs:{record['line']}: key '{key}' cannot be set per job: all lanes share it; use --{key.replace('_', '-')}"
    assert record['error'] == wanted, record
assert records[13]['error'].endswith('use --top-p') and "'top-p'" in records[13]['error']
assert records[14]['error'] == "jobs:15: unknown key 'colour'"
END
for key in temperature stop priority; do
  echo "{\"tokens\":[1,2],\"$key\":1}" >one
  why="key '$key' is only for jobs of tl-batch"
  [ "$key" != temperature ] || why="unknown key '$key'"
  refused 2 "$why" tl-generate -m "$model" --jsonl one
done

# stop, max_tokens and seed of a job outrank the options.
tl-generate -m "$model" -n 12 --temperature 0 --ignore-eos --only-new <<<'1 2 3' >ids
read -r a b c d rest <ids
cat >jobs <<END
{"tokens":[1,2,3],"max_tokens":2}
{"tokens":[1,2,3],"stop":[[$c,$d]]}
{"tokens":[1,2,3],"stop":[[$d],[$b,$c]]}
{"tokens":[1,2,3],"stop":[]}
{"tokens":[1,2,3]}
{"tokens":[1,2,3],"max_tokens":0}
END
tl-batch -m "$model" --jsonl -n 12 --temperature 0 --ignore-eos --only-new --stop "$a $b $c" jobs |
  python3 -c 'import json, sys
for line in sys.stdin: r = json.loads(line); print(*r["tokens"], r["stop"], *r.get("matched", []))' >got
cat >wanted <<END
$a $b length
$a $b stop $c $d
$a stop $b $c
$a $b $c $d $rest length
stop $a $b $c
length
END
same wanted got
cat >jobs <<'END'
{"tokens":[1],"stop":[[]]}
{"tokens":[1],"stop":[1]}
{"tokens":[1],"stop":[[64]]}
{"tokens":[1],"stop":1}
{"tokens":[1],"priority":1.5}
{"tokens":[1],"priority":-3}
{"tokens":[1],"group":3}
{"tokens":[1],"priority":1,"priority":2}
END
ends 3 tl-batch -m "$model" --jsonl --seed 1 -n 1 jobs
sed 's/.*jobs:[0-9]*: //; s/"}$//; s/.*"tokens".*/answered/' out >got
cat >wanted <<'END'
stop[0]: the sequence is empty
stop[0]: not an array
stop[0][0]: id 64 is not below 64
stop: not an array
priority: 1.5 is not an integer
answered
group: not a string
duplicate key 'priority'
END
same wanted got

# Options that cannot work together, and values that cannot work.
echo '1 2' >in
refused 2 --timings tl-batch -m "$model" --timings in
refused 2 --pool-min-share tl-batch -m "$model" --pool-min-share 2 in
refused 2 --pool-min-share tl-batch -m "$model" --pool p --pool-min-share 1 in
refused 2 --continue tl-batch -m "$model" --continue in
refused 2 --continue tl-batch -m "$model" --continue -o /dev/null in
refused 2 --stats tl-batch -m "$model" --progress json --stats in
for lanes in 0 -1 4097 x '' 1.5; do ends 2 tl-batch -m "$model" --lanes="$lanes" in; done
for memory in 0 x 1T -1G G 99999999999G; do refused 2 --memory tl-batch -m "$model" --memory=$memory in; done
refused 2 --schedule tl-batch -m "$model" --schedule fast in
refused 2 --group tl-batch -m "$model" --group size in
refused 2 --group tl-batch -m "$model" --group key in
refused 2 --group tl-batch -m "$model" --group none --pool p --pool-min-share 2 in
