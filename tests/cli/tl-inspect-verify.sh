# SPDX-License-Identifier: Apache-2.0
# --verify reads every byte: one flipped bit anywhere is found; a cut or altered file is never run.
. "$EXPECT"
model=$MODELS/m.tinyloop
tl-inspect -m "$model" --verify >out
size=$(stat -c %s "$model")
header=$(python3 -c 'import sys; print(8 + int.from_bytes(open(sys.argv[1], "rb").read(8), "little"))' "$model")
flip() { # OFFSET: a copy with one bit of that byte turned over
  python3 - "$model" "$1" <<'END'
import sys
data = bytearray(open(sys.argv[1], 'rb').read())
data[int(sys.argv[2])] ^= 4
open('flipped', 'wb').write(data)
END
}
# Weights: the first and last byte, the middle; only --verify looks at them, and names the tensor.
for offset in "$header" $(((header + size) / 2)) $((size - 1)); do
  flip "$offset"
  refused 1 flipped tl-inspect -m flipped --verify
done
# The header: one byte in 97.
echo '1 2 3' >prompts
python3 - "$model" "$header" <<'END'
import subprocess, sys
whole = open(sys.argv[1], 'rb').read()
for offset in range(0, int(sys.argv[2]), 97):
    data = bytearray(whole)
    data[offset] ^= 4
    open('flipped', 'wb').write(data)
    tool = subprocess.run(['tl-inspect', '-m', 'flipped', '--verify'], capture_output=True, text=True)
    assert tool.returncode == 1 and not tool.stdout, (offset, tool)
    assert tool.stderr.startswith('tl-inspect: flipped: ') and tool.stderr.count('\n') == 1, (offset, tool.stderr)
END
for length in 0 1 7 8 9 $((header - 1)) "$header" $((size / 2)) $((size - 1)); do
  head -c "$length" "$model" >cut
  refused 1 cut tl-generate -m cut prompts
  refused 1 cut tl-score -m cut prompts
  refused 1 cut tl-inspect -m cut
done
{ cat "$model"; printf x; } >longer
refused 1 longer tl-generate -m longer prompts
refused 1 prompts tl-generate -m prompts prompts
mkdir folder
refused 1 folder tl-generate -m folder prompts
