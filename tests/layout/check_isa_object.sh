#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails if an object compiled for one instruction set defines any symbol for the linker but its kernel table:
# a weak one could replace the portable copy of an inline function and crash older CPUs.
# Usage: check_isa_object.sh OBJECT|ARCHIVE NM
set -eu
object=$1
nm=$2

symbols=$("$nm" --defined-only --extern-only --demangle "$object")
# An archive's member names (they end in a colon) are no symbols; data of the compiler's own is no danger: DW.ref.
# (unoptimised builds), __odr_asan. (address sanitizer).
visible=$(printf '%s\n' "$symbols" |
  awk 'NF && !/:$/ && !/ [VB] (DW\.ref\.|__odr_asan\.)/ { sub(/^[0-9a-fA-F]* /, ""); print }')
if printf '%s\n' "$visible" | grep -Evq '^[DRBG] tinyloop::kernels_[a-z0-9]+$'; then
  echo "$object: only the kernel table may be visible, but there is:" >&2
  printf '%s\n' "$visible" >&2
  exit 1
fi
if [ "$(printf '%s\n' "$visible" | wc -l)" -ne 1 ]; then
  echo "$object: one kernel table expected, found:" >&2
  printf '%s\n' "$visible" >&2
  exit 1
fi
