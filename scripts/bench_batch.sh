#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures what batches gain: many lanes over one, the continuous schedule over lockstep on jobs of mixed lengths, and
# sharing a common prefix. Runs alternate; ratios are of adjacent runs. Not a test: it only prints (and compares answers).
#
#   scripts/bench_batch.sh MODEL [TOOLS]      TOOLS: folder of the built tools; default: build/release/tools
# Settings: LANES (16), MIXED_LANES (8), REPEATS (3), LOOPS and THREADS (the tools' defaults), ONLY (lanes,mixed,prefix).
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo 'usage: scripts/bench_batch.sh MODEL [TOOLS]' >&2
  exit 2
fi
model=$(realpath "$1")
tools=$(realpath "${2-$(dirname "$0")/../build/release/tools}")
export PATH=$tools:$PATH LC_ALL=C
unset TL_POOL
lanes=${LANES-16} mixed=${MIXED_LANES-8} repeats=${REPEATS-3} only=${ONLY-lanes,mixed,prefix}
options=(-q -m "$model" --temperature 0 --seed 1 --ignore-eos --jsonl ${LOOPS:+--loops "$LOOPS"} ${THREADS:+--threads "$THREADS"})
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

vocab=$(tl-inspect --json -m "$model" | grep -o '"vocab":[0-9]*' | head -n 1 | cut -d : -f 2)
# jobs COUNT PREFIX OWN MIN MAX: COUNT jobs with PREFIX common and OWN other ids, for MIN to MAX tokens.
jobs() {
  awk -v vocab="$vocab" -v count="$1" -v prefix="$2" -v own="$3" -v min="$4" -v max="$5" 'BEGIN {
    srand(7)
    for (i = 0; i < prefix; ++i) common = common int(rand() * vocab) ","
    for (job = 0; job < count; ++job) {
      ids = common
      for (i = 0; i < own; ++i) ids = ids int(rand() * vocab) (i + 1 < own ? "," : "")
      printf "{\"tokens\":[%s],\"max_tokens\":%d}\n", ids, min + int(rand() * (max - min + 1))
    }
  }'
}
# seconds NAME INPUT OPTION...: prints the seconds of one run; its records go to NAME.
seconds() {
  tl-batch "${options[@]}" --stats=stats "${@:3}" "$2" >"$1"
  grep -o '"seconds":[0-9.]*' stats | cut -d : -f 2
}
# compare TITLE INPUT "A OPTION..." "B OPTION...": how many times faster B is.
compare() {
  local title=$1 input=$2 one=$3 other=$4 a b
  for _ in $(seq "$repeats"); do
    # shellcheck disable=SC2086 # options are separate words
    a=$(seconds first "$input" $one)
    # shellcheck disable=SC2086
    b=$(seconds second "$input" $other)
    cmp first second >&2
    awk -v a="$a" -v b="$b" 'BEGIN { print a / b, a, b }'
  done | sort -n | awk -v title="$title" -v one="$one" -v other="$other" '
    { ratio[NR] = $1; a[NR] = $2; b[NR] = $3 }
    END {
      m = int((NR + 1) / 2)
      printf "%s: %.2f x (%.2f .. %.2f), %s %.2f s, %s %.2f s\n", title, ratio[m], ratio[1], ratio[NR], one, a[m], other, b[m]
    }'
}

case $only in *lanes*)
  jobs "$lanes" 0 8 64 64 >equal
  compare "$lanes jobs of 64 tokens" equal '--lanes 1' "--lanes $lanes" ;;
esac
case $only in *mixed*)
  jobs $((8 * mixed)) 0 8 8 256 >mixed
  compare "$((8 * mixed)) jobs of 8 to 256 tokens" mixed "--lanes $mixed --schedule lockstep" "--lanes $mixed --schedule continuous" ;;
esac
case $only in *prefix*)
  jobs 64 512 8 8 8 >common
  compare '64 jobs with 512 common ids' common "--lanes $lanes --group none" "--lanes $lanes --group prefix" ;;
esac
