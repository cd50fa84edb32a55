#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Shows a looped model at work: installs missing packages, builds, and runs the bundled byte-level model.
# `scripts/demo.sh "Some text "` continues that text instead. Apart from installing packages it writes only to build/.
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")/.."
export LC_ALL=C

prompt=${1-'And the LORD said unto '}
build=build/demo
model=scripts/demo/demo.tinyloop

say() { printf '\n# %s\n' "$*"; }
quietly() {
  "$@" >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
}

# Text to token ids: this model's id is the byte itself.
ids_of_text() { od -An -v -tu1 | tr '\n' ' '; }

# Token ids to text, each as it arrives. Bytes above 127 pass unchanged; control characters other than
# tab and newline, which could upset a terminal, become question marks.
text_of_ids() {
  local id octal
  while read -r -d ' ' id || [ -n "$id" ]; do
    if [ "$id" -lt 32 ] && [ "$id" -ne 9 ] && [ "$id" -ne 10 ] || [ "$id" -eq 127 ]; then id=63; fi
    printf -v octal '%03o' "$id"
    # shellcheck disable=SC2059 # the escape is the message
    printf "\\$octal"
  done
  echo
}

scripts/install_packages.sh
say "Building the tools in $build (this takes a few minutes the first time)"
mkdir -p "$build"
[ -f "$build/build.ninja" ] || quietly meson setup "$build" --buildtype=release -Dtests=false
quietly meson compile -C "$build"
PATH=$PWD/$build/tools:$PATH
statistics=$(mktemp)
trap 'rm -f "$statistics"' EXIT

say 'The text as token ids (od), the input of every tool'
printf '%s' "$prompt" | ids_of_text
echo

say 'The model continues it, running every id eight times through the same two layers (tl-generate --stream)'
printf '%s' "$prompt"
printf '%s' "$prompt" | ids_of_text |
  tl-generate -m "$model" --only-new --stream --max-tokens 240 --temperature 0.7 --seed 4 \
    --stats="$statistics" | text_of_ids

say 'The most likely continuation with 1, 2, 4 and 8 loops of the same weights (--loops)'
for loops in 1 2 4 8; do
  printf '%s loops: ' "$loops"
  printf '%s' "$prompt" | ids_of_text |
    tl-generate -m "$model" --only-new --max-tokens 48 --temperature 0 --loops "$loops" |
    awk '{ for (i = 1; i <= NF; i++) printf "%c", $i == 10 ? 32 : $i }'
  echo
done

say 'What the loops do to the last byte of the prompt (tl-inspect --trace; tl-inspect(1) explains the columns)'
printf '%s' "$prompt" | ids_of_text | tl-inspect -m "$model" --trace

say 'The statistics of the first continuation (tl-generate --stats)'
cat "$statistics"

say "The tools are in $build/tools; continue with README.md"
