#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds tinyloop three times (release; address and undefined-behaviour sanitizers; thread sanitizer) and runs the tests.
# `scripts/test.sh quick` stops after the release build. The last line is always "N passed, N failed, N skipped".
set -uo pipefail
exec </dev/null
cd "$(dirname "$0")/.." || exit 1

case ${1-} in
  '' | quick) ;;
  *)
    echo 'usage: scripts/test.sh [quick]' >&2
    exit 2
    ;;
esac

# Sanitizers exit with 99, which no tool uses, so a test that expects a failure cannot mistake one for it.
export ASAN_OPTIONS=exitcode=99
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:exitcode=99
export TSAN_OPTIONS=halt_on_error=1:exitcode=99

# g++ 12's thread sanitizer cannot run if the kernel randomises addresses more widely than it expects.
fixed_addresses=()
if setarch "$(uname -m)" -R true 2>/dev/null; then fixed_addresses=(setarch "$(uname -m)" -R); fi

logs=()

# run_tests FOLDER "SETUP OPTION..." TEST OPTION...; a build without a test log counts as one failed test.
run_tests() {
  local folder=$1 setup=$2
  shift 2
  local log=$folder/meson-logs/testlog.json
  logs+=("$log")
  rm -f "$log"
  printf '\n# %s: %s\n' "$folder" "$setup"
  if [ ! -f "$folder/build.ninja" ]; then
    # shellcheck disable=SC2086 # options are separate words
    meson setup "$folder" $setup || return
  fi
  meson compile -C "$folder" "${targets[@]}" || return
  "${runner[@]}" meson test -C "$folder" --no-rebuild --print-errorlogs "$@"
}

if scripts/install_packages.sh; then
  runner=() targets=()
  # Another compiler's warnings must not break a build, but no commit may add one.
  run_tests build/test "--buildtype=release -Dtests=true${CI:+ -Dwerror=true}"
  if [ "${1-}" != quick ]; then
    run_tests build/asan '-Ddebug=true -Doptimization=1 -Dtests=true -Db_sanitize=address,undefined' \
      --timeout-multiplier 5
    # Only these two programs test threads; the rest need not be built again.
    runner=("${fixed_addresses[@]}") targets=(unit-tests model-tests)
    run_tests build/tsan '-Ddebug=true -Doptimization=1 -Dtests=true -Db_sanitize=thread -Dcuda=disabled' \
      --timeout-multiplier 10 --suite unit --suite model
  fi
else
  logs+=('scripts/install_packages.sh')
fi

echo
python3 scripts/count_tests.py "${logs[@]}"
