# SPDX-License-Identifier: Apache-2.0
# U-07 with the tools: eight register one prefix each, eight a common one, four generate; and a registration is killed.
. "$EXPECT"
model=$MODELS/m.tinyloop
line() { seq "$1" $(($1 + 20)) | paste -s -d ' '; }
for i in $(seq 0 8); do line $((i * 4 + 1)); done >prompts
tl-generate -m "$model" -n 4 --temperature 0 --ignore-eos prompts >plain

for round in 1 2 3; do
  rm -rf pool && mkdir pool
  jobs=()
  for i in 1 2 3 4 5 6 7 8; do
    line $((i * 4 + 1)) | tl-pool-register --pool pool -m "$model" --threads 1 - >/dev/null & jobs+=($!)
    line 1 | tl-pool-register --pool pool -m "$model" --threads 1 - >/dev/null & jobs+=($!)
  done
  for i in 1 2 3 4; do
    tl-generate -q -m "$model" --pool pool --threads 1 -n 4 --temperature 0 --ignore-eos prompts >answer$i & jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job" || fail "round $round: a process failed"; done
  for i in 1 2 3 4; do same plain answer$i; done
  [ "$(find pool -name '*.safetensors' | wc -l)" -eq 9 ] || fail 'not nine entries'
  [ -z "$(find pool -name '.tmp*')" ] || fail 'a temporary file is left'
  tl-pool-list --pool pool --verify >/dev/null
  tl-generate -m "$model" --pool pool -n 4 --temperature 0 --ignore-eos --stats=stats prompts >answer
  same plain answer
  [ "$(grep -c '"pool_hit":"whole"' stats)" -eq 9 ] || fail 'not all hit'
done

# Killed after no, some or all of its work: the next one cleans up and all is well.
for delay in 0 0.002 0.004 0.006 0.008 0.01 0.015 0.02; do
  tl-pool-register --pool pool2 -m "$model" prompts >/dev/null 2>&1 & job=$!
  sleep $delay
  kill -9 $job 2>/dev/null || true
  wait $job 2>/dev/null || true
  [ ! -e pool2 ] || tl-pool-list --pool pool2 --verify >/dev/null
done
tl-pool-register --pool pool2 -m "$model" prompts >/dev/null
[ -z "$(find pool2 -name '.tmp*')" ] || fail 'a temporary file is left'
tl-generate -m "$model" --pool pool2 -n 4 --temperature 0 --ignore-eos prompts >answer
same plain answer
