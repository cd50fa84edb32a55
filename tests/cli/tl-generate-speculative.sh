# SPDX-License-Identifier: Apache-2.0
# Speculation from the shell: the same answers and logits by every schedule, honest statistics, refusals by name.
. "$EXPECT"
{ seq 1 40 | paste -s -d ' '; echo '5 6'; echo '63'; } >prompts
hashes() { grep -o '"logits_hash":"[0-9a-f]*"' "$1"; }
for model in "$MODELS"/m.tinyloop "$MODELS"/huginn.tinyloop; do
  for options in '--temperature 0' '--seed 7 --repetition-penalty 1.2' '--seed 3 --cache-window 8 --kv int8' \
    '--seed 4 --exit latent:0.3' '--seed 5 --stop 3 --eos 9 --loops 5'; do
    # shellcheck disable=SC2086 # options are separate words
    tl-generate -m "$model" -n 24 $options --stats=plain.stats prompts >plain
    hashes plain.stats >plain.hashes
    for schedule in block:d=1,k=4 block:d=3,k=2 tree:d=1,width=3,depth=2 wavefront:d=1 wavefront:d=2 auto; do
      # shellcheck disable=SC2086
      tl-generate -m "$model" -n 24 $options --speculative $schedule --stats=stats prompts >other
      same plain other
      hashes stats >other.hashes
      same plain.hashes other.hashes
    done
  done
done
# With --stream, samples, JSON and a pool too.
model=$MODELS/m.tinyloop
tl-generate -m "$model" -n 12 --seed 2 --samples 3 --jsonl --input-format text prompts >plain
tl-generate -m "$model" -n 12 --seed 2 --samples 3 --jsonl --input-format text --speculative block prompts >other
same plain other
tl-generate -m "$model" -n 12 --seed 2 prompts >plain
tl-generate -m "$model" -n 12 --seed 2 --stream --speculative wavefront prompts >other
same plain other
for _ in 1 2; do
  tl-generate -m "$model" -n 12 --seed 2 --pool pool --pool-add --speculative tree prompts >other
  same plain other
done

# Draft loops = loops: every draft is right (U-13).
echo '5 17 3 40' >one
tl-generate -m "$model" -n 41 --temperature 0 --ignore-eos --speculative block:d=4,k=4 --stats=stats one >/dev/null
[ "$(value accepted stats)" = "$(value verified stats)" ] || fail 'full drafts were rejected'
[ "$(value accepted stats)" -gt 0 ] || fail 'nothing was drafted'
[ $(($(value accepted stats) + $(value undrafted stats))) -eq "$(value generated stats)" ] || fail 'accepted + undrafted'

refused 2 --loops tl-generate -m "$model" --loops 3 --speculative block:d=4 one
holds err --speculative
refused 2 --kv-slots tl-generate -m "$model" --kv-slots 2 --speculative block one
holds err --speculative
refused 2 '--exit kl' tl-generate -m "$MODELS/huginn.tinyloop" --exit kl:0.1 --speculative block one
holds err --speculative
refused 2 --speculative tl-generate -m "$model" --speculative fast one
refused 2 --speculative tl-generate -m "$model" --speculative block:d=0 one
