# SPDX-License-Identifier: Apache-2.0
# U-20: an unknown option, a missing or wrong value: USAGE, empty stdout, the option named.
. "$EXPECT"
model=$MODELS/m.tinyloop
echo '1 2 3' >prompts
for tool in tl-batch tl-generate tl-inspect tl-score; do
  refused 2 --temprature $tool -m "$model" --temprature 0
  refused 2 --model $tool
  refused 2 --model $tool -m
  refused 2 --threads $tool -m "$model" --threads many
  refused 2 --threads $tool -m "$model" --threads -1
  refused 2 mmx $tool -m "$model" --isa mmx
done
refused 1 missing.tinyloop tl-generate -m missing.tinyloop prompts
refused 1 missing.tinyloop tl-batch -m missing.tinyloop prompts
refused 1 missing.tinyloop tl-score -m missing.tinyloop prompts
refused 1 missing.tinyloop tl-inspect -m missing.tinyloop
refused 2 --no-such tl-convert --no-such in out.tinyloop
refused 2 q2 tl-convert --dtype q2 in out.tinyloop
ends 2 tl-convert in
ends 2 tl-convert in out.tinyloop and_more

for value in '--temperature=-1' '--temperature=nan' '--temperature=inf' '--top-k=-1' '--top-p=0' '--top-p=1.5' \
  '--min-p=-0.1' '--min-p=2' '--repetition-penalty=0' '--repetition-penalty=-1' '--presence-penalty=nan' \
  '--seed=-1' '--seed=x' '--seed=99999999999999999999' '--samples=0' '--max-tokens=-1' '--max-tokens=1.5' \
  '--loops=0' '--loops=-1' '--loops=x' '--kv=f8' '--cache-window=-1' '--prefill-chunk=-1' \
  '--logit-bias=64:1' '--logit-bias=1' '--logit-bias=1:x' '--eos=64' '--eos=-1' '--stop=64' '--stop=' \
  '--input-format=xml'; do
  refused 2 "${value%%=*}" tl-generate -m "$model" "$value" prompts
done
for value in '--loops=0' '--loops=1,x' '--loops=1,99' '--kv=f8' '--cache-window=-1'; do
  refused 2 "${value%%=*}" tl-score -m "$model" "$value" prompts
done
