# SPDX-License-Identifier: Apache-2.0
# Early exits and shared planes: what is never reached changes nothing, what is saved is counted, refusals by name.
. "$EXPECT"
model=$MODELS/m.tinyloop
echo '5 17 3 40' >one
generate() { tl-generate -m "$model" -n 20 --temperature 0 --ignore-eos --stats=stats "$@" one; }
generate >plain
for options in '--exit latent:0' '--exit kl:0' '--exit latent:0 --exit-select' '--kv-slots 4'; do
  # shellcheck disable=SC2086
  generate $options >other
  same plain other
done
generate --exit gate:0.5 >early
[ "$(value loops_saved stats)" -gt 0 ] || fail 'nothing was saved'
# 4 prompt positions and 19 more, 4 loops each.
[ $(($(value loops_run stats) + $(value loops_saved stats))) -eq $((23 * 4)) ] || fail 'loops run and saved'
generate --exit gate:0.5 --exit-select >selected
[ "$(value loops_saved stats)" -eq 0 ] || fail 'selecting saves nothing'
[ "$(value loops_run stats)" -eq $((23 * 4)) ] || fail 'selecting runs all loops'
generate --kv-slots 1 >shared
[ "$(value cache_bytes stats)" -gt 0 ] || fail 'no cache'

refused 2 gate tl-generate -m "$MODELS/huginn.tinyloop" --exit gate:0.5 one
refused 2 --exit tl-generate -m "$model" --exit sometimes one
refused 2 --exit tl-generate -m "$model" --exit gate:2 one
refused 2 --exit-select tl-generate -m "$model" --exit-select one
refused 2 --kv-slots tl-generate -m "$model" --loops 3 --kv-slots 4 one
