# SPDX-License-Identifier: Apache-2.0
# With --quiet no tool shows progress, on a terminal either.
. "$EXPECT"
model=$MODELS/m.tinyloop
echo 1 2 3 >in

on_terminal() { # COMMAND...: with a terminal as standard error; what it got goes to the file terminal
  python3 - "$@" <<'END'
import os, pty, subprocess, sys
master, slave = pty.openpty()
process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=slave)
os.close(slave)
got = b''
while True:
    try: part = os.read(master, 65536)
    except OSError: break
    if not part: break
    got += part
open('terminal', 'wb').write(got)
sys.exit(process.wait())
END
}

on_terminal tl-pool-register --pool pool -m "$model" in
holds terminal '1 of 1 prefixes'  # or the test tests nothing
silent() { on_terminal "$@" && [ ! -s terminal ] || fail "$*: $(cat terminal)"; }
for quiet in -q --quiet; do
  silent tl-pool-register --pool pool -m "$model" $quiet in
  silent tl-pool-list --pool pool $quiet
  silent tl-generate -m "$model" -n 2 $quiet in
  silent tl-batch -m "$model" -n 2 $quiet in
  silent tl-score -m "$model" $quiet in
  silent tl-inspect -m "$model" $quiet
  silent tl-pool-evict --pool pool --all $quiet
done
