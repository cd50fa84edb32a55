#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the examples of a manual page, as a reader would type them, in a clean folder: every command must succeed quietly.
#   run_examples.sh PAGE TOOLS MODELS DEMO_MODEL
# A line "$ command" begins a command, "> more" goes on with it. The folder holds demo.tinyloop, a tokenizer.json, and
# checkpoints under the names that the pages use.
set -euo pipefail
command -v mandoc >/dev/null || exit 77

page=$(realpath "$1") tools=$(realpath "$2") models=$(realpath "$3") demo=$(realpath "$4")
texts=$(realpath "$(dirname "$0")/../text")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/work" && cd "$folder/work"
ln -s "$demo" demo.tinyloop
ln -s "$models/ouro-hf" Ouro-1.4B
ln -s "$models/llama-hf" Llama-3.2-1B
ln -s "$texts/byte_level.json" tokenizer.json
seq -s ' ' 1 60 >text.ids
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$(dirname "$texts")/cli python3 - "$models/qwen3-hf" <<'END'
import sys, gguf
open('Qwen3-0.6B.gguf', 'wb').write(gguf.gguf(*gguf.from_hf(*gguf.plain(*gguf.hf_folder(sys.argv[1])))))
END
unset TL_POOL TL_BACKEND TL_THREADS TL_CPU_ISA TINYLOOP_KV_INT8 TINYLOOP_KV_INT4 TINYLOOP_KV_H_MODE
export PATH=$tools:$PATH

# Rendered, so that escapes are what a reader sees.
mandoc -T ascii -O width=500 "$page" | sed 's/.\x08//g' | awk '
  /^[A-Z]/ { inside = $0 == "EXAMPLES" }
  inside && sub(/^ *\$ /, "") { if (command != "") print command; command = $0; next }
  inside && command != "" && sub(/^ *> /, "") { command = command "\n" $0; next }
  command != "" { print command; command = "" }
  END { if (command != "") print command }' >"$folder/commands"

if ! grep -q . "$folder/commands"; then
  ! grep -q '^\.Sh EXAMPLES' "$page" || { echo "$page: EXAMPLES without a command"; exit 1; }
  exit 0
fi
cat "$folder/commands"
bash -e -o pipefail "$folder/commands" </dev/null 2>"$folder/err" || {
  cat "$folder/err"
  echo "$page: an example failed"
  exit 1
}
if [ -s "$folder/err" ]; then
  cat "$folder/err"
  echo "$page: an example is not quiet"
  exit 1
fi
