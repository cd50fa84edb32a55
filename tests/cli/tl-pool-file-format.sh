# SPDX-License-Identifier: Apache-2.0
# A snapshot is an ordinary safetensors file: a short reader that knows nothing of tinyloop opens it; see tl-pool(5).
. "$EXPECT"
seq 1 40 | paste -s -d ' ' >prompt
tl-pool-register --pool pool -m "$MODELS/m.tinyloop" --kv f16 prompt >/dev/null
file=$(find pool -name '*.safetensors')
python3 - "$file" <<'END'
import json, struct, sys
data = open(sys.argv[1], 'rb').read()
(length,) = struct.unpack('<Q', data[:8])
header = json.loads(data[8:8 + length])
meta = header.pop('__metadata__')
end = 0
for name, tensor in sorted(header.items(), key=lambda item: item[1]['data_offsets']):
    first, last = tensor['data_offsets']
    assert first == end, 'a hole'
    end = last
    size = {'I32': 4, 'F32': 4, 'U8': 1}[tensor['dtype']]
    for extent in tensor['shape']: size *= extent
    assert size == last - first, name
assert 8 + length + end == len(data)
first, last = header['ids']['data_offsets']
ids = struct.unpack('<40i', data[8 + length + first:8 + length + last])
assert ids == tuple(range(1, 41)), ids
# M: 2 layers at 4 loops, 2 heads of 16 channels, f16: 3 tiles of 16 positions, K and V.
assert header['kv']['shape'] == [8, 2, 3, 2 * 16 * 16 * 2], header['kv']
assert 'last' not in header and 'states' not in header, header
assert (8 + length + header['kv']['data_offsets'][0]) % 64 == 0
assert meta['format'] == 'tinyloop snapshot 2' and meta['loops'] == '4' and meta['kv'] == 'f16', meta
assert len(meta['checksum']) == 16 and len(meta['plane_checksums']) == 8 * 16, meta
END
# The one-liner of the manual page, where the public reader is installed.
python3 -c 'import safetensors.numpy' 2>/dev/null || exit 0
python3 -c 'import sys, safetensors.numpy as s; print(*s.load_file(sys.argv[1])["ids"])' "$file" >ids
same prompt ids
