#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures what a prefix pool saves: a shared-prefix workload with and without a pool, eight mixed prefixes, first-id
# latency, bytes on disk, and the memory of eight processes on one prefix. Not a test: it only prints.
#
#   scripts/bench_pool.sh MODEL [TOOLS]      TOOLS: folder of the built tools; default: build/release/tools
# PREFIX, REQUESTS, TAIL and NEW change the workload (1024, 32, 64, 32); the model's context must hold them all.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo 'usage: scripts/bench_pool.sh MODEL [TOOLS]' >&2
  exit 2
fi
model=$(realpath "$1")
tools=$(realpath "${2-$(dirname "$0")/../build/release/tools}")
export PATH=$tools:$PATH LC_ALL=C
unset TL_POOL
prefix=${PREFIX-1024} requests=${REQUESTS-32} tail=${TAIL-64} new=${NEW-32}
folder=$(mktemp -d)
children=()
cleanup() {
  [ ${#children[@]} -eq 0 ] || kill "${children[@]}" 2>/dev/null || true
  rm -rf "$folder"
}
trap cleanup EXIT
cd "$folder"

vocab=$(tl-inspect --json -m "$model" | grep -o '"vocab":[0-9]*' | head -n 1 | cut -d : -f 2)
# ids SEED COUNT: prints COUNT ids on one line.
ids() {
  awk -v seed="$1" -v count="$2" -v vocab="$vocab" 'BEGIN {
    srand(seed)
    for (i = 0; i < count; ++i) printf "%s%d", i ? " " : "", int(rand() * vocab)
    print ""
  }'
}
generate() { tl-generate -m "$model" --temperature 0 --ignore-eos "$@"; }
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.3f", b - a }'; }
# median KEY FILE: prints the median of KEY in the lines of a statistics file.
median() {
  grep -o "\"$1\":[0-9.]*" "$2" | cut -d : -f 2 | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

ids 1 "$prefix" >one
for i in 2 3 4 5 6 7 8; do ids $i "$prefix"; done | cat one - >eight
for i in $(seq "$requests"); do
  echo "$(cat one) $(ids $((100 + i)) "$tail")" >>shared
  echo "$(sed -n "$((i % 8 + 1))p" eight) $(ids $((200 + i)) "$tail")" >>mixed
done

start=$(now)
tl-pool-register --pool one.pool -m "$model" one >/dev/null
echo "registering a prefix of $prefix: $(since "$start") s"
start=$(now)
tl-pool-register --pool eight.pool -m "$model" eight >/dev/null
echo "registering eight of them: $(since "$start") s"

# workload NAME FILE POOL
workload() {
  local start seconds rate
  start=$(now)
  generate -n "$new" --stats=stats "${@:3}" "$2" >"$1.ids"
  seconds=$(since "$start")
  rate=$(awk -v n="$requests" -v s="$seconds" 'BEGIN { printf "%.3f", n / s }')
  echo "$1: $seconds s, $rate requests/s, first id after $(median first_token_ms stats) ms, decode step $(
    median decode_ms stats | awk -v n="$new" '{ printf "%.1f", (n > 1 ? $1 / (n - 1) : 0) }') ms"
}
workload 'shared prefix, no pool' shared
workload 'shared prefix, pool' shared --pool one.pool
workload 'eight prefixes, no pool' mixed
workload 'eight prefixes, pool' mixed --pool eight.pool
cmp 'shared prefix, no pool.ids' 'shared prefix, pool.ids'
cmp 'eight prefixes, no pool.ids' 'eight prefixes, pool.ids'

# Time to a process's first id, including its start: for the whole prompt, and for one id more.
cp one whole
echo "$(cat one) 7" >longer
for prompt in whole longer; do
  for _ in 1 2 3 4 5; do
    start=$(now)
    generate -n 1 --pool one.pool $prompt >/dev/null
    since "$start"
    echo
  done | sort -n | awk -v what=$prompt '{ v[NR] = $1 } END { print "process with one id, " what " prompt: " v[3] " s" }'
done

echo "bytes on disk: one prefix $(du -b one.pool/*/*.safetensors | cut -f 1), eight $(
  du -bc eight.pool/*/*.safetensors | tail -n 1 | cut -f 1)"

# Eight processes at once; each has read the whole prefix once its second id is written.
for i in 1 2 3 4 5 6 7 8; do
  tl-generate -m "$model" --temperature 0 --ignore-eos -n 100000 --threads 1 --stream --only-new --pool one.pool \
    longer >out$i 2>/dev/null &
  children+=($!)
done
for i in 1 2 3 4 5 6 7 8; do
  until [ "$(wc -w <out$i)" -ge 2 ]; do sleep 0.1; done
done
for child in "${children[@]}"; do cat "/proc/$child/smaps"; done | awk -v file=one.pool/ -v model="$model" '
  /^[0-9a-f]+-/ { kind = index($0, file) ? "pool" : index($0, model) ? "model" : "private" }
  /^Rss:/ { rss[kind] += $2 }
  /^Pss:/ { pss[kind] += $2 }
  END {
    for (kind in rss) printf "eight processes, %s: %d KiB mapped and resident, %d KiB of memory\n", kind, rss[kind], pss[kind]
  }'
