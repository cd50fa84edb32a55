# SPDX-License-Identifier: Apache-2.0
# U-18: of four lines one meets logits that are not numbers. Its record is an error that names the step, the others are right.
. "$EXPECT"
printf '1 2 3\n1 7 2\n4 5 6\n9 8\n' >in
options=(-n 8 --temperature 0 --logit-bias 7:-inf)
tl-generate -m "$MODELS/m.tinyloop" "${options[@]}" in >wanted
sed -i '2s/.*/error: in:2: step 1: logits are not finite at position 3: nan for id 0/' wanted
for schedule in lockstep continuous; do
  for lanes in 1 2 4; do
    ends 3 tl-batch -m "$MODELS/nan.tinyloop" "${options[@]}" --schedule $schedule --lanes $lanes in
    same wanted out
  done
done
ends 3 tl-batch -m "$MODELS/nan.tinyloop" "${options[@]}" --jsonl --input-format text in
[ "$(sed -n 2p out)" = '{"line":2,"error":"in:2: step 1: logits are not finite at position 3: nan for id 0"}' ] || fail "$(cat out)"
