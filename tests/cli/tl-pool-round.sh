# SPDX-License-Identifier: Apache-2.0
# Register, list, generate, evict, from end to end; the answers and the logits' hash are those of a run without pool.
. "$EXPECT"
model=$MODELS/m.tinyloop
generate() { tl-generate -m "$model" -n 12 --seed 5 --ignore-eos --stats=stats "$@"; }

seq 1 40 | paste -s -d ' ' >prefix
{ seq 1 40 | paste -s -d ' '; seq 1 12 | paste -s -d ' '; } >prefixes
{
  cat prefix                                             # whole
  echo "$(cat prefix) 7 7 7"                             # prefix
  seq 1 30 | paste -s -d ' '                             # crop
  echo '60 61 62'                                        # miss
} >prompts

tl-pool-register --pool pool -m "$model" prefixes >keys
[[ $(sed -n 1p keys) == "40 40-"* ]] && [[ $(sed -n 2p keys) == "12 12-"* ]] || fail 'keys'
tl-pool-register --pool pool -m "$model" prefixes >again
same keys again

generate prompts >plain
cp stats plain_stats
generate --pool pool prompts >pooled
same plain pooled
python3 - <<'END'
import json
plain = [json.loads(line) for line in open('plain_stats')]
pooled = [json.loads(line) for line in open('stats')]
expected = [('whole', 39), ('prefix', 40), ('crop', 29), ('miss', 0)]
for a, b, (kind, reused) in zip(plain, pooled, expected, strict=True):
    assert a['logits_hash'] == b['logits_hash'], (a, b)
    assert (b['pool_hit'], b['pool_reused'], b['reused']) == (kind, reused, reused), b
    assert b['reused'] + b['prefilled'] == b['prompt'] == a['prompt'], b
    assert 'pool_hit' not in a
END
generate --pool pool --no-crop prompts >uncropped
same plain uncropped
grep -q '"prompt":30.*"pool_hit":"prefix","pool_reused":12' stats || fail '--no-crop crops'
TL_POOL=pool generate prompts >from_environment
same plain from_environment
grep -q '"pool_hit":"whole"' stats || fail 'TL_POOL is not obeyed'
for extra in '--threads 2' '--isa portable' '--prefill-chunk 1' '--stream' '--kv int8' '--loops 2' '--cache-window 9'; do
  # shellcheck disable=SC2086 # options and their values
  generate $extra prompts >plain
  # shellcheck disable=SC2086
  generate $extra --pool pool prompts >pooled
  same plain pooled
done

# Each storage mode with entries of its own.
for kv in f32 int8 int4 h16 h8 h4; do
  tl-pool-register --pool "$kv" -m "$model" --kv "$kv" prefixes >/dev/null
  generate --kv "$kv" prompts >plain
  generate --kv "$kv" --pool "$kv" prompts >pooled
  same plain pooled
  [ "$(grep -o '"pool_hit":"[a-z]*"' stats | cut -d '"' -f 4 | paste -s -d ' ')" = 'whole prefix crop miss' ] || fail "$kv"
done

tl-pool-list --pool pool --json >list
python3 - <<'END'
import json
pool = json.load(open('list'))
assert [e['tokens'] for e in pool['entries']] == [12, 40], pool
total = pool['totals']
assert total['entries'] == 2 and total['cached_tokens'] == 52 and total['capacity'] == 16, total
# Runs: four times without and with crop, the environment, then seven more.
assert total['lookups'] == 4 * 10 and total['hits'] + total['misses'] == 40, total
assert total['hits'] == 3 * 7, total  # the last three ask for what is not there
assert sum(e['hits'] for e in pool['entries']) == total['hits'], pool
assert all(e['kv'] == 'f16' and e['loops'] == 4 and e['bytes'] > 0 for e in pool['entries'])
END
tl-pool-list --pool pool --verify >list
holds list 'entries 2 of 16, cached tokens 52'

key=$(sed -n 's/^12 //p' keys)
tl-pool-evict --pool pool "$key" >removed
[ "$(cat removed)" = "$key" ] || fail 'the removed key is not printed'
generate prompts >plain
generate --pool pool prompts >pooled
same plain pooled
tl-pool-evict --pool pool --all >removed
[ "$(wc -l <removed)" -eq 1 ] || fail '--all'
[ -z "$(find pool -name '*.safetensors' -o -name '.tmp*')" ] || fail 'files are left'
tl-pool-list --pool pool >list
holds list 'entries 0 of 16, cached tokens 0, bytes 0'
