# SPDX-License-Identifier: Apache-2.0
# --eos ids end the answer and are not part of it; --ignore-eos keeps going; limits are named.
. "$EXPECT"
generate() { tl-generate -m "$MODELS/m.tinyloop" --temperature 0 --only-new prompts "$@"; }
kind() { generate --jsonl --input-format text "$@" >record && value stop record; }

echo '3 1 4' >prompts
generate -n 20 --ignore-eos >plain
read -r -a ids <plain
end=${ids[4]}
at=0
while [ "${ids[at]}" != "$end" ]; do at=$((at + 1)); done
head -n 1 plain | cut -d ' ' -f "1-$at" >wanted
[ "$at" -gt 0 ] || printf '\n' >wanted
generate -n 20 --eos "$end" >ended
same wanted ended
[ "$(kind -n 20 --eos "$end")" = end ] || fail 'the kind of stop'
[ "$(value matched record)" = "[$end]" ] || fail 'the matched id'

# Any of several end ids; the statistics say the same as the record.
generate -n 20 --eos 63 --eos "$end" --stats=stats >ended
same wanted ended
[ "$(value stop_reason stats)" = "{'kind': 'end', 'matched': [$end]}" ] || fail "statistics: $(cat stats)"

[ "$(kind -n 20 --ignore-eos)" = length ] || fail 'the length'
refused 2 --ignore-eos tl-generate -m "$MODELS/m.tinyloop" --ignore-eos --eos 3 prompts

# A model's own list of end ids: each of them ends an answer, of single runs and of batches, beside those of --eos.
cp -r "$MODELS/m-hf" listed && chmod -R u+w listed
other=${ids[1]}
for list in "[63, $end]" "[$end, 63]" "[63, $other]" "$end"; do
  sed "s/^ \"vocab_size\"/ \"eos_token_id\": $list,\n&/" "$MODELS/m-hf/config.json" >listed/config.json
  tl-convert listed listed.tinyloop >/dev/null
  case $list in *"$other"*) stop=$other ;; *) stop=$end ;; esac
  generate -n 20 --eos "$stop" >wanted
  for tool in tl-generate tl-batch; do
    "$tool" -m listed.tinyloop --temperature 0 --only-new -n 20 prompts >ended
    same wanted ended
    "$tool" -m listed.tinyloop --temperature 0 --only-new -n 20 --ignore-eos prompts >ended
    same plain ended
  done
done
first=${ids[0]}
generate -n 20 --eos "$first" >wanted
tl-generate -m listed.tinyloop --temperature 0 --only-new -n 20 --eos "$first" prompts >ended
cmp wanted ended || fail '--eos beside the list of the model'

# No token at all is a valid request.
generate -n 0 >nothing
printf '\n' >wanted
same wanted nothing
[ "$(kind -n 0)" = length ] || fail 'the length of nothing'

# The context holds 64 ids: 3 of the prompt leave room for 61, and one more that nothing follows.
[ "$(kind -n 1000 --ignore-eos)" = context ] || fail 'the context'
[ "$(generate -n 1000 --ignore-eos | wc -w)" -eq 62 ] || fail 'how many ids the context holds'
seq 0 63 | paste -s -d ' ' >prompts
[ "$(generate -n 1000 --ignore-eos | wc -w)" -eq 1 ] || fail 'a prompt as long as the context'
