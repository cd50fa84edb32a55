#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The counter of scripts/test.sh adds up what Meson's log says, and no failure can hide.
set -euo pipefail
count=$1/scripts/count_tests.py
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

counts() { # STATUS LAST_LINE LOG...
  local wanted=$1 last=$2 status=0
  shift 2
  python3 "$count" "$@" >out || status=$?
  if [ "$status" -ne "$wanted" ] || [ "$(tail -n 1 out)" != "$last" ]; then
    cat out
    echo "expected $wanted and: $last"
    exit 1
  fi
}
record() { printf '{"name": "%s", "result": "%s", "stdout": "%s"}\n' "$@"; }
summary() { printf '[doctest] test cases: %s | %s passed | %s failed | %s skipped' "$@"; }

record a OK '' >log
record b OK "$(summary ' 12' ' 11' 0 1)" >>log
record c SKIP '' >>log
record d EXPECTEDFAIL '' >>log
counts 0 '13 passed, 0 failed, 1 skipped' log
record e FAIL "$(summary 3 1 2 0)" >more
counts 1 '14 passed, 2 failed, 1 skipped' log more
record e OK "$(summary 0 0 0 9)" >more
counts 1 '13 passed, 1 failed, 1 skipped' log more
# A crash after all cases passed, before any summary, a time-out, an error: each is a failure.
for result in FAIL TIMEOUT ERROR INTERRUPT UNEXPECTEDPASS; do
  record e $result "$(summary 3 3 0 0)" >more
  counts 1 '16 passed, 1 failed, 1 skipped' log more
  record e $result 'some output' >more
  counts 1 '13 passed, 1 failed, 1 skipped' log more
done
# A build that broke leaves no log; an empty log or none at all is no success either.
counts 1 '13 passed, 1 failed, 1 skipped' log missing
: >empty
counts 1 '0 passed, 1 failed, 0 skipped' empty
counts 1 '0 passed, 0 failed, 0 skipped'
