#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures tinyloop's speed targets on this machine and reports which are met: decode, prefill,
# attention, passes, growth, start-up. Builds a release if needed. Results go only to standard output.
#
#   bench_speed.sh [quick] [SHAPE]     SHAPE as for tl-bench-speed --shape; its weights should be much larger than the cache
#   THREADS=1,2 REPEATS=5              in the environment: numbers of threads, samples per figure
#
# quick: only the last number of threads, three samples, fewer contexts. Run it on an idle machine.
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."
export LC_ALL=C
unset TL_THREADS TINYLOOP_KV_INT8 TINYLOOP_KV_INT4 TINYLOOP_KV_H_MODE

quick=
if [ "${1-}" = quick ]; then
  quick=1
  shift
fi
shape=${1-dim=768,ffn=2048,heads=12,layers=12,vocab=32000}
if [ $# -gt 1 ] || [[ $shape != *=* ]]; then
  echo 'usage: scripts/bench_speed.sh [quick] [SHAPE]' >&2
  exit 2
fi
cpus=$(nproc)
threads=${THREADS-1,$cpus}
[ "$threads" != 1,1 ] || threads=1
repeats=${REPEATS-5}
contexts=0,1024,4096
if [ -n "$quick" ]; then
  threads=${threads##*,}
  repeats=${REPEATS-3}
  contexts=0,1024
fi

build=build/speed
scripts/install_packages.sh
mkdir -p "$build"
for step in "meson setup $build --buildtype=release -Dtests=false" "meson compile -C $build"; do
  [[ $step == *setup* && -f $build/build.ninja ]] && continue
  $step >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
done
PATH=$PWD/$build/tools:$PATH
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

measure() { # NAME OPTION...
  local name=$1
  shift
  tl-bench-speed --json --repeats "$repeats" --threads "$threads" -o "$folder/$name.json" "$@"
}
echo "tinyloop on $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $cpus CPUs, shape $shape"
measure weights --shape "$shape" --dtype f32,f16,q8,q4 --only prefill,decode,passes --prefill 512 --context 0 --rows 1,6
# Small weights, so that their noise does not drown out attention.
measure attention --shape "$shape" --dtype q4 --kv f32,f16,int8,int4 --only decode --context $contexts
measure growth --shape "$shape" --dtype q8 --only growth --context $contexts

# Time from the start of a process to its first id, against the decode step it contains: medians of several runs.
python3 scripts/random_checkpoint.py "$folder/checkpoint" "$shape"
tl-convert --dtype f16 "$folder/checkpoint" "$folder/model.tinyloop" >"$folder/converted"
rm -r "$folder/checkpoint"
measure step -m "$folder/model.tinyloop" --only decode --context 0
echo 1 >"$folder/prompt"
python3 - "$folder" "$((4 * repeats))" <<'PYTHON'
import json, os, statistics, subprocess, sys, time
folder, repeats = sys.argv[1], int(sys.argv[2])
model, result = f'{folder}/model.tinyloop', []
for block in json.load(open(f'{folder}/step.json'))['blocks']:
    command = ['tl-generate', '-m', model, '--threads', str(block['threads']), '-n', '1', '--temperature', '0', '--kv', 'f16',
               f'--stats={folder}/stats', f'{folder}/prompt']
    samples = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        samples.append(1000 * (time.perf_counter() - start))
    stats = json.loads(open(f'{folder}/stats').readline())
    result.append({'threads': block['threads'], 'wall_ms': statistics.median(samples[1:]), 'step_ms': block['rows'][0]['ms'],
                   'file_bytes': os.path.getsize(model), 'peak_bytes': stats['peak_resident_bytes'],
                   'working_bytes': stats['working_bytes'], 'cache_bytes': stats['cache_bytes']})
json.dump(result, open(f'{folder}/start.json', 'w'))
PYTHON
python3 scripts/bench_speed_lines.py "$folder"
