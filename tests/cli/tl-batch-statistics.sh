# SPDX-License-Identifier: Apache-2.0
# --stats=FILE is a log: what a run did is in it however the run ends, and --continue goes on at its end.
. "$EXPECT"
model=$MODELS/m.tinyloop
for i in $(seq 0 1499); do echo "$((i % 64)) $((i / 64)) 5"; done >in
batch=(tl-batch -m "$model" --seed 3 -n 30 --ignore-eos --threads 1 --lanes 2 -o answers --stats=stats)

# check STATS LINES TOLERANCE: whole objects, one for each line but so many, and one summary, at the end.
check() {
  python3 - "$@" <<'END2'
import json, sys
text = open(sys.argv[1]).read()
assert text.endswith('\n')
objects = [json.loads(line) for line in text.splitlines()]
assert [i for i, o in enumerate(objects) if 'summary' in o] == [len(objects) - 1], 'summaries'
lines, tolerance = int(sys.argv[2]), int(sys.argv[3])
numbers = [o['line'] for o in objects[:-1]]
assert lines - len(set(numbers)) <= tolerance and len(numbers) - len(set(numbers)) <= tolerance, (lines, len(numbers))
assert all(o['generated'] == 30 and len(o['logits_hash']) == 16 for o in objects[:-1])
END2
}

# Killed: what was done is there. A run that is refused changes nothing, one that goes on drops a torn line and adds the
# others, a new one begins anew.
echo 'of yesterday' >stats
"${batch[@]}" in &
until [ "$(grep -c logits_hash stats)" -ge 3 ]; do kill -0 $! || fail 'it was done before a line was there'; done
kill -9 $!
wait $! 2>/dev/null || true
[ ! -e answers ] && grep -q logits_hash stats && ! grep -q -e yesterday -e summary stats || fail "$(tail -n 3 stats)"
cp stats kept
refused 2 --continue "${batch[@]}" in
refused 2 --top-k "${batch[@]}" --continue --top-k 3 in
same kept stats
printf '{"line":7,"half' >>stats
"${batch[@]}" --continue in
check stats 1500 2
head -n "$(wc -l <kept)" stats >front
same kept front
cp stats kept
ends 0 "${batch[@]}" --continue in
holds err 'answers is complete'
head -n -1 stats >front
same kept front
"${batch[@]}" in
check stats 1500 0

# No room for a line: the run ends with the cause and no part of the line is there. The record is kept, so of the
# statistics that line is missing.
head -n 40 in >few
few=(tl-batch -m "$model" --seed 3 -n 30 --only-new --ignore-eos -o few.answers --stats=few.stats)
(
  ulimit -f 4
  refused 1 'few.stats: File too large' "${few[@]}" few
)
[ -z "$(tail -c 1 few.stats | tr -d '\n')" ] && [ "$(wc -l <few.stats)" -gt 3 ] || fail "$(cat few.stats)"
"${few[@]}" --continue few
check few.stats 40 1
"${few[@]}" few
check few.stats 40 0

# A stream that goes to the file is not emptied, a link stays a link, a pipe takes the lines.
echo first >log
tl-batch -m "$model" -n 1 -o answers --stats=/dev/stdout few >>log
[ "$(wc -l <log)" -eq 42 ] && [ "$(head -n 1 log)" = first ] || fail "$(cat log)"
ln -s target link
tl-batch -m "$model" -n 1 -o answers --stats=link few
[ -L link ] && [ "$(wc -l <target)" -eq 41 ] || fail "$(ls -l)"
tl-batch -m "$model" -n 1 -o answers --stats=/dev/fd/3 few 3>&1 >/dev/null | cat >piped
[ "$(wc -l <piped)" -eq 41 ] || fail "$(cat piped)"

# A worker that is stopped.
mkfifo requests
tl-generate -m "$model" --stream --seed 1 -n 2 --stats=worker requests >ids &
exec 3>requests
echo 1 2 3 >&3
until [ -s worker ]; do kill -0 $!; done
kill $!
wait $! || true
exec 3>&-
[ "$(value generated worker)" = 2 ] || fail "$(cat worker)"
