# SPDX-License-Identifier: Apache-2.0
# An output that takes another file's place keeps its mode and owner, and one that the user may not write stays.
. "$EXPECT"
model=$MODELS/m.tinyloop
echo 1 2 3 >in
for mode in 600 640 755; do
  for command in 'tl-generate -n 1 -o old in' 'tl-batch -n 1 -o old in' 'tl-score -o old in' 'tl-score --logits old in' \
    'tl-generate -n 1 --save-state old in' 'tl-inspect -o old'; do
    echo older >old && chmod $mode old
    # shellcheck disable=SC2086 # several words
    $command -m "$model" >/dev/null
    [ "$(stat -c %a old)" = $mode ] || fail "$command: $(stat -c %a old) in place of $mode"
    ! grep -q older old || fail "$command: not replaced"
  done
done
as=
if [ "$(id -u)" -eq 0 ]; then  # who may write everything, and may give files away
  echo older >old && chown 65534:65534 old
  tl-generate -n 1 -o old -m "$model" in
  [ "$(stat -c %u:%g old)" = 65534:65534 ] || fail 'another owner'
  as='setpriv --reuid=65534 --regid=65534 --clear-groups'
  chmod 777 . && chown 65534 old
fi
if $as tl-generate --version >/dev/null 2>&1 && $as test -r "$model"; then
  echo older >old && chmod 444 old
  for command in 'tl-generate -n 1 -o old in' 'tl-score --logits old in' 'tl-generate -n 1 --save-state old in' 'tl-inspect -o old'; do
    # shellcheck disable=SC2086
    ends 1 $as $command -m "$model"
    holds err 'old: Permission denied'
    [ "$(cat old)" = older ] || fail "$command replaced a file that is read only"
  done
fi
