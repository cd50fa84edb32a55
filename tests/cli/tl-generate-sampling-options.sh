# SPDX-License-Identifier: Apache-2.0
# Every sampling option acts, and the ones that mean greedy are greedy.
. "$EXPECT"
generate() { tl-generate -m "$MODELS/m.tinyloop" -n ${ids-16} --ignore-eos --only-new --seed 3 prompts "$@"; }

echo '3 1 4' >prompts
generate --temperature 0 >greedy
for option in '--top-k 1' '--top-p 1e-9' '--min-p 1' '--temperature 1e-6'; do
  # shellcheck disable=SC2086 # two words
  generate $option >same
  same greedy same
done
generate --top-k 50 --temperature 1 >default
generate >plain
same default plain
generate --top-k 0 --top-p 1 --min-p 0 --repetition-penalty 1 --presence-penalty 0 --frequency-penalty 0 >off
generate --top-k 64 >all
same off all
differ greedy off

# A banned id never comes up, a forced one always does.
read -r first rest <greedy
generate --temperature 0 --logit-bias "$first:-inf" >banned
! tr ' ' '\n' <banned | grep -q -x "$first" || fail 'a banned id came up'
generate --logit-bias 9:1000 >forced
[ "$(tr ' ' '\n' <forced | sort -u)" = 9 ] || fail 'a forced id did not come up'
# Penalties on what was seen already break such a run; the prompt counts for repetition only.
generate --temperature 0 --logit-bias 9:1000 --presence-penalty 2000 >penalised
[ "$(tr ' ' '\n' <penalised | grep -c -x 9)" -eq 1 ] || fail 'the presence penalty'
generate --temperature 0 --logit-bias 9:1000 --frequency-penalty 400 >penalised
[ "$(tr ' ' '\n' <penalised | grep -c -x 9)" -eq 3 ] || fail 'the frequency penalty'
echo '3 1 9' >prompts
ids=1 generate --temperature 0 --logit-bias 9:1000,8:900 --repetition-penalty 2 >penalised
[ "$(cat penalised)" = 8 ] || fail 'the repetition penalty'
