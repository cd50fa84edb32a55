# SPDX-License-Identifier: Apache-2.0
# --shard: every line is in one shard, in the same place as without; paste merges text, "line" sorts JSON.
. "$EXPECT"
model=$MODELS/m.tinyloop
for i in $(seq 0 22); do echo "$i $((i * 7 % 64))"; done >in
sed -i '9s/.*/x/' in
options=(-m "$model" -n 5 --seed 3)
batch() { tl-batch "${options[@]}" "$@"; }
ends 3 batch in
mv out wanted
for n in 1 2 3 7 30; do
  for i in $(seq 0 $((n - 1))); do
    status=0
    batch --shard "$i/$n" -o "part.$i" in || status=$?
    [ $status -eq $((8 % n == i ? 3 : 0)) ] || fail "exit status $status for $i/$n"
  done
  # shellcheck disable=SC2046 # several names
  paste -d '\n' $(seq -f 'part.%.0f' 0 $((n - 1))) | head -n "$(wc -l <in)" >merged
  same wanted merged
done
sizes=$(for i in 0 1 2; do batch --shard $i/3 in | wc -l; done | sort -n | paste -s -d ' ') || true
[ "$sizes" = '7 8 8' ] || fail "not balanced: $sizes"

# Through all files; the line is that of the file. Formats other than text are cut the same way.
head -n 10 in >one
tail -n +11 in >two
batch --shard 1/4 in >wanted
batch --shard 1/4 one two >got
same wanted got
ends 3 batch --jsonl --input-format text in
mv out wanted
for i in 0 1 2; do
  ends $((i == 2 ? 3 : 0)) batch --jsonl --input-format text --shard $i/3 in
  mv out "part.$i"
done
sort -t : -k 2 -n part.0 part.1 part.2 >got
same wanted got
python3 - <<'END'
import struct
rows = [[1, 2], [3, 4], [5, 6]]
header = "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2)}".ljust(117) + '\n'
open('a.npy', 'wb').write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header)) + header.encode()
                          + b''.join(struct.pack('<2i', *row) for row in rows))
END
batch --input-format npy a.npy >wanted
for i in 0 1; do batch --input-format npy --shard $i/2 a.npy >part.$i; done
paste -d '\n' part.0 part.1 | head -n 3 >got
same wanted got

for shard in 1 1/ /2 2/2 -1/2 1/0 a/b 1/2/3 ' 1/2'; do refused 2 --shard tl-batch "${options[@]}" --shard="$shard" in; done
