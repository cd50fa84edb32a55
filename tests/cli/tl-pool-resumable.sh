# SPDX-License-Identifier: Apache-2.0
# A resumable entry of 4 loops serves runs with 5 and 16; it stays as it is (U-11).
. "$EXPECT"
seq 1 37 | paste -s -d ' ' >entry
echo "$(cat entry) 50 51 52" >longer
for model in "$MODELS"/m.tinyloop "$MODELS"/huginn.tinyloop; do
  rm -rf pool
  tl-pool-register --pool pool -m "$model" --loops 4 --resumable entry >registered
  cp pool/*/37-*.safetensors before
  tl-pool-list --pool pool --json >listed
  holds listed '"resumable":true'
  tl-pool-list --pool pool --verify >/dev/null
  for loops in 5 16; do
    for prompt in entry longer; do
      tl-generate -m "$model" --loops $loops --seed 3 -n 8 --stats=cold $prompt >plain
      tl-generate -m "$model" --loops $loops --seed 3 -n 8 --stats=warm --pool pool $prompt >other
      same plain other
      [ "$(value logits_hash cold)" = "$(value logits_hash warm)" ] || fail 'other logits'
      [ "$(value pool_hit warm) $(value pool_reused warm) $(value pool_loops warm)" = 'warm 37 4' ] || fail 'no warm start'
      rest=$(($(wc -w <$prompt) - 37))
      [ "$(value prompt_loops warm)" -eq $((37 * (loops - 4) + rest * loops)) ] || fail 'not the missing loops only'
    done
  done
  same before pool/*/37-*.safetensors
  tl-generate -m "$model" --loops 4 --seed 3 -n 8 --stats=warm --pool pool longer >/dev/null
  [ "$(value pool_hit warm)" = prefix ] || fail 'no hit at its own loops'
done
# An entry without states is replaced when it is registered with them, and not the other way round.
model=$MODELS/m.tinyloop
rm -rf pool
for resumable in '' --resumable ''; do
  tl-pool-register --pool pool -m "$model" --loops 4 $resumable entry >/dev/null
  tl-pool-list --pool pool --json >listed
  echo "$resumable $(grep -o '"resumable":[a-z]*' listed)" >>story
done
printf '%s\n' ' "resumable":false' '--resumable "resumable":true' ' "resumable":true' >told
same story told
refused 2 '--resumable: ' tl-pool-register --pool pool -m "$MODELS/relaxed.tinyloop" --resumable entry
holds err 'alpha / loops'
refused 2 '--resumable needs stored keys and values; --kv h8 stores layer inputs' tl-pool-register --pool pool -m "$model" --kv h8 --resumable entry
