# SPDX-License-Identifier: Apache-2.0
# Loops beyond the trained ones warn, beyond the greatest are refused; the statistics say how many were really run.
. "$EXPECT"
model=$MODELS/ouro.tinyloop # trained for 4 loops, runs up to 16
generate() { tl-generate -m "$model" -n 5 --temperature 0 --ignore-eos --stats=stats prompts "$@"; }

echo '3 1 4' >prompts
generate >default
[ "$(value loops stats)" -eq 4 ] || fail "the model's own number of loops"
# Three positions of the prompt and four of the answer: the last id is picked, not read.
[ "$(value loops_run stats)" -eq 28 ] || fail 'loops really run'
generate --loops 4 >four 2>err
same default four
[ ! -s err ] || fail 'a warning without cause'
generate --loops 1 >one
[ "$(value loops_run stats)" -eq 7 ] || fail 'loops really run with one'
generate --loops 16 >sixteen 2>err
holds err 'tl-generate: warning: '
holds err 'trained'
refused 2 --loops tl-generate -m "$model" --loops 17 prompts
holds err 16
refused 2 --loops tl-score -m "$model" --loops 4,17 prompts
cat default one sixteen | sort -u >kinds
[ "$(wc -l <kinds)" -gt 1 ] || fail 'the loops do nothing'
# A plain decoder is the case of one loop.
tl-generate -m "$MODELS/llama.tinyloop" -n 5 --temperature 0 --ignore-eos prompts >plain
tl-generate -m "$MODELS/llama.tinyloop" -n 5 --temperature 0 --ignore-eos --loops 1 prompts >one
same plain one
refused 2 --loops tl-generate -m "$MODELS/llama.tinyloop" --loops 2 prompts
