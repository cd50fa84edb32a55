#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every page given must be without a remark of mandoc's and have the sections that all pages have, in the same order.
set -uo pipefail
command -v mandoc >/dev/null || exit 77

failed=0
order='NAME SYNOPSIS DESCRIPTION OPTIONS ENVIRONMENT FILES EXIT-STATUS EXAMPLES SEE-ALSO'
for page in "$@"; do
  remarks=$(mandoc -T lint -W warning "$page")
  if [ -n "$remarks" ]; then
    echo "$remarks"
    failed=1
  fi
  # Pages of tools have all sections, the others some of them.
  sections=$(sed -n 's/^\.Sh //p' "$page" | tr ' ' '-' | paste -s -d ' ')
  wanted=$order
  case $page in
    *.1) ;;
    *)
      wanted=
      for section in $order; do
        [[ " $sections " != *" $section "* ]] || wanted="$wanted${wanted:+ }$section"
      done
      ;;
  esac
  if [ "$sections" != "$wanted" ]; then
    echo "$page: the sections are $sections, not $wanted"
    failed=1
  fi
done
exit "$failed"
