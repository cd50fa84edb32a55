#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints lib/text/unicode_additions.cpp: the characters added to Unicode between 14 and 16, by category.

Needs Python 3.11, which has Unicode 14, and unicodedata2 16.0.0 from PyPI. Not part of the build.
"""

import sys
import unicodedata

import unicodedata2

HEAD = '''// SPDX-License-Identifier: Apache-2.0
// Characters that came to Unicode between 14 and 16, by category. Made by
// scripts/unicode_additions.py from the Unicode Character Database; not to be edited.
#include "tinyloop/text/unicode_additions.h"

namespace tinyloop {

namespace {

constexpr UnicodeAddition kAdditions[] = {
'''

FOOT = '''};

}  // namespace

std::span<const UnicodeAddition> unicode_additions() { return kAdditions; }

}  // namespace tinyloop
'''


def main():
    if (unicodedata.unidata_version, unicodedata2.unidata_version) != ('14.0.0', '16.0.0'):
        sys.exit('unicode_additions: needs Unicode 14.0.0 and 16.0.0')
    ranges = []
    for code in range(0x110000):
        category = unicodedata2.category(chr(code))
        if category == 'Cn' or unicodedata.category(chr(code)) != 'Cn':
            continue
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == category:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, category])
    # No Python module has script names; Han is the only script used here.
    ranges += [[0x2b739, 0x2b739, 'Han'], [0x2ebf0, 0x2ee5d, 'Han'], [0x31350, 0x323af, 'Han']]
    line = '   '
    print(HEAD, end='')
    for first, last, category in ranges:
        row = f' {{0x{first:x}, 0x{last:x}, "{category}"}},'
        if len(line + row) > 100:
            print(line)
            line = '   '
        line += row
    print(line)
    print(FOOT, end='')


main()
