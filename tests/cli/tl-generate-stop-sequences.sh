# SPDX-License-Identifier: Apache-2.0
# A stop sequence ends the answer before its first complete match; which one matched is said.
. "$EXPECT"
generate() { tl-generate -m "$MODELS/m.tinyloop" -n ${ids_wanted-20} --temperature 0 --ignore-eos --only-new prompts "$@"; }

echo '3 1 4' >prompts
generate >plain
read -r -a ids <plain
# The pair that starts at the fifth id, and where it is first met.
pair="${ids[4]} ${ids[5]}"
at=0
while [ "${ids[at]} ${ids[at + 1]}" != "$pair" ]; do at=$((at + 1)); done
[ "$at" -gt 0 ] || fail 'the pair stands at the very beginning: choose another prompt'

cut -d ' ' -f "1-$at" plain >wanted
generate --stop "$pair" >stopped
same wanted stopped
generate --stop "$pair" --stream >stopped
same wanted stopped
generate --stop '63 62 61 60' --stop "$pair" --jsonl --input-format text >record
[ "$(value stop record)" = stop ] || fail 'the kind of stop'
[ "$(value matched record)" = "[${pair/ /, }]" ] || fail "what matched: $(cat record)"

# A sequence that begins as the answer does and then differs takes nothing away, also at the length limit.
generate --stop "${ids[0]} ${ids[1]} ${ids[2]} 63 62" >whole
same plain whole
generate --stop "${ids[18]} ${ids[19]} 63 62" --stream >whole
same plain whole

# A match at the first id leaves an empty line; the length limit is met before a match that comes later.
generate --stop "${ids[0]}" >nothing
printf '\n' >wanted
same wanted nothing
ids_wanted=$at generate --stop "$pair" --jsonl --input-format text >record
[ "$(value stop record)" = length ] || fail 'length comes first'
