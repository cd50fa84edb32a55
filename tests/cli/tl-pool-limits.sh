# SPDX-License-Identifier: Apache-2.0
# U-09: capacity and policy are kept in the pool; entries go one by one, a separate process each time.
. "$EXPECT"
model=$MODELS/m.tinyloop
register() { tl-pool-register --pool "$1" -m "$model" "${@:2}" - >/dev/null; }
line() { seq "$1" "$(($1 + 10 + $2))" | paste -s -d ' '; }
lengths() { find "$1" -name '*.safetensors' -printf '%f\n' | cut -d - -f 1 | sort -n | paste -s -d ' '; }
use() { tl-generate -m "$model" --pool "$1" -n 1 --temperature 0 - >/dev/null; }

# Lengths 11, 12, 13, 14, 15; the first is used between the third and the fourth.
line 1 0 | register lru --capacity 3
for i in 1 2; do line $((i * 5)) $i | register lru; done
line 1 0 | use lru
for i in 3 4; do
  line $((i * 5)) $i | register lru
  [ "$(find lru -name '*.safetensors' | wc -l)" -eq 3 ] || fail 'above the capacity'
done
[ "$(lengths lru)" = '11 14 15' ] || fail "lru: $(lengths lru)"

line 1 5 | register shortest --capacity 2 --policy shortest
line 7 1 | register shortest
line 9 0 | register shortest   # the newcomer stays, the shortest present goes
[ "$(lengths shortest)" = '11 16' ] || fail "shortest: $(lengths shortest)"
refused 2 "--capacity: '0' is not an integer of at least 1" tl-pool-register --pool shortest -m "$model" --capacity 0 <(echo 1 2 3)
[ "$(lengths shortest)" = '11 16' ] || fail "capacity 0: $(lengths shortest)"
register shortest --capacity 1 <<<'1 2 3'
[ "$(lengths shortest)" = '3' ] || fail "capacity 1: $(lengths shortest)"
# Older programs kept 0, which meant 1.
sed -i 's/"capacity":1,/"capacity":0,/' shortest/pool.json
register shortest <<<'1 2 4'
[ "$(lengths shortest)" = '3' ] || fail 'capacity 0 of an old pool'
tl-pool-list --pool shortest | grep -q 'entries 1 of 1,' || fail 'capacity 0 is listed'

# A pool that holds too much already, and a limit in bytes.
for i in 0 1 2 3; do line $((i * 5 + 1)) $i | register bytes; done
one=$(find bytes -name '11-*.safetensors' -printf '%s\n')
line 41 4 | register bytes --max-bytes $((3 * one + 100))
for i in 5 6; do
  [ "$(find bytes -name '*.safetensors' -printf '%s\n' | paste -s -d + | bc)" -le $((3 * one + 100)) ] || fail 'too many bytes'
  line $((i * 5 + 2)) $i | register bytes
done
tl-pool-list --pool bytes --json >list
python3 - <<'END'
import json
totals = json.load(open('list'))['totals']
assert totals['policy'] == 'lru' and totals['max_bytes'] > 0 and totals['bytes'] <= totals['max_bytes'], totals
END
tl-pool-evict --pool bytes --to-bytes "$one" >removed
[ "$(find bytes -name '*.safetensors' | wc -l)" -le 1 ] || fail '--to-bytes'
# Numbers of bytes, as in other tools.
for size in 100K=102400 3M=3145728 2G=2147483648 0=0; do
  line 1 0 | register sizes --max-bytes "${size%=*}"
  grep -q "\"max_bytes\":${size#*=}," sizes/pool.json || fail "--max-bytes $size: $(cat sizes/pool.json)"
done
for size in 1T -1 K 1.5M 9999999999G; do
  refused 2 "--max-bytes: '$size' is not a number of bytes" tl-pool-register --pool sizes -m "$model" "--max-bytes=$size" <(echo 1)
  refused 2 "--to-bytes: '$size' is not a number of bytes" tl-pool-evict --pool sizes "--to-bytes=$size"
done
tl-pool-evict --pool sizes --to-bytes 1M >removed
[ ! -s removed ] || fail '--to-bytes 1M'
tl-pool-evict --pool sizes --to-bytes 1K >removed
[ "$(wc -l <removed)" -eq 1 ] || fail '--to-bytes 1K'
tl-pool-evict --pool lru --older-than 30d >removed
[ ! -s removed ] || fail '--older-than 30d removed something new'
tl-pool-evict --pool lru --older-than 0 >removed
[ "$(wc -l <removed)" -eq 3 ] || fail '--older-than 0'

# More prefixes in one command than there is room for: all are named, and a warning says what is gone already.
printf '%s\n' '1 2 3' '4 5 6' '7 8 9' '1 2 4' >four
tl-pool-register --pool few --capacity 3 -m "$model" four >out 2>warned
[ "$(wc -l <out)" -eq 4 ] || fail 'not all prefixes are named'
holds warned 'few: 1 of these prefixes have already been evicted'
[ "$(find few -name '*.safetensors' | wc -l)" -eq 3 ] || fail 'above the capacity'
