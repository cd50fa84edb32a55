# SPDX-License-Identifier: Apache-2.0
# --states holds the state after each loop: those of fewer loops are the beginning of those of more.
. "$EXPECT"
printf '3 1 4 15 9 2\n7 5\n' >prompts
tl-score -m "$MODELS/m.tinyloop" --kv f32 --loops 4 --states four.npy prompts >scores
tl-score -m "$MODELS/m.tinyloop" --kv f32 --loops 2 --states two.npy prompts >scores
tl-score -m "$MODELS/m.tinyloop" --kv f32 --loops 4 --prefill-chunk 4 --threads 2 --states other.npy prompts >scores
same four.npy other.npy
# A free initial state: what is given in a file is what zero says when the file is zero.
python3 - <<'END'
import re

def read(path):
    data = open(path, 'rb').read()
    size = int.from_bytes(data[8:10], 'little')
    assert (10 + size) % 64 == 0 and data[:8] == b'\x93NUMPY\x01\x00', path
    shape = tuple(map(int, re.search(r'\(([^)]*)\)', data[10:10 + size].decode()).group(1).split(',')))
    return shape, data[10 + size:]

shape, four = read('four.npy')
assert shape == (8, 4, 32), shape
shape, two = read('two.npy')
assert shape == (8, 2, 32), shape
row = 32 * 4
for position in range(8):
    assert four[position * 4 * row:(position * 4 + 2) * row] == two[position * 2 * row:(position * 2 + 2) * row], position
header = "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 32), }"
header += ' ' * (-(len(header) + 11) % 64) + '\n'
open('zero.npy', 'wb').write(b'\x93NUMPY\x01\x00' + len(header).to_bytes(2, 'little') + header.encode() + bytes(6 * row))
END
huginn=$MODELS/huginn.tinyloop
tl-score -m "$huginn" --init-state zero prompts >zero
tl-score -m "$huginn" --init-state zero.npy prompts >file
same zero file
tl-score -m "$huginn" prompts >default
tl-score -m "$huginn" --init-state seed:0 prompts >seed_0
same default seed_0
tl-score -m "$huginn" --init-state seed:1 prompts >seed_1
differ seed_0 seed_1
differ seed_0 zero
refused 2 'seed:x' tl-score -m "$huginn" --init-state seed:x prompts
echo '1 2 3 4 5 6 7' >longer
refused 2 'position 6' tl-score -m "$huginn" --init-state zero.npy longer
