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

# This model's ids are bytes; a model that was converted with its vocabulary needs no --tokenizer.
ids_of_text() { tl-tokenize --tokenizer scripts/demo/tokenizer.json --whole; }
text_of_ids() { tl-detokenize --tokenizer scripts/demo/tokenizer.json; }

scripts/install_packages.sh
say "Building the tools in $build (this takes a few minutes the first time)"
mkdir -p "$build"
[ -f "$build/build.ninja" ] || quietly meson setup "$build" --buildtype=release -Dtests=false
quietly meson compile -C "$build"
PATH=$PWD/$build/tools:$PATH
statistics=$(mktemp)
trap 'rm -f "$statistics"' EXIT

say 'The text as token ids (tl-tokenize), the input of every tool'
printf '%s' "$prompt" | ids_of_text

say 'The model continues it, running every id eight times through the same two layers (tl-generate --stream, tl-detokenize)'
printf '%s' "$prompt"
printf '%s' "$prompt" | ids_of_text |
  tl-generate -m "$model" --only-new --stream --max-tokens 240 --temperature 0.7 --seed 4 \
    --stats="$statistics" | text_of_ids

say 'The most likely continuation with 1, 2, 4 and 8 loops of the same weights (--loops)'
for loops in 1 2 4 8; do
  printf '%s loops: ' "$loops"
  printf '%s' "$prompt" | ids_of_text |
    tl-generate -m "$model" --only-new --max-tokens 48 --temperature 0 --loops "$loops" |
    text_of_ids | tr '\n' ' '
  echo
done

say 'What the loops do to the last byte of the prompt (tl-inspect --trace; tl-inspect(1) explains the columns)'
printf '%s' "$prompt" | ids_of_text | tl-inspect -m "$model" --trace

say 'The statistics of the first continuation (tl-generate --stats)'
cat "$statistics"

say "The tools are in $build/tools; continue with README.md"
