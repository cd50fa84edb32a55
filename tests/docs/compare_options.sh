#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The long options of a tool's --help and those that its page explains are the same set.
#   compare_options.sh TOOL PAGE
set -euo pipefail
command -v mandoc >/dev/null || exit 77

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
long_options() { grep -o -e '--[a-z][a-z0-9-]*' | sort -u; }

# Only where an option is introduced: at the beginning of a line of --help, in a tag of the page.
"$1" --help | grep -e '^ *-' | sed 's/   .*//' | long_options >"$folder/help"
grep -e '^\.It Fl' "$2" | sed 's/Fl Fl \([a-z]\)/--\1/g' | long_options >"$folder/page"
[ -s "$folder/help" ] || { echo "$1 --help shows no options"; exit 1; }
diff -u --label "$1 --help" --label "$2" "$folder/help" "$folder/page"

# And nowhere does the page speak of an option that there is not; examples call other tools too.
mandoc -T ascii "$2" | sed -e 's/.\x08//g' -e '/^EXAMPLES/,$d' | long_options >"$folder/mentioned"
unknown=$(comm -13 "$folder/help" "$folder/mentioned")
[ -z "$unknown" ] || { echo "$2 mentions $unknown"; exit 1; }
