#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks rules of the source tree that no compiler checks: includes between layers, file sizes, names, silence.

Usage: check_layers.py [ROOT]. Prints one line per fault and exits with 1 if there is any. Not a style checker.
"""

import pathlib
import re
import sys

# lib/tinyloop/ from bottom to top: a layer may include itself and those before it. Headers directly in
# lib/tinyloop/ are below all layers, except the one that chooses a backend.
LIB = 'lib/tinyloop/'
LAYERS = ('files', 'text', 'model', 'device', 'kv', 'pool', 'engine', 'sampling', 'prompt', 'schedule', 'batch', 'measure')
TOP_HEADERS = ('error.h', 'token.h', 'random.h', 'number_formats.h', 'parse_number.h')
# A pool knows bytes and names; it never sees a device.
POOL_SEES = ('files/', 'kv/snapshot.h', 'kv/cache_identity.h', 'pool/')
# The implementations of device/ops.h may include what ops.h itself may include, and their own folder.
BACKENDS = ('cpu', 'cuda')
UP_TO_OPS = ('files/', 'model/codebook.h', 'model/packed_matrix.h', 'device/')
# The one module that knows the backends, and its header.
SELECTOR = 'lib/tinyloop/backend.cpp'
SELECTOR_HEADER = 'backend.h'

# One module in two headers: the second completes a private class of the first.
ONE_MODULE = {('lib/tinyloop/engine/forward', 'lib/tinyloop/engine/forward_memory')}

SOURCES = {'.h', '.cpp', '.cu', '.cuh', '.inc'}
COUNTED = SOURCES | {'.py', '.sh'}
LONGEST = 500
WIDEST = 100
NOT_OURS = 'scripts/gpu_headers/'  # collected by gpu_check.sh, not in the repository
DRAWERS = {'util', 'utils', 'common', 'helper', 'helpers', 'misc'}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
# Comments and literals, which may mention anything.
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
FORBIDDEN = (
    ('prints', re.compile(r'\b(?:v?f?printf|puts|fputs|putchar|putc|fputc|perror)\s*\(|'
                          r'\bstd::(?:cout|cerr|clog)\b|\bfmt::print\b')),
    ('ends the process', re.compile(r'\b(?:_exit|_Exit|exit|quick_exit|abort|terminate)\s*\(')),
    ('reads the environment', re.compile(r'\b(?:secure_)?getenv\s*\(|\benviron\b')),
)


def may_include(source, header):
    """Whether the file `source` (from the root) may include `header` (as written)."""
    parts = source.split('/')
    in_lib = source.startswith(LIB)
    folder = parts[2] if in_lib and len(parts) > 3 else ''
    if source == SELECTOR and header.startswith('cuda/'):
        return True
    if not header.startswith('tinyloop/'):
        return '/' not in header and parts[0] in ('tools', 'cuda')
    header = header.removeprefix('tinyloop/')
    target = header.split('/')[0] if '/' in header else ''
    if header in TOP_HEADERS:
        return True
    if header == SELECTOR_HEADER:
        return parts[0] == 'tools' or folder == 'measure' or source == SELECTOR
    if parts[0] == 'tools':
        return target in LAYERS
    if parts[0] == 'cuda' or folder in BACKENDS:
        return (in_lib and target == folder) or header.startswith(UP_TO_OPS)
    if source in (SELECTOR, LIB + SELECTOR_HEADER):
        return target in BACKENDS + ('files', 'model', 'device')
    if folder == 'pool':
        return header.startswith(POOL_SEES)
    if folder in LAYERS and target in LAYERS:
        return LAYERS.index(target) <= LAYERS.index(folder)
    return False


def faults_of(root, path):
    name = path.relative_to(root).as_posix()
    parts = name.split('/')
    text = path.read_text(encoding='utf-8', errors='replace')
    if text.count('\n') > LONGEST:
        yield f'{name}: {text.count(chr(10))} lines, at most {LONGEST} are allowed'
    if path.suffix in SOURCES:
        for number, line in enumerate(text.split('\n'), 1):
            if len(line) > WIDEST and '"' not in line:  # texts are not cut
                yield f'{name}:{number}: {len(line)} columns, at most {WIDEST} are allowed'
    words = {word for part in parts for word in re.split(r'[-_.]', part.lower())}
    for drawer in sorted(words & DRAWERS):
        yield f'{name}: "{drawer}" does not describe the content'
    if parts[0] not in ('lib', 'tools', 'cuda') or path.suffix not in SOURCES:
        return
    if parts[0] == 'lib':
        if not name.startswith(LIB):
            yield f'{name}: sources belong below {LIB}'
        elif len(parts) > 3 and parts[2] not in LAYERS + BACKENDS:
            yield f'{name}: the folder is not in the table of layers'
        elif len(parts) == 3 and path.suffix == '.h' and parts[2] not in TOP_HEADERS + (SELECTOR_HEADER,):
            yield f'{name}: the header is not in the table of layers'
    for match in INCLUDE.finditer(text):
        if not may_include(name, match.group(1)):
            line = text.count('\n', 0, match.start()) + 1
            yield f'{name}:{line}: may not include "{match.group(1)}"'
    if parts[0] == 'tools':
        return
    code = NOT_CODE.sub(lambda m: '\n' * m.group(0).count('\n'), text)
    for what, pattern in FORBIDDEN:
        for match in pattern.finditer(code):
            line = code.count('\n', 0, match.start()) + 1
            yield f'{name}:{line}: {what}: {match.group(0).strip()}'


def mutual(root):
    """Pairs of modules (a header and a source of one stem) that include each other."""
    included = {}
    for path in sorted((root / LIB).rglob('*')):
        if path.suffix in SOURCES:
            name = path.relative_to(root).as_posix().rsplit('.', 1)[0]
            text = path.read_text(encoding='utf-8', errors='replace')
            included.setdefault(name, set()).update(
                'lib/' + header.rsplit('.', 1)[0] for header in INCLUDE.findall(text))
    for name, others in sorted(included.items()):
        for other in sorted(others):
            if name < other and name in included.get(other, ()) and (name, other) not in ONE_MODULE:
                yield f'{name}: includes {other}, which includes it'


def main(root):
    faults = list(mutual(root))
    files = 0
    for folder in ('lib', 'tools', 'cuda', 'tests', 'scripts'):
        for path in sorted((root / folder).rglob('*')):
            if path.relative_to(root).as_posix().startswith(NOT_OURS):
                continue
            if path.is_file() and path.suffix in COUNTED:
                files += 1
                faults += faults_of(root, path)
    if files == 0:
        faults.append(f'{root}: no source file')
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else '.')))
