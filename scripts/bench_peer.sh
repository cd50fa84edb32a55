#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures tinyloop beside llama.cpp on this machine: one random looped model, made as GGUF and converted, so that both hold
# the same weights; decode, prefill, a batch of 16, start-up and a stored prompt in alternation. Prints a table with ratios.
#
#   bench_peer.sh [SHAPE]     such as dim=768,ffn=2048,heads=12,layers=12,loops=4,vocab=32000, the default
#   PEER=FOLDER REPEATS=5     in the environment: where llama-cpp-python is built (outside this folder), samples per figure
#
# The first run builds llama-cpp-python from source, which takes ten minutes or more. Run it on an idle machine.
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."
export LC_ALL=C
unset TL_THREADS TL_POOL TINYLOOP_KV_INT8 TINYLOOP_KV_INT4 TINYLOOP_KV_H_MODE

shape=${1-dim=768,ffn=2048,heads=12,layers=12,loops=4,vocab=32000}
if [ $# -gt 1 ] || [[ $shape != *=* ]]; then
  echo 'usage: scripts/bench_peer.sh [SHAPE]' >&2
  exit 2
fi
peer=${PEER-${XDG_CACHE_HOME-$HOME/.cache}/tinyloop-peer}
build=build/speed
scripts/install_packages.sh
mkdir -p "$build" "$peer"
for step in "meson setup $build --buildtype=release -Dtests=false" "meson compile -C $build"; do
  # shellcheck disable=SC2086 # words
  if ! $step >"$build.log" 2>&1; then
    tail -n 30 "$build.log" >&2
    exit 1
  fi
done
if ! "$peer/venv/bin/python" -c 'import llama_cpp, numpy' 2>/dev/null; then
  echo 'building llama-cpp-python from source' >&2
  python3 -m venv "$peer/venv"
  if ! "$peer/venv/bin/pip" install --no-binary llama-cpp-python llama-cpp-python numpy >"$peer/build.log" 2>&1; then
    tail -n 30 "$peer/build.log" >&2
    exit 1
  fi
fi
"$peer/venv/bin/python" scripts/bench_peer.py --tools "$build/tools" --folder "$peer" --shape "$shape" --repeats "${REPEATS-5}"
