# SPDX-License-Identifier: Apache-2.0
# --cache-window W: position p sees p-W+1 .. p; the answer equals that of prompts cut to what can be seen.
. "$EXPECT"
generate() { tl-generate -m "$model" --temperature 0 --ignore-eos --only-new --stats=stats -n "$@"; }

model=$MODELS/m.tinyloop
seq 1 40 | paste -s -d ' ' >prompts
generate 12 prompts >full
hash=$(value logits_hash stats)
generate 12 --cache-window 64 prompts >wide
same full wide
[ "$(value logits_hash stats)" = "$hash" ] || fail 'a window wider than the stream changes the logits'
generate 12 --cache-window 0 prompts >off
same full off
for window in 1 4 16 17; do
  generate 12 --cache-window $window prompts >plain
  hash_here=$(value logits_hash stats)
  [ "$hash_here" != "$hash" ] || fail "window $window changes nothing"
  for chunk in 1 7 64; do
    generate 12 --cache-window $window --prefill-chunk $chunk prompts >other
    same plain other
    [ "$(value logits_hash stats)" = "$hash_here" ] || fail "window $window, chunk $chunk: other logits"
  done
  # From scratch, with every beginning as a prompt of its own.
  paste -d ' ' prompts plain >stream
  for length in $(seq 40 51); do cut -d ' ' -f "1-$length" stream; done >beginnings
  generate 1 --cache-window $window beginnings | paste -s -d ' ' >recomputed
  same plain recomputed
done
# A window of one sees itself only: what stands before cannot matter (rotations cancel out).
for prompt in '1 2 3 40' '9 9 40'; do echo "$prompt" | generate 1 --cache-window 1; done | sort -u >last
[ "$(wc -l <last)" -eq 1 ] || fail 'a window of one sees more than itself'

# Memory is bounded by the window: a prompt of 400 ids needs much less than without one.
model=$MODELS/llama.tinyloop
seq 1 400 | awk '{ print $1 % 64 }' | paste -s -d ' ' >prompts
generate 12 prompts >full
all=$(value cache_bytes stats)
generate 12 --cache-window 32 --prefill-chunk 16 prompts >windowed
[ "$(value cache_bytes stats)" -lt $((all / 4)) ] || fail 'the window does not bound the memory'
