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
