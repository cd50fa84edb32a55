# SPDX-License-Identifier: Apache-2.0
# JSON Lines in and out: parses, keys in the stated order, ids echoed untouched, per-line limits and seeds obeyed.
. "$EXPECT"
model=$MODELS/m.tinyloop

cat >requests <<'END'
{"tokens":[1,2,3],"id":"first"}
{"tokens":[9,8],"id":42,"max_tokens":2,"seed":11}
{"seed":0,"tokens":[40]}
END
tl-generate -m "$model" --jsonl -n 5 --seed 5 --ignore-eos requests >answers
while read -r line; do python3 -m json.tool <<<"$line" >/dev/null || fail "no JSON: $line"; done <answers
! LC_ALL=C grep -q '[^ -~]' answers || fail 'not plain ASCII'

python3 - answers >summary <<'END'
import json, sys
for line in open(sys.argv[1]):
    r = json.loads(line)
    print(*r, '|', r['line'], r.get('id'), len(r['tokens']), r['stop'], r['seed'])
    assert r['reused'] + r['prefilled'] == [3, 2, 1][r['line'] - 1], r
END
cat >wanted <<'END'
line id tokens stop seed reused prefilled | 1 first 8 length 5
line id tokens stop seed reused prefilled | 2 42 4 length 11
line tokens stop seed reused prefilled | 3 None 6 length 0
END
same wanted summary

# The ids are those of the text form with the same seed, and --only-new leaves the prompt out here too.
echo '9 8' | tl-generate -m "$model" -n 2 --seed 11 --ignore-eos >text
tl-generate -m "$model" --jsonl --only-new -n 5 --seed 5 --ignore-eos requests >only_new
python3 -c 'import json, sys
for name, prompt in (("answers", ""), ("only_new", "9 8 ")):
    line = open(name).readlines()[1]
    print(prompt + " ".join(map(str, json.loads(line)["tokens"])))' >both
cat text text >wanted
same wanted both

# Text in and JSON out.
echo '1 2 3' | tl-generate -m "$model" --jsonl --input-format text -n 5 --seed 5 --ignore-eos >line
[ "$(value tokens line)" = "$(value tokens answers)" ] || fail 'another answer from text'
