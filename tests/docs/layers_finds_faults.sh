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
  plant lib/tinyloop/error.h '// exit( and printf( in a comment are fine'
  plant lib/tinyloop/engine/forward.cpp '#include "tinyloop/engine/forward.h"\n#include "tinyloop/kv/kv_cache.h"\n#include "tinyloop/error.h"\n#include <cmath>'
  plant lib/tinyloop/files/tensor_file.cpp 'auto text = "getenv(\\"X\\") and exit(1)"; std::snprintf(buffer, 3, "x"); exit_gate();'
  plant lib/tinyloop/backend.cpp '#include "tinyloop/cpu/cpu_ops.h"'
  plant lib/tinyloop/cpu/cpu_ops.cpp '#include "tinyloop/cpu/kernels.h"\n#include "tinyloop/device/ops.h"\n#include "tinyloop/model/packed_matrix.h"'
  plant cuda/cuda_ops.cu '#include "tinyloop/device/ops.h"'
  plant tools/tl-score.cpp '#include "cli.h"\n#include "tinyloop/measure/score.h"\nint main() { std::exit(1); }'
}

good
python3 "$check" . || { echo 'a good tree is refused'; exit 1; }
plant lib/tinyloop/kv/kv_cache.h '#include "tinyloop/engine/forward.h"' && finds 'lib/tinyloop/kv/kv_cache.h:1: may not include "tinyloop/engine/forward.h"'
plant lib/tinyloop/engine/gate.cpp '\n#include "tinyloop/cpu/kernels.h"' && finds 'lib/tinyloop/engine/gate.cpp:2: may not include "tinyloop/cpu/kernels.h"'
plant lib/tinyloop/cpu/kernels.h '#include "tinyloop/kv/kv_cache.h"' && finds 'may not include "tinyloop/kv/kv_cache.h"'
plant lib/tinyloop/cpu/kernels.h '#include "tinyloop/model/model.h"' && finds 'may not include "tinyloop/model/model.h"'
plant cuda/ops.cu '#include "tinyloop/engine/forward.h"' && finds 'may not include "tinyloop/engine/forward.h"'
plant tools/tl-x.cpp '#include "tinyloop/cpu/kernels.h"' && finds 'may not include "tinyloop/cpu/kernels.h"'
plant lib/tinyloop/error.h '#include "tinyloop/files/tensor_file.h"' && finds 'may not include "tinyloop/files/tensor_file.h"'
plant lib/tinyloop/files/x.cpp '#include "cli.h"' && finds 'may not include "cli.h"'
plant lib/tinyloop/kv/a.h '#include "tinyloop/kv/b.h"' && plant lib/tinyloop/kv/b.cpp '#include "tinyloop/kv/b.h"\n#include "tinyloop/kv/a.h"' &&
  finds 'lib/tinyloop/kv/a: includes lib/tinyloop/kv/b, which includes it'
plant lib/x.h '' && finds 'sources belong below lib/tinyloop/'
plant lib/tinyloop/pool/folder.h '#include "tinyloop/kv/kv_cache.h"' && finds 'may not include "tinyloop/kv/kv_cache.h"'
plant lib/tinyloop/pool/folder.h '#include "tinyloop/device/ops.h"' && finds 'may not include "tinyloop/device/ops.h"'
plant lib/tinyloop/kv/snapshot.cpp '#include "tinyloop/backend.h"' && finds 'may not include "tinyloop/backend.h"'
plant lib/tinyloop/extra/x.h '' && finds 'not in the table of layers'
plant lib/tinyloop/extra.h '' && finds 'not in the table of layers'
for name in lib/tinyloop/files/util.h lib/tinyloop/kv/kv_helpers.cpp tools/common.cpp lib/tinyloop/misc/x.cpp; do
  plant $name '' && finds 'does not describe the content'
done
for line in 'std::printf("x");' 'fprintf(stderr, "x");' 'std::cerr << 1;' 'fmt::print("x");' 'std::puts("x");'; do
  plant lib/tinyloop/kv/x.cpp "$line" && finds 'lib/tinyloop/kv/x.cpp:1: prints'
done
for line in 'std::exit(1);' 'abort();' 'std::terminate();' '_exit (2);'; do
  plant cuda/x.cu "$line" && finds 'cuda/x.cu:1: ends the process'
done
plant lib/tinyloop/kv/x.cpp 'std::getenv("X");' && finds 'reads the environment'
plant lib/tinyloop/kv/x.cpp "$(yes | head -n 501)" && finds '501 lines'
rm -rf lib tools cuda
if python3 "$check" . >said; then echo 'an empty tree passes'; exit 1; fi
