# SPDX-License-Identifier: Apache-2.0
# What goes wrong around a batch: pools that are no pools, journals that are no journals, links, initial states that end,
# jobs that carry too much, priorities at the edge. No line is lost, and none of the others suffers.
. "$EXPECT"
model=$MODELS/m.tinyloop
printf '1 2 3\n4 5 6\n7 8 9\n' >in
tl-batch -m "$model" --seed 1 -n 2 in >wanted

# A pool that cannot be used costs a warning, also where prefixes were to be added to it.
: >file
ln -s loop loop
for pool in file /dev/null loop/x; do
  ends 0 tl-batch -m "$model" --seed 1 -n 2 --pool "$pool" --pool-min-share 2 in
  same wanted out
  [ "$(wc -l <err)" -eq 1 ] || fail "$(cat err)"
  holds err "$pool"
done

# It comes before the first line is read, and once.
mkfifo late
tl-batch -m "$model" --seed 1 -n 2 --pool mistyped late >out 2>err &
exec 3>late
for ((i = 0; i < 200; i++)); do [ ! -s err ] || break; sleep 0.1; done
holds err 'mistyped'
cat in >&3
exec 3>&-
wait $!
same wanted out
[ "$(wc -l <err)" -eq 1 ] || fail "$(cat err)"

# The journal's name belongs to something else: nothing is waited for, cut or removed.
mkfifo o.journal
refused 1 'o.journal: is not a regular file' tl-batch -m "$model" --seed 1 -n 2 -o o in
[ -p o.journal ] || fail 'the pipe is gone'
for target in /dev/zero /dev/null; do
  ln -sf "$target" o.journal
  refused 1 'o.journal: is not a regular file' tl-batch -m "$model" --seed 1 -n 2 -o o in
  [ -L o.journal ] || fail "the link to $target is gone"
done
rm o.journal
echo 'my diary' >o.journal
refused 1 'o.journal: is not a journal' tl-batch -m "$model" --seed 1 -n 2 -o o --continue in
[ "$(cat o.journal)" = 'my diary' ] || fail 'a foreign file was changed'
rm o.journal

# A link to the output has the output's journal.
ln -s real link && : >real
tl-batch -m "$model" --seed 1 -n 2 -o link in
same wanted real
[ -L link ] || fail 'the link became a file'
echo 'tinyloop-journal 1 x' >real.journal
refused 1 'real.journal' tl-batch -m "$model" --seed 1 -n 2 -o link in

# A file with initial states for 20 positions, and a line that needs 21 of them, in its prompt or in its answer.
huginn=$MODELS/huginn.tinyloop
python3 - <<'END'
import struct
header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (20, 32), }"
header += b' ' * (-(10 + len(header) + 1) % 64) + b'\n'
with open('states.npy', 'wb') as file:
    file.write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header)) + header)
    file.write(struct.pack('<640f', *(((i * 37) % 101 - 50) / 50 for i in range(640))))
END
{ echo 1 2 3; seq 1 25 | paste -s -d ' '; seq 1 19 | paste -s -d ' '; echo 4 5 6; } >long
ends 3 tl-batch -m "$huginn" --init-state states.npy --seed 1 -n 4 --temperature 0 --ignore-eos long
cp out batch
for line in 1 4; do
  sed -n "${line}p" long | tl-generate -m "$huginn" --init-state states.npy --seed 1 -n 4 --temperature 0 --ignore-eos >alone
  sed -n "${line}p" batch >one
  same one alone
done
for line in 2 3; do
  sed -n "${line}p" batch | grep -q "^error: long:$line: .*20 rows, none for position" || fail "line $line: $(cat batch)"
done
sed -n 2p long >one
refused 2 'one:1: ' tl-generate -m "$huginn" --init-state states.npy --seed 1 -n 4 one

# What a job carries beside its ids has a limit.
python3 - >jobs <<'END'
import json
jobs = [{"id": "x" * 4000}, {"id": "x" * 5000}, {"group": "g" * 5000}, {"group": ""}, {"stop": [[1] * 3000, [2] * 3000]},
        {"stop": [[1] * 3000, [2] * 1000]}, {"priority": -2**63}, {"priority": 2**63 - 1}]
for job in jobs:
    print(json.dumps({"tokens": [1, 2], **job}))
END
ends 3 tl-batch -m "$model" --jsonl --seed 1 -n 2 jobs
python3 - <<'END'
import json
records = [json.loads(line) for line in open("out")]
errors = {record["line"]: record["error"] for record in records if "error" in record}
assert len(records) == 8 and sorted(errors) == [2, 3, 4, 5], errors
for line, text in ((2, "longer than 4096 bytes"), (3, "longer than 4096 bytes"), (4, "empty"), (5, "4096 ids")):
    assert text in errors[line], errors
END
tail -n 2 jobs >priorities
tl-batch -m "$model" --jsonl --seed 1 -n 2 --unordered --lanes 1 priorities >out
[ "$(sed 's/{"line":\([0-9]\).*/\1/' out | tr -d '\n')" = 21 ] || fail "the greatest priority goes first: $(cat out)"

# A file without a byte is no array.
: >empty.npy
refused 2 'empty.npy' tl-generate -m "$model" --input-format npy empty.npy
ends 3 tl-batch -m "$model" --input-format npy empty.npy
holds out 'empty.npy'

# A finished output and --continue: statistics all the same.
tl-batch -m "$model" --seed 1 -n 2 -o done in
ends 0 tl-batch -m "$model" --seed 1 -n 2 -o done --continue --stats=stats in
holds stats '"summary"'

# A model that somebody cuts off while it is in use ends the run with a message, not with a signal.
cp "$model" cut.tinyloop
mkfifo requests
tl-generate -m cut.tinyloop --stream --seed 1 -n 2 <requests >answers 2>err &
worker=$!
exec 3>requests
echo 1 2 3 >&3
until [ "$(wc -l <answers)" -eq 1 ]; do kill -0 "$worker"; done
truncate -s 4096 cut.tinyloop
echo 1 2 3 >&3
exec 3>&-
status=0
wait "$worker" || status=$?
[ "$status" -eq 1 ] || fail "exit status $status"
holds err 'was truncated while in use'
