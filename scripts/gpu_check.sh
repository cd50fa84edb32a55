#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks tinyloop on this machine's GPU and measures its speed, in at most about eight minutes; ends with a short table.
#   scripts/gpu_check.sh             needs nvcc, cuBLAS, g++, python3, meson, ninja and no network
#   scripts/gpu_check.sh --prepare   first, where the libraries' headers are installed: collects them in scripts/gpu_headers/
# Not the tests that need no GPU: scripts/test.sh runs those.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
headers=scripts/gpu_headers

prepare() {
  local include=${1-/usr/include} part
  rm -rf "$headers"
  mkdir -p "$headers"
  for part in CLI fmt nlohmann doctest xxhash.h xxh3.h; do
    cp -r "$include/$part" "$headers/" || exit 1
  done
  echo "$headers: $(find "$headers" -type f | wc -l) headers, $(du -sk "$headers" | cut -f1) kB"
}

case ${1-} in
  '') ;;
  --prepare)
    prepare "${@:2}"
    exit
    ;;
  *)
    echo 'usage: scripts/gpu_check.sh [--prepare [INCLUDE-FOLDER]]' >&2
    exit 2
    ;;
esac

started=$SECONDS
build=build/gpu
logs=$build/check
passed=0 failed=0 skipped=0
left() { echo $((480 - (SECONDS - started))); }

# step NAME SECONDS COMMAND...: runs COMMAND with its output in a file, which is shown on failure.
step() {
  local name=$1 limit=$2 status=0
  shift 2
  local room
  room=$(left)
  if [ "$room" -lt 5 ]; then
    echo "skip $name: no time left"
    skipped=$((skipped + 1))
    return 1
  fi
  local begun=$SECONDS
  timeout "$((limit < room ? limit : room))" "$@" >"$logs/$name" 2>&1 || status=$?
  if [ "$status" -eq 0 ]; then
    echo "ok   $name ($((SECONDS - begun)) s)"
    passed=$((passed + 1))
    return 0
  fi
  echo "FAIL $name: exit status $status, $logs/$name"
  tail -n 15 "$logs/$name" | sed 's/^/     /'
  failed=$((failed + 1))
  return 1
}

finish() {
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
  exit
}

# Only this GPU's architecture: the others would take minutes to compile.
arch=sm_90
if capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1) && [[ $capability =~ ^[0-9]+\.[0-9]$ ]]; then
  arch=sm_${capability/./}
elif ! compgen -G '/dev/nvidia*' >/dev/null && [ ! -e /proc/driver/nvidia ] && [ ! -e /dev/dxg ]; then
  echo 'FAIL device: this machine has no NVIDIA GPU, or no driver for it; nothing was built'
  failed=1
  finish
else
  echo "     nvidia-smi reports no GPU although there is a driver: building for $arch"
fi
# If the toolkit has no cuBLAS, use the one from Python's packages.
nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || nvcc=
if [ ! -f "${nvcc%/bin/nvcc}/include/cublas_v2.h" ] && packages=$(python3 -c 'import nvidia, pathlib
for path in nvidia.__path__:
    for header in pathlib.Path(path).glob("*/include/cublas_v2.h"): print(header.parent.parent)' 2>/dev/null | tail -n 1) &&
  [ -n "$packages" ]; then
  export CPLUS_INCLUDE_PATH=$packages/include LD_LIBRARY_PATH=$packages/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  echo "     cuBLAS of $packages"
fi
options=(--buildtype=release -Dtests=true -Dcuda=enabled "-Dgpu_arch=$arch")
if [ -d "$headers" ]; then
  options+=("-Dheader_folder=$headers")
else
  echo "     no $headers (--prepare creates it): fmt, CLI11, nlohmann-json, xxHash and doctest must be installed"
fi
mkdir -p "$logs"
if [ ! -f "$build/build.ninja" ]; then
  step setup 60 meson setup "$build" "${options[@]}" || finish
fi
targets=(tools/tl-generate tools/tl-inspect tools/tl-bench-speed tools/tl-bench-spec
  tests/tiny-models tests/cuda/cuda-tests tests/cuda/check-cuda-kernels)
[ ! -f tools/tl-batch.cpp ] || targets+=(tools/tl-batch)
step build 300 ninja -C "$build" "${targets[@]}" || finish

export PATH=$PWD/$build/tools:$PATH
model=scripts/demo/demo.tinyloop
device=$(tl-inspect -m "$model" --json | python3 -c 'import json, sys; print("; ".join(json.load(sys.stdin)["gpus"]))')
if [ -z "$device" ]; then
  echo "FAIL device: no CUDA device: $(echo 1 | tl-generate -m "$model" --backend cuda -n 1 2>&1)"
  failed=$((failed + 1))
  finish
fi
echo "     $device, $arch"

# --- correctness ---
export TL_CUDA_DEVICE=1
step kernels 120 meson test -C "$build" --no-rebuild --print-errorlogs kernels-forward
step models 90 "$build/tests/cuda/cuda-tests" '--source-file=*/test_cuda_model.cpp'
unset TL_CUDA_DEVICE

# A prompt gets the same answer on this device with small chunks, speculation and graphs.
law() {
  local tiny=$build/tests/tiny-models option answer
  for name in m ouro huginn qwen3; do
    answer=$(echo 3 1 4 1 5 9 2 6 5 3 5 8 9 7 9 3 2 3 8 4 | tl-generate -m "$tiny/$name.tinyloop" --backend cuda \
      --prefill-chunk 16 -n 20 --seed 7) || return 1
    for option in '--prefill-chunk 1' '--prefill-chunk 5' '--prefill-chunk 32' \
      '--prefill-chunk 16 --speculative wavefront:d=1'; do
      [ "$name" != qwen3 ] || [[ $option != *speculative* ]] || continue
      # shellcheck disable=SC2086 # options are separate words
      [ "$answer" = "$(echo 3 1 4 1 5 9 2 6 5 3 5 8 9 7 9 3 2 3 8 4 | tl-generate -m "$tiny/$name.tinyloop" \
        --backend cuda -n 20 --seed 7 $option)" ] || { echo "$name $option: the answer differs"; return 1; }
    done
  done
}
step law 120 bash -c "$(declare -f law); build=$build; law"

# Some virtual machines do not let it use their GPU.
if ! command -v compute-sanitizer >/dev/null; then
  echo 'skip compute-sanitizer: not installed'
  skipped=$((skipped + 1))
elif refusal=$({ echo 1 | timeout 60 compute-sanitizer tl-generate -m "$model" --backend cuda -n 1 2>&1 || true; } |
  grep 'not supported'); then
  echo "skip compute-sanitizer: ${refusal##*= }"
  skipped=$((skipped + 1))
else
  for tool in memcheck racecheck; do
    step "$tool" 60 env TL_CUDA_DEVICE=1 compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$build/tests/cuda/cuda-tests" '--source-file=*/test_cuda_model.cpp' '--test-case=store-h*'
  done
fi

# --- speed --- the shape of Ouro-1.4B with random weights
shape=dim=2048,ffn=5632,heads=16,layers=24,loops=4,vocab=49152
for type in f16 q8; do
  step "speed-$type" 120 tl-bench-speed --backend cuda --shape "$shape" --dtype "$type" --json -q --array 4096 \
    --only limits,prefill,decode,passes --prefill 512,2048 --context 0,4096 --rows 1,4,16 --repeats 5 --seconds 40
done
step speculation 45 tl-bench-spec --backend cuda -m "$model" -n 24 --budget 30 --json -q
if [ -f tools/tl-batch.cpp ]; then
  lines() { for i in $(seq 64); do echo "65 66 67 $((i % 200))"; done; }
  lines >"$logs/lines"
  step batch 45 tl-batch --backend cuda -m "$model" -n 32 --stats --output "$logs/answers" "$logs/lines"
fi

# --- table ---
python3 - "$logs" <<'END'
import json, pathlib, sys
logs = pathlib.Path(sys.argv[1])


def read(name):
    try:
        return json.loads((logs / name).read_text())
    except (OSError, ValueError):
        return None


print(f"\n{'weights':8} {'part':8} {'rows':>5} {'context':>7} {'ms':>9} {'tokens/s':>9} {'limit':>7} {'share':>6}")
for kind in ('f16', 'q8'):
    report = read('speed-' + kind)
    for block in report['blocks'] if report else ():
        for limit in block['limits']:
            print(f"{kind:8} {'limit':8} {limit['limit']:>13} {limit['per_second'] / 1e9:>12.1f} G{limit['unit']}/s")
        for row in block['rows']:
            print(f"{kind:8} {row['part']:8} {row['rows']:>5} {row['context']:>7} {row['ms']:>9.3f} "
                  f"{row['tokens_per_second']:>9.1f} {row['limit']:>7} {100 * row['share']:>5.0f}%")
report = read('speculation')
for arm in [report['plain'], *report['arms']] if report else ():
    print(f"{'demo':8} speculation {arm['schedule']:24} {arm['tokens_per_second']:>9.1f} {arm['ratio']:>6.2f} x plain")
try:
    summary = json.loads((logs / 'batch').read_text().splitlines()[-1])['summary']
    print(f"{'demo':8} batch of {summary['lanes']} lanes {summary['tokens_per_second']:>27.1f} tokens/s")
except (OSError, ValueError, LookupError):
    pass
END
finish
