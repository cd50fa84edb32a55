# SPDX-License-Identifier: Apache-2.0
# --pool-add: what one run has read the next one finds, longer prompts extend it, samples and streams work the same.
. "$EXPECT"
model=$MODELS/huginn.tinyloop
generate() { tl-generate -m "$model" -n 6 --seed 5 --ignore-eos --stats=stats "$@"; }
hits() { grep -o '"pool_hit":"[a-z]*"' stats | cut -d '"' -f 4 | paste -s -d ' '; }

{ seq 1 20; } | paste -s -d ' ' >first
{ seq 1 33; } | paste -s -d ' ' >second
cat first second first >all
generate all >plain
generate --pool pool --pool-add all >pooled   # makes the folder
same plain pooled
[ "$(hits)" = 'miss prefix whole' ] || fail "$(hits)"
generate --pool pool all >pooled
same plain pooled
[ "$(hits)" = 'whole whole whole' ] || fail "$(hits)"
generate --samples 3 all >plain
generate --samples 3 --pool pool all >pooled
same plain pooled
generate --stream --only-new all >plain
generate --stream --only-new --pool pool --pool-add all >pooled
same plain pooled
tl-pool-list --pool pool --verify --json >list
python3 - <<'END'
import json
pool = json.load(open('list'))
assert [e['tokens'] for e in pool['entries']] == [20, 33], pool
assert pool['totals']['hits'] == 2 + 3 + 3 + 3 and pool['totals']['misses'] == 1, pool
END
# Another initial state is another computation.
generate --init-state zero all >plain
generate --init-state zero --pool pool all >pooled
same plain pooled
[ "$(hits)" = 'miss miss miss' ] || fail "$(hits)"

# Also where no id is wanted: the prompt is read and added.
echo 9 8 7 6 5 >unread
tl-generate -m "$model" -n 0 --pool nothing --pool-add --stats=stats unread >/dev/null
[ "$(value prefilled stats) $(value generated stats) $(value pool_hit stats)" = '5 0 miss' ] || fail "$(cat stats)"
tl-generate -m "$model" -n 1 --pool nothing --stats=stats unread >/dev/null
[ "$(value pool_hit stats)" = whole ] || fail 'the prompt was not added'
