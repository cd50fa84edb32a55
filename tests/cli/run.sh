#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs one shell case in a clean folder and compares what it prints and how it ends with the files beside it.
# Not a test itself: the cases are NAME.sh. After an idea of zstd's tests.
#
#   run.sh TOOLS MODELS NAME.sh     TOOLS: folder of the built tools; MODELS: folder of the tiny models
#   NAME.out NAME.err               what standard output and error must be, byte by byte; no file: empty
#   NAME.out.glob NAME.err.glob     the same as a shell pattern
#   NAME.exit                       the exit status; no file: 0. 77 from the case itself means skipped
#   UPDATE=1                        writes the files anew in place of comparing (patterns are left alone)
set -uo pipefail

if [ $# -ne 3 ]; then
  echo 'usage: run.sh TOOLS MODELS CASE.sh' >&2
  exit 2
fi
tools=$(cd "$1" && pwd) && models=$(cd "$2" && pwd) && case=$(realpath "$3") || exit 2
expected=${case%.sh}

folder=$(mktemp -d) || exit 2
trap 'chmod -R u+rwx "$folder"; rm -rf "$folder"' EXIT
mkdir "$folder/work" && cd "$folder/work" || exit 2

# Nothing of the caller's environment may change an answer.
unset TL_POOL TL_BACKEND TL_THREADS TL_CPU_ISA TINYLOOP_KV_INT8 TINYLOOP_KV_INT4 TINYLOOP_KV_H_MODE
CASES=$(dirname "$case")
export CASES MODELS=$models PATH=$tools:$PATH LC_ALL=C
export EXPECT=$CASES/expect.sh

bash -eu -o pipefail "$case" </dev/null >"$folder/out" 2>"$folder/err"
status=$?
[ "$status" -ne 77 ] || exit 77

failed=0
complain() {
  echo "$(basename "$case"): $1"
  failed=1
}

# check NAME: the file $folder/NAME against the expectation.
check() {
  local actual=$folder/$1 wanted=$expected.$1
  if [ -f "$wanted.glob" ]; then
    # shellcheck disable=SC2053 # a pattern it is
    [[ $(cat "$actual") == $(cat "$wanted.glob") ]] && return
    complain "$1 does not match $(basename "$wanted").glob, it is:"
    cat "$actual"
    return
  fi
  if [ "${UPDATE-}" = 1 ]; then
    if [ -s "$actual" ]; then cp "$actual" "$wanted"; else rm -f "$wanted"; fi
    return
  fi
  [ -f "$wanted" ] || wanted=/dev/null
  cmp -s "$wanted" "$actual" && return
  complain "$1 differs (- expected, + got):"
  diff -u "$wanted" "$actual" | tail -n +3
}

check out
check err
if [ "${UPDATE-}" = 1 ]; then
  if [ "$status" -ne 0 ]; then echo "$status" >"$expected.exit"; else rm -f "$expected.exit"; fi
else
  wanted_status=0
  [ ! -f "$expected.exit" ] || wanted_status=$(cat "$expected.exit")
  [ "$status" -eq "$wanted_status" ] || complain "exit status $status, $wanted_status expected"
fi
exit "$failed"
