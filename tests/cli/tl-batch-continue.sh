# SPDX-License-Identifier: Apache-2.0
# The journal: what a broken-off run leaves is finished with the same options over the same input, and with no others.
. "$EXPECT"
cp "$MODELS/m.tinyloop" model
for i in $(seq 0 99); do echo "$((i % 64)) $((i * 3 % 64))"; done >in
sed -i '2s/.*/x/' in
batch=(tl-batch -m model)
ends 3 "${batch[@]}" --seed 9 in
mv out wanted

# A limit on the size of files breaks the run off in the middle, with whole records only.
broken_off() { # COMMAND...
  rm -f answers answers.journal
  (
    ulimit -f 5
    refused 1 'answers.journal: File too large' "$@"
  )
  [ ! -e answers ] && [ "$(wc -c <answers.journal)" -le 5120 ] || fail 'more than there is room for'
  records=$(($(wc -l <answers.journal) - 1))
  [ $records -gt 3 ] && [ $records -lt 100 ] || fail "$records records"
  [ -z "$(tail -c 1 answers.journal | tr -d '\n')" ] || fail 'half a line was left'
}
finished() { # COMMAND...
  ends 3 "$@"
  [ ! -s out ] && [ ! -s err ] || fail "$(cat out err)"
  same wanted answers
  [ ! -e answers.journal ] || fail 'the journal is still there'
}
broken_off "${batch[@]}" --lanes 2 --seed 9 -o answers in
cp answers.journal kept
finished "${batch[@]}" --seed 9 -o answers --continue in

# Only what is missing is done; what does not change answers may change.
cp kept answers.journal
finished "${batch[@]}" --seed 9 -o answers --continue --stats=stats --lanes 5 --schedule lockstep --group none --threads 3 in
tail -n 1 stats | python3 -c 'import json, sys
summary = json.loads(sys.stdin.read())["summary"]
assert (summary["earlier"], summary["jobs"]) == ('"$records"', 100 - '"$records"'), summary'

# The seed that was drawn is in the journal.
broken_off "${batch[@]}" --lanes 2 -o answers in
seed=$(grep -o 'seed="[0-9]*"' answers.journal | grep -o '[0-9]*')
ends 3 "${batch[@]}" --seed "$seed" in
mv out drawn
ends 3 "${batch[@]}" -o answers --continue in
same drawn answers

# Whatever changes answers is refused by name, and the journal stays.
refuses() { # TEXT OPTION...
  cp kept answers.journal
  local text=$1
  shift
  refused 2 "$text" "${batch[@]}" -o answers --continue "$@"
  same kept answers.journal
}
refuses "--seed was '9'" --seed 8 in
refuses "--temperature was '1' when the run started and is '0.5' now" --temperature 0.5 in
refuses --top-k --top-k 3 in
refuses --max-tokens -n 5 in
refuses --stop --stop 5 in
refuses --eos --eos 5 in
refuses --loops --loops 2 in
refuses --kv --kv int8 in
refuses --cache-window --cache-window 5 in
refuses --exit --exit latent:0.1 in
refuses --jsonl --jsonl --input-format text in
refuses --only-new --only-new in
refuses --unordered --unordered in
refuses --shard --shard 0/2 in
cp in also
refuses "the input was 'in' when the run started and is 'also' now" also
cp "$MODELS/m2.tinyloop" model
refuses --model in
cp "$MODELS/m.tinyloop" model

# So is another input: a line that was answered and is another one, or is no longer there. More lines are fine.
cp in original
answered=$(sed -n '$p' kept | cut -d ' ' -f 1)
sed -i "${answered}s/\$/ 1/" in
refuses "in:$answered has changed since" in
head -n 2 original >in
refuses 'the input ends' in
{ cat original; echo '1 2 3'; } >in
ends 3 "${batch[@]}" -o answers --continue in
head -n 100 answers >front
same wanted front
[ "$(wc -l <answers)" -eq 101 ] || fail 'the new line was not answered'
cp original in

# A torn last record, or one with a wrong bit and all behind it, is made again, with a warning.
spoiled() {
  rm -f answers
  ends 3 "${batch[@]}" --seed 9 -o answers --continue in
  [ "$(wc -l <err)" -eq 1 ] && holds err 'warning: answers.journal: the last'
  same wanted answers
}
head -c -3 kept >answers.journal && spoiled
{ cat kept; head -c 100 /dev/zero; } >answers.journal && spoiled
sed '4s/ 1/ 2/' kept >answers.journal && spoiled
# Not even the first line was written: a run from the start.
head -c 100 kept >answers.journal && spoiled
: >answers.journal
finished "${batch[@]}" --seed 9 -o answers --continue in

# Without --continue a journal is refused; a stranger's file is left alone.
cp kept answers.journal
refused 2 'resume that run with --continue, or remove the file' "${batch[@]}" -o answers in
same kept answers.journal
echo 'my notes' >answers.journal
refused 1 'is not a journal' "${batch[@]}" -o answers --continue in
refused 1 'is not a journal' "${batch[@]}" -o answers in
[ "$(cat answers.journal)" = 'my notes' ] || fail 'the file was changed'
printf 'notes' >answers.journal
refused 1 'is not a journal' "${batch[@]}" -o answers in
[ "$(cat answers.journal)" = 'notes' ] || fail 'the file was changed'
rm answers.journal answers

# Nothing was begun: a run from the start. Everything is done: nothing to do.
finished "${batch[@]}" --seed 9 -o answers --continue in
ends 0 "${batch[@]}" --seed 9 -o answers --continue in
[ ! -s out ] && [ "$(wc -l <err)" -eq 1 ] && holds err 'answers is complete'
same wanted answers
# Killed between the output's name and the journal's end: the complete journal makes the same file.
"${batch[@]}" --seed 9 -o again in || true
cp kept answers.journal
finished "${batch[@]}" --seed 9 -o answers --continue in

# The input may be a pipe, as long as it brings the same lines.
rm answers
broken_off "${batch[@]}" --lanes 2 --seed 9 -o answers - < <(cat in)
cp wanted of_file
sed -i 's/error: in:/error: standard input:/' wanted
finished "${batch[@]}" --seed 9 -o answers --continue - < <(cat in)
mv of_file wanted

# Which jobs run next to each other may change, but --group key refuses jobs without a group.
awk '{ printf "{\"tokens\":[%s]%s}\n", NR % 64, NR % 2 ? ",\"group\":\"g\"" : "" }' original >grouped
grouped=("${batch[@]}" --jsonl --seed 9 -n 30 --ignore-eos --lanes 2 -o answers)
broken_off "${grouped[@]}" --group key grouped
refused 2 "--group was 'key' when the run started and is 'prefix or none' now" "${grouped[@]}" --continue grouped
ends 3 "${grouped[@]}" --group key --continue grouped
[ "$(grep -c 'it has no group' answers)" -eq 50 ] || fail 'jobs without a group were answered'
broken_off "${grouped[@]}" grouped
refused 2 --group "${grouped[@]}" --group key --continue grouped
ends 0 "${grouped[@]}" --group none --continue grouped

# Another process at work on the same output is not disturbed.
cp kept answers.journal
exec 3>>answers.journal
flock 3
refused 1 'another process' "${batch[@]}" --seed 9 -o answers --continue in
refused 1 'another process' "${batch[@]}" --seed 9 -o answers in
exec 3>&-
same kept answers.journal
finished "${batch[@]}" --seed 9 -o answers --continue in

# A failure before any record leaves nothing behind.
rm answers
refused 1 'No such file' "${batch[@]}" -o nowhere/answers in
refused 1 missing tl-batch -m missing -o answers in
refused 2 --exit "${batch[@]}" --exit gate:2 -o answers in
[ -z "$(find . -name 'answers*')" ] || fail 'something was left'
[ -z "$(find . -name '.tmp*')" ] || fail 'a temporary file was left'

# Beside an older output of that name a failure before any record does leave the journal, so that --continue does not take
# old answers for those of this run: the first record has no room (a long name of the input fills the block), or not even
# the first line has.
printf '7 8 9\n8 8 8\n' >"$(printf 'today%0200d' 0)"
today=$(printf './%.0s' $(seq 100))$(echo today*)
batch+=(-n 50 --ignore-eos --seed 9 -o answers)
no_room() { # BLOCKS
  message=$(ulimit -f "$1" && "${batch[@]}" "$today" 2>&1) && fail 'there was room'
  [ "$message" = 'tl-batch: answers.journal: File too large' ] || fail "$message"
}
for room in 1 0; do
  "${batch[@]}" <<<'1 2 3'
  cp answers yesterday
  no_room $room
  [ "$(wc -l <answers.journal)" -eq $room ] || fail "the journal: $(cat answers.journal)"
  same yesterday answers
  # A run that is refused does not take it away.
  [ $room = 0 ] || refused 2 --top-k "${batch[@]}" --continue --top-k 3 "$today"
  "${batch[@]}" --continue "$today"
  [ ! -e answers.journal ] && [ "$(wc -l <answers)" -eq 2 ] || fail 'the old answers are there'
  differ yesterday answers
done
# Where the options cannot work nothing was begun, and where there is no such output the journal is of no use.
refused 2 --group "${batch[@]}" --group none --pool pool --pool-min-share 2 "$today"
[ ! -e answers.journal ] || fail 'a journal of nothing was left'
rm answers
no_room 1
[ ! -e answers.journal ] || fail 'a journal without a record was left'
