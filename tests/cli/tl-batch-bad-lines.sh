# SPDX-License-Identifier: Apache-2.0
# U-16: a bad line is an error record in its place and no other line suffers; an output is never an input.
. "$EXPECT"
model=$MODELS/m.tinyloop

{ echo '1 2 3'; echo '4 5'; echo '64'; echo '6'; echo; echo '-1'; echo abc; seq 0 64 | sed 's/64/1/' | paste -s -d ' '; echo '7 8 9'; echo '10 11'; } >in
cp in kept
ends 3 tl-batch -m "$model" -n 4 --seed 1 --lanes 3 in
mv out records
[ ! -s err ] || fail "$(cat err)"
[ "$(wc -l <records)" -eq 10 ] || fail 'not ten records'
sed -n '1p;2p;4p;9p;10p' in | tl-generate -m "$model" -n 4 --seed 1 >wanted
sed -n '1p;2p;4p;9p;10p' records >good
same wanted good
cat >wanted <<'END'
error: in:3:1: id 64 is not below 64
error: in:5:1: the sequence is empty
error: in:6:1: '-' is not a digit
error: in:7:1: 'a' is not a digit; expected ids, not text
error: in:8:183: prompt too long: more than 64 ids (the context)
END
sed -n '3p;5,8p' records >bad
same wanted bad

# The same with an output file, with one lane and in lockstep.
for more in '--lanes 1' '--schedule lockstep' '--group none'; do
  # shellcheck disable=SC2086 # two words
  ends 3 tl-batch -m "$model" -n 4 --seed 1 $more -o answers in
  same records answers
done

# JSON Lines: ids stay with the errors.
cat >jobs <<'END'
{"id":"a","tokens":[1,2,3]}
{"id":"b","tokens":[4,5]}
{"tokens":[64],"id":"c"}
{"id":"d","tokens":[6]}
{"id":"e","tokens":[]}
{"id":"f","tokens":[-1]}
{"id":"g","tokens":["abc"]}
{"id":"h","tokens":[1,
{"id":"i","tokens":[7,8,9]}

END
ends 3 tl-batch -m "$model" -n 4 --seed 1 --jsonl jobs
python3 - out >got <<'END'
import json, sys
for number, line in enumerate(open(sys.argv[1]), 1):
    record = json.loads(line)
    assert record['line'] == number, record
    print(record.get('id'), record.get('error', record.get('tokens')))
END
tokens() { echo "$@" | tl-generate -m "$model" -n 4 --seed 1 | sed 's/ /, /g; s/.*/[&]/'; }
cat >wanted <<END
a $(tokens 1 2 3)
b $(tokens 4 5)
c jobs:3: tokens[0]: id 64 is not below 64
d $(tokens 6)
e jobs:5:1: the sequence is empty
f jobs:6: tokens[0]: -1 is negative
g jobs:7: tokens[0]: not an integer
END
head -n 7 got >front
same wanted front
sed -n 8p got >eighth
holds eighth 'h jobs:8:2'
[ "$(sed -n 9p got)" = "i $(tokens 7 8 9)" ] || fail "$(sed -n 9p got)"
[ "$(sed -n 10p got)" = 'None jobs:10:1: empty line' ] || fail "$(sed -n 10p got)"

# Several files: the lines of each are counted anew, and JSON names the file.
printf '1 2\nx\n' >one
printf '3 4\ny\n' >two
ends 3 tl-batch -m "$model" -n 1 one two
[ "$(grep -c . out)" -eq 4 ] && holds out "error: one:2:1: 'x'" && holds out "error: two:2:1: 'y'"
ends 3 tl-batch -m "$model" -n 1 --jsonl --input-format text one two
holds out '{"line":2,"file":"two","error":"two:2:1: '

# No line at all is no error: there is nothing to do.
: >nothing
ends 0 tl-batch -m "$model" nothing
[ ! -s out ] || fail 'a record of nothing'
ends 0 tl-batch -m "$model" -o empty nothing
[ -f empty ] && [ ! -s empty ] || fail 'no empty output'

ln -s in link
for output in in link ./in; do refused 2 --output tl-batch -m "$model" -o $output in; done
refused 2 'is also an input' tl-batch -m "$model" --stats=in in
cp in x.journal
refused 2 'is also an input' tl-batch -m "$model" -o x x.journal in
refused 2 missing tl-batch -m "$model" in missing
mkdir folder
refused 2 'Is a directory' tl-batch -m "$model" in folder
refused 2 'Is a directory' tl-batch -m "$model" -o folder in
same kept in
