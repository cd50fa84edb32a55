# SPDX-License-Identifier: Apache-2.0
# A warm start: a prompt saved after 4 loops goes on to 16 with the answer of a run from nothing (U-11).
. "$EXPECT"
seq 1 37 | paste -s -d ' ' >one
for model in "$MODELS"/m.tinyloop "$MODELS"/huginn.tinyloop; do
  tl-generate -m "$model" --loops 4 --seed 3 -n 8 one >plain
  tl-generate -m "$model" --loops 4 --seed 3 -n 8 --save-state state one >other
  same plain other
  for loops in 4 5 16; do
    tl-generate -m "$model" --loops $loops --seed 3 -n 8 --stats=cold one >plain
    tl-generate -m "$model" --loops $loops --seed 3 -n 8 --stats=warm --resume state </dev/null >other
    same plain other
    [ "$(value logits_hash cold)" = "$(value logits_hash warm)" ] || fail 'other logits'
    missing=$((37 * (loops - 4)))
    [ $loops -gt 4 ] || missing=4 # the last position runs again, for its logits
    [ "$(value prompt_loops warm)" -eq $missing ] || fail 'not the missing loops only'
  done
  cp state kept
  tl-generate -m "$model" --loops 15 -n 0 --save-state state one >/dev/null
  tl-generate -m "$model" --loops 16 --seed 3 -n 8 --speculative wavefront:d=4 --resume state >other
  same plain other
  mv kept state
done
model=$MODELS/m.tinyloop
tl-generate -m "$model" --loops 4 -n 0 --save-state state one >/dev/null
refused 2 loops tl-generate -m "$model" --loops 3 --resume state
refused 2 'storage mode' tl-generate -m "$model" --loops 8 --kv int8 --resume state
refused 2 model tl-generate -m "$MODELS/m2.tinyloop" --loops 8 --resume state
refused 2 --resume tl-generate -m "$model" --resume state one
refused 2 '--resume and --input-format' tl-generate -m "$model" --resume state --input-format npy
refused 2 --samples tl-generate -m "$model" --resume state --samples 2
refused 2 --pool tl-generate -m "$model" --resume state --pool pool
refused 2 --save-state tl-generate -m "$model" --resume state --save-state other
refused 2 --stream tl-generate -m "$model" --stream --save-state other one
cat one one >two
refused 2 --save-state tl-generate -m "$model" --save-state other two
refused 2 'alpha / loops' tl-generate -m "$MODELS/relaxed.tinyloop" --save-state other one
# Damage is found.
python3 - <<'END'
data = bytearray(open('state', 'rb').read())
data[-1] ^= 1
open('damaged', 'wb').write(data)
open('short', 'wb').write(data[:-7])
END
for file in damaged short; do refused 1 $file tl-generate -m "$model" --loops 8 --resume $file; done
# A pool's entry is a saved state, too; without its states for as many loops only.
tl-pool-register --pool pool -m "$model" --loops 4 --resumable one >/dev/null
entry=$(find pool -name '*.safetensors')
for loops in 4 8; do
  tl-generate -m "$model" --loops $loops --seed 3 -n 8 one >plain
  tl-generate -m "$model" --loops $loops --seed 3 -n 8 --resume "$entry" >other
  same plain other
done
rm -r pool
tl-pool-register --pool pool -m "$model" --loops 4 one >/dev/null
entry=$(find pool -name '*.safetensors')
tl-generate -m "$model" --loops 4 --seed 3 -n 8 one >plain
tl-generate -m "$model" --loops 4 --seed 3 -n 8 --resume "$entry" >other
same plain other
refused 2 '--resumable' tl-generate -m "$model" --loops 8 --resume "$entry"
refused 1 missing tl-generate -m "$model" --resume missing
[ ! -e other.tinyloop ] && [ -z "$(find . -name '.tmp*')" ] || fail 'something was left behind'
