# SPDX-License-Identifier: Apache-2.0
# Wrong input and wrong files: a message with file, line and cause, and nothing of the wrong line written.
. "$EXPECT"
tokenizer=$CASES/../text/byte_level.json
wrong() { # TEXT LINE: as the second line of JSON Lines
  printf '{"text":"a"}\n%s\n' "$2" >jobs
  ends 2 tl-tokenize --tokenizer "$tokenizer" --jsonl --template chatml jobs
  [ "$(wc -l <out)" -eq 1 ] || fail "not only the good line was written: $(cat out)"
  holds err "tl-tokenize: jobs:2: $1"
}
wrong "key 'text' or 'messages' is missing" '{"txt":"a"}'
wrong 'text and messages exclude each other' '{"text":"a","messages":[]}'
wrong 'it already has tokens' '{"text":"a","tokens":[]}'
wrong 'text: a string is needed' '{"text":1}'
wrong 'messages[0]: expected an object' '{"messages":["a"]}'
wrong "messages[0]: key 'role' is missing" '{"messages":[{"content":"a"}]}'
wrong 'messages[0].name: only role and content' '{"messages":[{"name":"x","content":"a"}]}'
wrong 'there are no messages' '{"messages":[]}'
printf '{"text":"a"' >jobs
refused 2 'jobs:1:12: is not JSON' tl-tokenize --tokenizer "$tokenizer" --jsonl jobs
echo '{"messages":[{"role":"user","content":"a"}]}' >jobs
refused 2 'jobs:1: messages need --template' tl-tokenize --tokenizer "$tokenizer" --jsonl jobs

for tool in tl-tokenize tl-detokenize; do
  refused 2 '--model or --tokenizer' $tool jobs
  refused 2 'exclude each other' $tool -m x --tokenizer "$tokenizer" jobs
  refused 1 'nothing.json' $tool --tokenizer nothing.json jobs
  refused 1 'has no vocabulary' $tool -m "$MODELS/m.tinyloop" jobs
  refused 2 'nothing: No such file' $tool --tokenizer "$tokenizer" nothing
  refused 2 '--output tokenizer.json: the file is also an input' $tool --tokenizer tokenizer.json -o tokenizer.json jobs
done
refused 2 '--whole and --jsonl' tl-tokenize --tokenizer "$tokenizer" --whole --jsonl jobs
refused 2 --bos tl-tokenize --tokenizer "$tokenizer" --bos jobs
refused 2 '--jsonl and --bytes' tl-detokenize --tokenizer "$tokenizer" --jsonl --bytes jobs

printf '1 2\n3 x\n' >ids
ends 2 tl-detokenize --tokenizer "$tokenizer" ids
[ "$(wc -l <out)" -eq 1 ] || fail 'the good line is not written'
holds err "ids:2:3: 'x' is not a digit"
echo 999999 >ids
refused 2 'ids:1:1: id 999999 is not below' tl-detokenize --tokenizer "$tokenizer" ids
echo '{"tokens":[1,-1]}' >ids
refused 2 'ids:1: tokens[1]: -1 is not an id' tl-detokenize --tokenizer "$tokenizer" --jsonl ids

echo '{"tokens":[1],"text":"a"}' >ids
refused 2 "ids:1: it already has 'text'" tl-detokenize --tokenizer "$tokenizer" --jsonl ids

sed 's/"NFC"/"NFC","more":1/; s/"normalizer":{[^}]*}/"normalizer":{"type":"BertNormalizer"}/' "$tokenizer" >bert.json
refused 1 'bert.json: normalizer: type "BertNormalizer" is not supported' tl-tokenize --tokenizer bert.json jobs
python3 - "$tokenizer" <<'END'
import json, sys
file = json.load(open(sys.argv[1]))
file['pre_tokenizer'] = {'type': 'Sequence', 'pretokenizers': [
    {'type': 'Split', 'pattern': {'Regex': 'a\\b'}, 'behavior': 'Isolated', 'invert': False}, {'type': 'ByteLevel'}]}
json.dump(file, open('regex.json', 'w'))
END
refused 1 'regex.json: pre-tokenizer step 1: regular expression' tl-tokenize --tokenizer regex.json jobs
