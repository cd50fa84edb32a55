# SPDX-License-Identifier: Apache-2.0
# U-18: logits that are not numbers end the run with step and position named, and no stream of zeros.
. "$EXPECT"
model=$MODELS/nan.tinyloop

echo '1 7 2' >poisoned
refused 1 'step 1' tl-generate -m "$model" -n 8 --temperature 0 poisoned
holds err 'position 3'
refused 1 'step 1' tl-generate -m "$model" -n 8 poisoned
# Score looks at every position, so it finds what id 7 at position 1 does first; trace at the last one.
refused 1 'not finite at position 2' tl-score -m "$model" poisoned
refused 1 'not finite at position 3' tl-inspect -m "$model" --trace poisoned

# A prompt that does not hold id 7 is answered, as by the model without the NaN, until 7 comes up.
echo '1 2 3' >clean
tl-generate -m "$model" -n 8 --temperature 0 --logit-bias 7:-inf clean >answer
tl-generate -m "$MODELS/m.tinyloop" -n 8 --temperature 0 --logit-bias 7:-inf clean >wanted
same wanted answer
