# SPDX-License-Identifier: Apache-2.0
# --memory refuses a job that can never fit; what --lanes auto guesses of a machine that is full for a moment refuses none.
# Needs the right to mount.
. "$EXPECT"
model=$MODELS/m.tinyloop
printf '1 2 3\n4 5 6\n' >in
tl-batch -m "$model" --seed 1 -n 2 in >wanted
ends 3 tl-batch -m "$model" --seed 1 -n 2 --lanes auto --memory 1000 in
holds out 'more than the 1000 of --memory'
# What is refused is what would be used: one tile of 16 positions of 2 heads of 16, keys and values in f16, 2 layers by 4 loops.
ends 0 tl-batch -m "$model" --seed 1 -n 2 --memory 16384 in
same wanted out
ends 3 tl-batch -m "$model" --seed 1 -n 2 --memory 16383 in
holds out 'may need 16384 bytes'
for free in 100 0; do
  printf 'MemAvailable: %s kB\n' $free >meminfo
  unshare -m bash -c 'mount --bind meminfo /proc/meminfo && grep -q -x -F -f meminfo /proc/meminfo' 2>/dev/null || exit 77
  ends 0 unshare -m bash -c 'mount --bind meminfo /proc/meminfo && "$@"' - \
    tl-batch -m "$model" --seed 1 -n 2 --lanes auto --stats=stats in
  same wanted out
  [ "$(wc -l <stats)" -eq 3 ] || fail "$(cat stats)"
done
