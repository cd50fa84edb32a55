#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the README's blocks of shell commands that call the tools, in order and as they stand, in a folder that looks like
# the source tree after scripts/demo.sh.
#   run_readme.sh README TOOLS DEMO_MODEL
set -euo pipefail
readme=$(realpath "$1") tools=$(realpath "$2") demo=$(realpath "$3")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/tree/build/demo" "$folder/tree/scripts/demo" && cd "$folder/tree"
ln -s "$tools" build/demo/tools
ln -s "$demo" scripts/demo/demo.tinyloop
ln -s "$(dirname "$readme")/scripts/demo/tokenizer.json" scripts/demo/tokenizer.json
unset TL_POOL TL_BACKEND TL_THREADS TL_CPU_ISA TINYLOOP_KV_INT8 TINYLOOP_KV_INT4 TINYLOOP_KV_H_MODE

awk -v out="$folder/block" '
  /^```sh$/ { inside = 1; text = ""; next }
  /^```$/ { if (inside && text ~ /tl-/) printf "%s", text >(out n++); inside = 0; next }
  inside { text = text $0 "\n" }' "$readme"
[ "$(find "$folder" -name 'block*' | wc -l)" -ge 3 ] || { echo "$readme: where are the commands?"; exit 1; }
cat "$folder"/block* >"$folder/commands"
bash -e -o pipefail "$folder/commands" </dev/null >"$folder/out" 2>"$folder/err" || {
  cat "$folder/out" "$folder/err"
  echo "$readme: a command failed"
  exit 1
}
if [ -s "$folder/err" ]; then
  cat "$folder/err"
  echo "$readme: a command is not quiet"
  exit 1
fi
# The answers of one batch are those of single runs with these seeds.
build/demo/tools/tl-generate -m scripts/demo/demo.tinyloop --seed 1 --seed-by-line build/prompts.txt | cmp - build/answers.txt
# The pool was of use, as the text says.
[ "$(grep -c '"prefilled":4,"reused":16,' build/stats.json)" -eq 2 ] || { echo "$readme: nothing was reused"; exit 1; }
# Whatever is written is below build/, which git ignores.
[ "$(ls)" = "$(printf 'build\nscripts')" ] || { echo "$readme: the source tree is littered:" *; exit 1; }
