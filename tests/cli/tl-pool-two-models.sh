# SPDX-License-Identifier: Apache-2.0
# U-05 U-06: two models of one shape and other settings in one pool never meet; eviction by model spares the other one.
. "$EXPECT"
seq 1 25 | paste -s -d ' ' >prompt
generate() { tl-generate -m "$MODELS/$1.tinyloop" -n 8 --temperature 0 --ignore-eos --stats=stats "${@:2}" prompt; }
kind() { value pool_hit stats; }

tl-pool-register --pool pool -m "$MODELS/m.tinyloop" prompt >/dev/null
for settings in 'm2' 'm --loops 8' 'm --cache-window 8' 'm --kv int8' 'm --kv int4' 'm --kv f32' 'm-f16'; do
  # shellcheck disable=SC2086 # options and their values
  generate $settings >plain
  # shellcheck disable=SC2086
  generate $settings --pool pool >pooled
  same plain pooled
  [ "$(kind)" = miss ] || fail "$settings: $(kind)"
done
generate m >plain
generate m --pool pool >pooled
same plain pooled
[ "$(kind)" = whole ] || fail 'm misses its own entry'
tl-pool-register --pool pool -m "$MODELS/m2.tinyloop" prompt >/dev/null
tl-pool-evict --pool pool --model "$MODELS/m.tinyloop" >removed
[ "$(wc -l <removed)" -eq 1 ] || fail '--model'
generate m2 --pool pool >pooled
[ "$(kind)" = whole ] || fail 'the entry of m2 is gone'
generate m --pool pool >pooled
[ "$(kind)" = miss ] || fail 'the entry of m is still there'
