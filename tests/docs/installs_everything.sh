#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What `meson install` installs is enough: tools, pages, completions, and a library that a program can be built on with pkg-config.
#   installs_everything.sh MESON BUILD MODELS SOURCE
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
models=$(realpath "$3") source=$(realpath "$4")
"$1" install -C "$2" --no-rebuild --destdir "$folder/root" >"$folder/log" || { cat "$folder/log"; exit 1; }
cd "$folder"

find_one() { # NAME: the only installed file of that name
  local found
  found=$(find root -type f -name "$1")
  [ "$(wc -l <<<"$found")" -eq 1 ] && [ -n "$found" ] || { echo "installed as $1: ${found:-nothing}"; exit 1; }
  echo "$found"
}
for tool in tl-batch tl-bench-speed tl-convert tl-detokenize tl-generate tl-inspect tl-score tl-tokenize; do
  [ "$(find root -type f -path "*/bin/$tool" -perm -u+x | wc -l)" -eq 1 ] || { echo "$tool is not installed"; exit 1; }
  [ "$(find root -type f -path "*/completions/$tool" | wc -l)" -eq 1 ] || { echo "no completion for $tool"; exit 1; }
  find_one "$tool.1*" >/dev/null
done
for page in tl-model.5 tl-tokens.5 tinyloop.7 tl-patterns.7; do find_one "$page*" >/dev/null; done
if find root -path '*tests*' -o -name 'make-tiny*' -o -name 'libtl-*' | grep .; then
  echo 'these should not be installed'
  exit 1
fi

# A program that includes every installed header and opens a model.
command -v pkg-config >/dev/null && command -v g++ >/dev/null || exit 77
pc=$(find_one tinyloop.pc)
export PKG_CONFIG_PATH=$folder/$(dirname "$pc") PKG_CONFIG_SYSROOT_DIR=
prefix=$folder/root$(sed -n 's/^prefix=//p' "$pc")
flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs tinyloop)
include=$(dirname "$(find_one forward.h)")/..
(cd "$include" && find . -name '*.h' | sort | sed 's|^\./\(.*\)|#include "tinyloop/\1"|') >program.cpp
cat >>program.cpp <<'END'
#include <cstdio>
int main(int, char** argv) {
  if (tinyloop::make_ops("cpu", {})->arithmetic() != "cpu-1") return 1;
  std::puts(tinyloop::Model::open(argv[1]).config().family.c_str());
}
END
# shellcheck disable=SC2086 # several flags
g++ -std=c++20 -O0 program.cpp ${CXXFLAGS-} $flags -o program
[ "$(./program "$models/m.tinyloop")" = ouro ] || { echo 'the program says something else'; exit 1; }

# The README's program, built and run as its comments say; perplexities are those of tl-score.
awk '/^```cpp$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$source/README.md" >perplexity.cpp
sed -n 's|^// ||p' perplexity.cpp | head -n 2 >commands
mkdir scripts && ln -s "$source/scripts/demo" scripts/demo
sed -i "s|pkg-config|& --define-variable=prefix='$prefix'|" commands
said=$(bash -e commands)
tool=$(echo 73 110 32 116 104 101 | "$(find root -path '*/bin/tl-score')" -m scripts/demo/demo.tinyloop --loops 4 | cut -f 5)
[ "$said" = "$tool" ] || { echo "the README's program says '$said', tl-score '$tool'"; exit 1; }
