# SPDX-License-Identifier: Apache-2.0
# U-08: a file system of 256 KB fills up. Registration says so, earlier entries still hit, nothing partial stays; with a
# limit in bytes one entry goes instead. Needs the right to mount.
. "$EXPECT"
model=$MODELS/m.tinyloop
mkdir disk
mount -t tmpfs -o size=256k tmpfs disk 2>/dev/null || exit 77
trap 'umount disk' EXIT
line() { seq "$1" $(($1 + 39)) | paste -s -d ' '; }

status=0 count=0
while [ $status -eq 0 ] && [ $count -lt 20 ]; do
  count=$((count + 1))
  line $count | tl-pool-register --pool disk/pool -m "$model" - >out 2>err || status=$?
done
[ $status -eq 1 ] && holds err 'No space left on device' && [ ! -s out ] || fail "it never fills up"
[ -z "$(find disk -name '.tmp*')" ] || fail 'a temporary file is left'
[ "$(find disk -name '*.safetensors' | wc -l)" -eq $((count - 1)) ] || fail 'entries are gone'
tl-pool-list --pool disk/pool --verify >/dev/null

generate() { tl-generate -m "$model" -n 4 --temperature 0 --ignore-eos --stats=stats "$@"; }
for i in $(seq 1 $((count - 1))); do line "$i"; done >known
generate known >plain
generate --pool disk/pool known >pooled
same plain pooled
[ "$(grep -c '"pool_hit":"whole"' stats)" -eq $((count - 1)) ] || fail 'an earlier entry does not hit'
line 21 >new
generate new >plain
generate --pool disk/pool --pool-add --no-crop new >pooled 2>err
same plain pooled
[ "$(wc -l <err)" -eq 1 ] && holds err 'No space left on device'

# Where the pool has a limit in bytes, an entry makes room.
line 21 | tl-pool-register --pool disk/pool -m "$model" --max-bytes 100000000 - >/dev/null
[ "$(find disk -name '*.safetensors' | wc -l)" -eq $((count - 1)) ] || fail 'not one for one'
generate --pool disk/pool new >pooled
same plain pooled
grep -q '"pool_hit":"whole"' stats || fail 'the new entry does not hit'
