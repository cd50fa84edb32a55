# SPDX-License-Identifier: Apache-2.0
# What computes can be chosen; a GPU that is not there is told with the reason by those who want it, and auto does without.
. "$EXPECT"
model=$MODELS/m.tinyloop
echo '1 2 3' >prompts
generate=(tl-generate -m "$model" -n 4 --temperature 0 prompts)
"${generate[@]}" >wanted
"${generate[@]}" --backend cpu >chosen
same wanted chosen

# Wherever these tests run, the options are refused alike.
refused 2 --threads "${generate[@]}" --backend cuda --threads 1
refused 2 --isa "${generate[@]}" --backend cuda --isa portable
refused 2 --gpu-memory "${generate[@]}" --gpu-memory 8G
refused 2 --gpu-memory "${generate[@]}" --backend cpu --gpu-memory 8G
for size in 0 8X G -1 1.5G 99999999999999G ''; do refused 2 --gpu-memory "${generate[@]}" --backend cuda "--gpu-memory=$size"; done
refused 2 backend "${generate[@]}" --backend gpu
TL_BACKEND=gpu refused 2 backend "${generate[@]}"

if [ "$(tl-inspect -m "$model" --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["gpus"]))')" -gt 0 ]; then
  # The reference is the CPU's; a budget that holds nothing is told in bytes.
  "${generate[@]}" --backend cuda >there
  refused 1 'needed' "${generate[@]}" --backend cuda --gpu-memory 1M
  exit 0
fi
"${generate[@]}" --backend auto >automatic
same wanted automatic
"${generate[@]}" --backend auto --threads 1 --gpu-memory 8G >automatic
same wanted automatic
TL_BACKEND=auto "${generate[@]}" >automatic
same wanted automatic
refused 1 CUDA "${generate[@]}" --backend cuda
TL_BACKEND=cuda refused 1 CUDA "${generate[@]}"
TL_BACKEND=cuda "${generate[@]}" --backend cpu >chosen
same wanted chosen
for tool in tl-score tl-inspect\ --trace tl-bench-spec\ -n\ 2; do refused 1 CUDA $tool -m "$model" --backend cuda prompts; done
refused 1 CUDA tl-pool-register --pool pool -m "$model" --backend cuda prompts
refused 1 CUDA tl-batch -m "$model" --backend cuda prompts
refused 1 CUDA tl-bench-speed -m "$model" --backend cuda
