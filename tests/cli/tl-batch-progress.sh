# SPDX-License-Identifier: Apache-2.0
# Progress: nothing where standard error is no terminal, one line on a terminal, JSON objects where they are asked for.
. "$EXPECT"
model=$MODELS/m.tinyloop
for i in $(seq 0 19); do echo "$i"; done >in
batch() { tl-batch -m "$model" -n 4 --seed 1 "$@"; }
ends 0 batch in
[ ! -s err ] || fail "$(cat err)"
mv out wanted

ends 0 batch --progress json in
same wanted out
python3 - err <<'END'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert lines
for line in lines:
    assert list(line) == ['done', 'total', 'errors', 'tokens', 'seconds', 'tokens_per_second', 'lanes_busy', 'lanes',
                          'pool_hits', 'pool_misses', 'seconds_left'], line
    assert line['total'] == 20 and line['lanes'] == 16 and line['done'] <= 20
last = lines[-1]
assert (last['done'], last['errors'], last['tokens'], last['lanes_busy'], last['seconds_left']) == (20, 0, 80, 0, 0), last
END
ends 0 batch --progress json --shard 1/3 in
tail -n 1 err | grep -q '"done":7,"total":7' || fail "$(cat err)"
# The number of lines in a pipe is not known.
ends 0 batch --progress json < <(cat in)
holds err '"done":20,"total":null'

echo 3 | tl-pool-register --pool pool -m "$model" - >registered
ends 0 on_terminal tl-batch -m "$model" -n 4 --seed 1 --pool pool in
same wanted out
python3 - <<'END'
text = open('terminal', newline='').read()
assert text.endswith('\r\n') and text.count('\n') == 1, text
last = text.split('\r')[-2]
assert last.startswith('20 / 20  ') and 'tokens/s  0 of 16 lanes  pool 1 of 20' in last, last
END
for silent in '--progress off' -q; do
  # shellcheck disable=SC2086 # two words
  echo 3 | tl-pool-register --pool pool -m "$model" - >registered
ends 0 on_terminal tl-batch -m "$model" -n 4 --seed 1 $silent in
  [ ! -s terminal ] || fail "$silent: $(cat terminal)"
done
refused 2 --progress tl-batch -m "$model" --progress often in
# Neither may share its stream with another output, whatever its name; /dev/null may be any number of them.
for output in --stats --stats=/dev/stderr --stats=/dev/fd/2 '-o /dev/stderr' --stats=joint '-o joint'; do
  status=0
  # shellcheck disable=SC2086 # two words
  tl-batch -m "$model" -n 1 --seed 1 --progress json $output in >out 2>joint || status=$?
  [ "$status" -eq 2 ] && [ ! -s out ] || fail "exit status $status, not 2: $output"
  holds joint '--progress json and --'
done
tl-batch -m "$model" -n 1 --seed 1 --progress json --stats=/dev/null -o /dev/null in 2>/dev/null
