# SPDX-License-Identifier: Apache-2.0
# U-04: whatever happens to a file of the pool, the answer is the plain one, with at most one line on stderr that names it.
. "$EXPECT"
model=$MODELS/m.tinyloop
generate() { tl-generate -m "$model" -n 6 --temperature 0 --ignore-eos "$@"; }
seq 1 20 | paste -s -d ' ' >one
seq 5 30 | paste -s -d ' ' >two
cat one two >both
generate both >plain
tl-pool-register --pool good -m "$model" both >/dev/null
generate --pool good both >/dev/null

# try FILE MUST_WARN: after the damage both prompts are answered right.
try() {
  generate --pool pool both >answer 2>err
  same plain answer
  [ "$(wc -l <err)" -le 1 ] || { cat err >&2; fail "$1: more than one line"; }
  [ "$2" = no ] || holds err "$1"
}

find good -type f | sed 's,^good/,,' | sort >files
while read -r file; do
  warns=no
  [[ $file != *.safetensors ]] || warns=yes
  size=$(stat -c %s "good/$file")
  for damage in '-s 0' '-s 1' "-s $((size / 2))" "-s $((size - 1))" grow folder forbid; do
    rm -rf pool && cp -r good pool
    case $damage in
      grow) printf x >>"pool/$file" ;;
      folder) rm "pool/$file" && mkdir "pool/$file" ;;
      forbid)
        # Root may read everything.
        chmod 0 "pool/$file"
        [ "$(id -u)" -ne 0 ] || continue
        ;;
      *) truncate $damage "pool/$file" ;;
    esac
    try "pool/$file" $warns
  done
done <files

# The settings: one warning, and all entries hit; what is registered is stored, nothing is evicted and nothing written over
# until --capacity says again how much the pool may hold.
tl-pool-register --pool good -m "$model" --capacity 2 both >/dev/null
for damage in missing empty half grow random folder pipe loop; do
  rm -rf pool && cp -r good pool
  file=pool/pool.json
  case $damage in
    missing) rm $file ;;
    empty) : >$file ;;
    half) truncate -s 20 $file ;;
    grow) printf x >>$file ;;
    random) printf '\377\000\003{[' >$file ;;
    folder) rm $file && mkdir $file ;;
    pipe) rm $file && mkfifo $file ;;
    loop) rm $file && ln -s pool.json $file ;;
  esac
  for add in '' --pool-add; do
    cp -r pool again
    generate --pool again $add --stats both >answer 2>err
    same plain answer
    [ "$(grep -c 'warning: again/pool.json: ' err)" -eq 1 ] || { cat err >&2; fail "$damage $add: not one warning"; }
    [ "$(grep -c '"pool_hit":"whole"' err)" -eq 2 ] || { cat err >&2; fail "$damage $add: no hits"; }
    rm -r again
  done
  tl-pool-list --pool pool 2>err | grep -q 'entries 2 of ?' || fail "$damage: not listed"
  tl-pool-list --pool pool --json 2>/dev/null | grep -q '"capacity":null' || fail "$damage: a capacity"
  holds err 'warning: pool/pool.json: '
  echo 1 2 3 4 5 6 7 >third
  before=$(stat -c '%F %s' $file 2>/dev/null || echo none)
  tl-pool-register --pool pool -m "$model" third >/dev/null 2>err
  [ "$(grep -c 'warning: pool/pool.json: .*--capacity' err)" -eq 1 ] || { cat err >&2; fail "$damage: not one warning"; }
  [ "$(stat -c '%F %s' $file 2>/dev/null || echo none)" = "$before" ] || fail "$damage: written over"
  tl-pool-list --pool pool 2>/dev/null | grep -q 'entries 3 of ?' || fail "$damage: an entry is gone"
  refused 1 '--to-bytes' tl-pool-evict --pool pool --to-bytes 0
  refused 2 'needs --capacity' tl-pool-register --pool pool -m "$model" --policy lru third
  case $damage in
    folder | pipe) refused 1 'pool/pool.json: ' tl-pool-register --pool pool -m "$model" --capacity 2 third ;;
    *)
      tl-pool-register --pool pool -m "$model" --capacity 2 third >/dev/null 2>err
      same good/pool.json $file
      tl-pool-list --pool pool | grep -q 'entries 2 of 2' || fail "$damage: --capacity does nothing"
      ;;
  esac
done

# A flipped bit in the planes, and the whole check finds it.
rm -rf pool && cp -r good pool
victim=$(find pool -name '20-*')
printf '\377' | dd of="$victim" bs=1 seek=$(($(stat -c %s "$victim") - 700)) conv=notrunc 2>/dev/null
ends 1 tl-pool-list --pool pool --verify
holds err "$victim"
[ "$(wc -l <err)" -eq 1 ] || fail 'the sound entry is blamed too'
try "$victim" yes
tl-pool-register --pool pool -m "$model" both >/dev/null   # repairs
tl-pool-list --pool pool --verify >/dev/null
