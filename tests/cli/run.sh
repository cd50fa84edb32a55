#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs one shell case in a clean folder; it must print nothing and end with 0. Not a test itself: the cases are NAME.sh.
#
#   run.sh TOOLS MODELS NAME.sh     TOOLS: folder of the built tools; MODELS: folder of the tiny models
#
# 77 from the case itself means skipped.
set -uo pipefail

if [ $# -ne 3 ]; then
  echo 'usage: run.sh TOOLS MODELS CASE.sh' >&2
  exit 2
fi
tools=$(cd "$1" && pwd) && models=$(cd "$2" && pwd) && case=$(realpath "$3") || exit 2

folder=$(mktemp -d) || exit 2
trap 'chmod -R u+rwx "$folder"; rm -rf "$folder"' EXIT
mkdir "$folder/work" && cd "$folder/work" || exit 2

# Nothing of the caller's environment may change an answer.
unset TL_POOL TL_BACKEND TL_THREADS TL_CPU_ISA TINYLOOP_KV_INT8 TINYLOOP_KV_INT4 TINYLOOP_KV_H_MODE
CASES=$(dirname "$case")
export CASES MODELS=$models PATH=$tools:$PATH LC_ALL=C
export EXPECT=$CASES/expect.sh

bash -eu -o pipefail "$case" </dev/null >"$folder/said" 2>&1
status=$?
[ "$status" -ne 77 ] || exit 77
if [ "$status" -ne 0 ] || [ -s "$folder/said" ]; then
  echo "$(basename "$case"): exit status $status, it said:"
  cat "$folder/said"
  exit 1
fi
