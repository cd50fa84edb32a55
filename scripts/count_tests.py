#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the tests in Meson's logs and prints "N passed, N failed, N skipped"; exits with 1 if any failed.

A doctest program counts as the test cases it ran (its skipped cases belong to another
call of the same program), any other program as one test. A missing log (the build
failed first) counts as one failed test. Does not run anything.
"""

import json
import re
import sys

SUMMARY = re.compile(
    r'\[doctest\] test cases: *\d+ *\| *(\d+) passed *\| *(\d+) failed')
COLOUR = re.compile(r'\x1b\[[0-9;]*m')
PASSED = ('OK', 'EXPECTEDFAIL')


def count_test(record):
    """(passed, failed, skipped) of one line of testlog.json."""
    result = record['result']
    summary = SUMMARY.search(COLOUR.sub('', record.get('stdout') or ''))
    if summary and result != 'SKIP':
        passed, failed = map(int, summary.groups())
        # All cases passed but the program failed: a crash, a time-out or a sanitizer after the summary.
        # No case at all: a filter that matches nothing.
        if failed == 0 and (result not in PASSED or passed == 0):
            failed = 1
        return passed, failed, 0
    if result in PASSED:
        return 1, 0, 0
    if result == 'SKIP':
        return 0, 0, 1
    return 0, 1, 0


def count_log(path):
    totals = [0, 0, 0]
    notes = []
    try:
        with open(path, encoding='utf-8') as log:
            records = [json.loads(line) for line in log if line.strip()]
    except OSError:
        return (0, 1, 0), [f'failed: {path} was not written: the build failed']
    for record in records:
        counts = count_test(record)
        totals = [a + b for a, b in zip(totals, counts)]
        if counts[1]:
            notes.append(f'failed: {record["name"]} ({record["result"]}) in {path}')
        elif record['result'] == 'SKIP':
            notes.append(f'skipped: {record["name"]} in {path}')
    if not records:
        totals[1] += 1
        notes.append(f'failed: {path} contains no test')
    return totals, notes


def main(paths):
    totals = [0, 0, 0]
    for path in paths:
        counts, notes = count_log(path)
        totals = [a + b for a, b in zip(totals, counts)]
        for note in notes:
            print(note)
    passed, failed, skipped = totals
    print(f'{passed} passed, {failed} failed, {skipped} skipped')
    return 1 if failed or not paths else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
