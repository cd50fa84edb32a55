#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The layer check is silent on a good tree and finds each kind of fault in a bad one.
set -euo pipefail
check=$1/scripts/check_layers.py
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

plant() { # FILE TEXT
  mkdir -p "$(dirname "$1")"
  printf '%b\n' "$2" >"$1"
}
finds() { # TEXT: with what was planted the check fails and says TEXT; then the tree is good again
  local said
  if said=$(python3 "$check" .); then
    echo "not found: $1"
    exit 1
  fi
  case $said in
    *"$1"*) ;;
    *)
      echo "expected: $1, said: $said"
      exit 1
      ;;
  esac
  rm -rf lib tools cuda tests
  good
}
good() {
  plant lib/error.h '// exit( and printf( in a comment are fine'
  plant lib/engine/forward.cpp '#include "engine/forward.h"\n#include "kv/kv_cache.h"\n#include "error.h"\n#include <cmath>'
  plant lib/files/tensor_file.cpp 'auto text = "getenv(\\"X\\") and exit(1)"; std::snprintf(buffer, 3, "x"); exit_gate();'
  plant lib/device/backend.cpp '#include "cpu/cpu_ops.h"'
  plant lib/cpu/cpu_ops.cpp '#include "cpu/kernels.h"\n#include "device/ops.h"\n#include "model/packed_matrix.h"'
  plant cuda/cuda_ops.cu '#include "device/ops.h"'
  plant tools/tl-score.cpp '#include "cli.h"\n#include "schedule/score.h"\nint main() { std::exit(1); }'
}

good
python3 "$check" . || { echo 'a good tree is refused'; exit 1; }
plant lib/kv/kv_cache.h '#include "engine/forward.h"' && finds 'lib/kv/kv_cache.h:1: may not include "engine/forward.h"'
plant lib/engine/gate.cpp '\n#include "cpu/kernels.h"' && finds 'lib/engine/gate.cpp:2: may not include "cpu/kernels.h"'
plant lib/cpu/kernels.h '#include "kv/kv_cache.h"' && finds 'may not include "kv/kv_cache.h"'
plant lib/cpu/kernels.h '#include "model/model.h"' && finds 'may not include "model/model.h"'
plant cuda/ops.cu '#include "engine/forward.h"' && finds 'may not include "engine/forward.h"'
plant tools/tl-x.cpp '#include "cpu/kernels.h"' && finds 'may not include "cpu/kernels.h"'
plant lib/error.h '#include "files/tensor_file.h"' && finds 'may not include "files/tensor_file.h"'
plant lib/files/x.cpp '#include "cli.h"' && finds 'may not include "cli.h"'
plant lib/extra/x.h '' && finds 'not in the table of layers'
plant lib/extra.h '' && finds 'not in the table of layers'
for name in lib/files/util.h lib/kv/kv_helpers.cpp tools/common.cpp lib/misc/x.cpp; do
  plant $name '' && finds 'says nothing about what is inside'
done
for line in 'std::printf("x");' 'fprintf(stderr, "x");' 'std::cerr << 1;' 'fmt::print("x");' 'std::puts("x");'; do
  plant lib/kv/x.cpp "$line" && finds 'lib/kv/x.cpp:1: prints'
done
for line in 'std::exit(1);' 'abort();' 'std::terminate();' '_exit (2);'; do
  plant cuda/x.cu "$line" && finds 'cuda/x.cu:1: ends the process'
done
plant lib/kv/x.cpp 'std::getenv("X");' && finds 'reads the environment'
plant lib/kv/x.cpp "$(yes | head -n 501)" && finds '501 lines'
rm -rf lib tools cuda
if python3 "$check" . >said; then echo 'an empty tree passes'; exit 1; fi
