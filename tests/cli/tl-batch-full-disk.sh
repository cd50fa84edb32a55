# SPDX-License-Identifier: Apache-2.0
# The disk fills up, first under the journal and then under the final file: exit 1 with the cause, nothing partial under the
# output's name, and --continue finishes once there is room. Needs the right to mount.
. "$EXPECT"
model=$MODELS/m.tinyloop
mkdir disk
mount -t tmpfs -o size=64k tmpfs disk 2>/dev/null || exit 77
trap 'umount disk' EXIT
for i in $(seq 0 999); do echo "$((i % 64)) $((i / 64))"; done >in
batch=(tl-batch -m "$model" -n 24 --seed 3 --ignore-eos in)
"${batch[@]}" >wanted
[ "$(stat -c %s wanted)" -gt 65536 ] || fail 'it fits'

head -c 65536 /dev/zero >disk/full 2>/dev/null || true
refused 1 'out.journal: No space left on device' "${batch[@]}" -o disk/out
[ "$(ls disk)" = full ] || fail 'an empty journal is left'
rm disk/full

refused 1 'out.journal: No space left on device' "${batch[@]}" -o disk/out
[ ! -e disk/out ] && [ -s disk/out.journal ] || fail "$(ls disk)"
[ -z "$(tail -c 1 disk/out.journal | tr -d '\n')" ] || fail 'half a line was left'
refused 1 'out.journal: No space left on device' "${batch[@]}" -o disk/out --continue
refused 2 --continue "${batch[@]}" -o disk/out

# Now the journal fits, but not the output beside it.
mount -o remount,size=160k disk
refused 1 'disk/out: No space left on device' "${batch[@]}" -o disk/out --continue
[ ! -e disk/out ] && [ -z "$(find disk -name '.tmp*')" ] || fail 'a part of the output is there'
[ "$(wc -l <disk/out.journal)" -eq 1001 ] || fail 'the journal is not complete'
mount -o remount,size=1m disk
ends 0 "${batch[@]}" -o disk/out --continue
same wanted disk/out
[ "$(ls -A disk)" = out ] || fail "$(ls -A disk)"
