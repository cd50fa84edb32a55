# SPDX-License-Identifier: Apache-2.0
# U-08 and kin: no such pool, a file in its place, a newer format, read-only, full: generation goes on, registration says why.
. "$EXPECT"
model=$MODELS/m.tinyloop
generate() { tl-generate -m "$model" -n 6 --temperature 0 --ignore-eos "$@" prompt; }
seq 1 20 | paste -s -d ' ' >prompt
generate >plain

# warns TEXT OPTION...: the plain answer, and one warning.
warns() {
  generate "${@:2}" >answer 2>err
  same plain answer
  [ "$(wc -l <err)" -eq 1 ] || { cat err >&2; fail "not one line: $*"; }
  holds err "$1"
  holds err 'tl-generate: warning: '
}

warns 'nowhere: No such file or directory' --pool nowhere
[ ! -e nowhere ] || fail 'the pool was made'
generate --pool nowhere --quiet 2>err >answer
[ ! -s err ] || fail '--quiet is not obeyed'
echo precious >file
warns 'file: Not a directory' --pool file
warns 'file: Not a directory' --pool file --pool-add
refused 1 'file: Not a directory' tl-pool-register --pool file -m "$model" prompt
refused 1 'file: Not a directory' tl-pool-list --pool file
refused 1 'nowhere: No such file' tl-pool-list --pool nowhere
refused 1 'nowhere: No such file' tl-pool-evict --pool nowhere --all
[ "$(cat file)" = precious ] || fail 'the file was touched'

tl-pool-register --pool pool -m "$model" prompt >/dev/null
cp -r pool newer
echo '{"format":2,"new":true}' >newer/pool.json
cp -r newer before
warns 'newer/pool.json: pool of format 2' --pool newer
warns 'newer/pool.json: pool of format 2' --pool newer --pool-add
refused 1 'pool of format 2' tl-pool-register --pool newer -m "$model" prompt
refused 1 'pool of format 2' tl-pool-list --pool newer
refused 1 'pool of format 2' tl-pool-evict --pool newer --all
diff -r before newer >&2 || fail 'the newer pool was touched'

# A file size limit stands for a full disk: an entry does not fit, the pool stays as it is.
{ seq 1 60 | paste -s -d ' '; } >long
cp -r pool before2
(ulimit -f 8 && ends 1 tl-pool-register --pool pool -m "$model" long && [ ! -s out ]) || fail 'no error'
holds err 'File too large'
[ -z "$(find pool -name '.tmp*')" ] || fail 'a temporary file was left'
tl-pool-list --pool pool --verify | grep -q 'entries 1 of 16' || fail 'the earlier entry is gone'
(ulimit -f 8 && tl-generate -m "$model" -n 2 --temperature 0 --pool pool --pool-add long >answer 2>err) || fail 'generate failed'
tl-generate -m "$model" -n 2 --temperature 0 long >wanted
same wanted answer
[ "$(wc -l <err)" -eq 1 ] && holds err 'File too large'

# A folder that may only be read still serves; the count cannot be kept.
run=()
if [ "$(id -u)" -eq 0 ]; then
  command -v setpriv >/dev/null || exit 77
  run=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  chmod 755 .. . && cp "$model" open.tinyloop && chmod a+r open.tinyloop prompt
  tools=$(mktemp -d) && cp "$(command -v tl-generate)" "$(command -v tl-pool-register)" "$tools" && chmod -R a+rx "$tools"
  trap 'rm -rf "$tools"' EXIT
else
  cp "$model" open.tinyloop
  tools=$(dirname "$(command -v tl-generate)")
fi
chmod -R a-w,a+rX pool
"${run[@]}" "$tools/tl-generate" -m open.tinyloop -n 6 --temperature 0 --ignore-eos --pool pool --stats prompt >answer 2>err
same plain answer
holds err '"pool_hit":"whole"'
[ "$(grep -c 'warning: pool/uses.log: Permission denied' err)" -eq 1 ] || { cat err >&2; fail 'no warning'; }
status=0
"${run[@]}" "$tools/tl-pool-register" --pool pool -m open.tinyloop long >out 2>err || status=$?
[ "$status" -eq 1 ] && holds err 'Permission denied'
chmod -R u+w pool

refused 2 --pool-add tl-generate -m "$model" --pool-add prompt
refused 2 --no-crop tl-generate -m "$model" --no-crop prompt
refused 2 --pool tl-pool-list
refused 2 --policy tl-pool-register --pool pool -m "$model" --policy oldest prompt
refused 2 '--all' tl-pool-evict --pool pool --all 3-00000000000000000000000000000000
refused 2 'is not an entry key' tl-pool-evict --pool pool nonsense
refused 1 'no entry' tl-pool-evict --pool pool 3-00000000000000000000000000000000
refused 2 'nothing to evict' tl-pool-evict --pool pool
refused 2 '--older-than' tl-pool-evict --pool pool --older-than soon
refused 2 'prompt too long' tl-generate -m "$model" --pool pool <(seq 0 70 | awk '{ printf "%s ", $1 % 60 }') || true

# Side files of any size are not read whole, and cost no answer and no registration.
tl-pool-register --pool large -m "$model" prompt >/dev/null
generate --pool large >answer
for name in "$(basename large/*.order)" uses.log uses.sum; do
  cp -r large swollen
  truncate -s 8G "swollen/$name"
  generate --pool swollen >answer
  same plain answer
  ends 0 tl-pool-register --pool swollen -m "$model" long
  ends 0 tl-pool-list --pool swollen
  holds out 'entries 2 of 16'
  rm -r swollen
done

# Settings that cannot be read now may be sound: nothing is evicted by others in their place, and nothing is rewritten.
cp -r large unread
sed -i 's/"capacity":16/"capacity":99/' unread/pool.json
chmod 000 unread/pool.json
as=
if [ "$(id -u)" -eq 0 ]; then  # who may read everything
  chmod 755 . && chmod -R a+rwX . && chown -R 65534:65534 unread && chmod 000 unread/pool.json
  as='setpriv --reuid=65534 --regid=65534 --clear-groups'
fi
if $as tl-generate --version >/dev/null 2>&1 && $as test -r long -a -r "$model" && ! $as test -r unread/pool.json; then
  ends 1 $as tl-pool-evict --to-bytes 0 --pool unread
  holds err 'unread/pool.json: Permission denied'
  ends 0 $as tl-pool-register -m "$model" long --pool unread
  holds err 'warning: unread/pool.json: Permission denied'
  $as tl-generate -m "$model" -n 6 --temperature 0 --ignore-eos --pool unread --pool-add prompt >answer 2>err
  same plain answer
  holds err 'warning: unread/pool.json: Permission denied'
  grep -q '"capacity":99' unread/pool.json || fail 'pool.json was rewritten'
fi
