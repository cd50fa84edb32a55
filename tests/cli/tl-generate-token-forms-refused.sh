# SPDX-License-Identifier: Apache-2.0
# U-19, second group: USAGE, with line and column, before anything is computed or printed.
. "$EXPECT"
model=$MODELS/m.tinyloop

wrong() { # PLACE CAUSE; the line is standard input and stands behind a good one
  { echo '1 2 3'; cat; } >prompts
  refused 2 "$1: $2" tl-generate -m "$model" -n 2 prompts
  refused 2 "$1: $2" tl-score -m "$model" prompts
}
printf '\n' | wrong prompts:2:1 'the sequence is empty'
printf '1 -1\n' | wrong prompts:2:3 "'-'"
printf '1 64\n' | wrong prompts:2:3 'id 64 is not below 64'
printf '1 99999999999999999999\n' | wrong prompts:2:3 'number has too many digits'
printf '1.5\n' | wrong prompts:2:2 "'.'"
printf '0x10\n' | wrong prompts:2:2 "'x'"
printf '1e3\n' | wrong prompts:2:2 "'e'"
printf '1,,2\n' | wrong prompts:2:2 "','"
printf '1\0002\n' | wrong prompts:2:2 'NUL'
printf '\357\273\2771\n' | wrong prompts:2:1 'byte-order mark'
head -c 1000000 /dev/zero | tr '\0' 7 | wrong prompts:2:1 'number has too many digits'
head -c 1000000 /dev/zero | sed 's/\x0/1 /g' | wrong prompts:2:129 'prompt too long'

printf '' >nothing
refused 2 'nothing' tl-generate -m "$model" -n 2 nothing
refused 2 'missing' tl-generate -m "$model" -n 2 missing
printf '{"tokens":[1,2],"tokenz":[3]}\n' >bad.jsonl
refused 2 "bad.jsonl:1: unknown key 'tokenz'" tl-generate -m "$model" --jsonl bad.jsonl
printf '\001\000\377\377' >bad.u16
refused 2 'bad.u16:1:2: id 65535 is not below 64' tl-generate -m "$model" --input-format u16 bad.u16
printf '\001\000\002' >cut.u16
refused 2 'cut.u16' tl-generate -m "$model" --input-format u16 cut.u16
printf '1 2\n' >text.npy
refused 2 'text.npy' tl-generate -m "$model" --input-format npy text.npy
