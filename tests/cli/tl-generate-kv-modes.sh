# SPDX-License-Identifier: Apache-2.0
# Storage modes: each runs, f16 is the default, the environment sets it as --kv does, chunks and threads leave it alone.
. "$EXPECT"
generate() { tl-generate -m "$MODELS/m.tinyloop" -n 24 --temperature 0 --ignore-eos --stats=stats prompts "$@"; }

seq 1 30 | paste -s -d ' ' >prompts
generate >default
hash=$(value logits_hash stats)
for mode in f32 f16 int8 int4; do
  generate --kv $mode >$mode
  value logits_hash stats >$mode.hash
  value cache_bytes stats >$mode.bytes
  [ "$(wc -w <$mode)" -eq 54 ] || fail "$mode: not all ids"
  generate --kv $mode --prefill-chunk 7 --threads 2 >other
  same $mode other
  [ "$(value logits_hash stats)" = "$(cat $mode.hash)" ] || fail "$mode: other logits in chunks of 7"
done
same default f16
[ "$hash" = "$(cat f16.hash)" ] || fail 'f16 is not the default'
[ "$(cat ./*.hash | sort -u | wc -l)" -eq 4 ] || fail 'two modes give the same logits'
[ "$(cat f32.bytes)" -gt "$(cat f16.bytes)" ] && [ "$(cat f16.bytes)" -gt "$(cat int8.bytes)" ] &&
  [ "$(cat int8.bytes)" -gt "$(cat int4.bytes)" ] || fail 'the modes do not save memory'

TINYLOOP_KV_INT8=1 generate >other
[ "$(value logits_hash stats)" = "$(cat int8.hash)" ] || fail 'TINYLOOP_KV_INT8 is not obeyed'
TINYLOOP_KV_INT4=1 generate >other
[ "$(value logits_hash stats)" = "$(cat int4.hash)" ] || fail 'TINYLOOP_KV_INT4 is not obeyed'
TINYLOOP_KV_INT4=1 generate --kv f32 >other
[ "$(value logits_hash stats)" = "$(cat f32.hash)" ] || fail '--kv does not outrank the environment'
