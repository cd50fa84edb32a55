# SPDX-License-Identifier: Apache-2.0
# What the shell cases say about files and commands; sourced by them as "$EXPECT".
# Not about tools in particular.

fail() {
  echo "case failed: $*" >&2
  exit 1
}

# same A B: the files are equal byte by byte, and not empty.
same() {
  [ -s "$1" ] || fail "$1 is empty"
  cmp "$1" "$2" >&2 || { diff "$1" "$2" | head -n 10 >&2; fail "$1 and $2 differ"; }
}

# differ A B: they are not.
differ() { ! cmp -s "$1" "$2" || fail "$1 and $2 are equal"; }

# holds FILE TEXT: the file has this text in it.
holds() { grep -q -F -e "$2" "$1" || { cat "$1" >&2; fail "$1 does not hold: $2"; }; }

# ends CODE COMMAND...: the command's exit status is CODE; its output goes to the files out and err.
ends() {
  local wanted=$1 status=0
  shift
  "$@" >out 2>err || status=$?
  [ "$status" -eq "$wanted" ] || { cat err >&2; fail "exit status $status, not $wanted: $*"; }
}

# refused CODE TEXT COMMAND...: ends with CODE, nothing on stdout, one line on stderr: "tool: ... TEXT ...".
refused() {
  local code=$1 text=$2
  shift 2
  ends "$code" "$@"
  [ ! -s out ] || fail "something on stdout: $*"
  [ "$(wc -l <err)" -eq 1 ] || { cat err >&2; fail "not one line on stderr: $*"; }
  holds err "$text"
  [[ $(cat err) == "$1: "* ]] || { cat err >&2; fail "the message does not begin with the tool's name: $*"; }
}

# value KEY FILE: the value of a key in the file's first JSON line.
value() { python3 -c 'import json, sys; print(json.loads(open(sys.argv[2]).readline())[sys.argv[1]])' "$@"; }

# on_terminal COMMAND...: with a terminal as standard error; what it got goes to the file terminal.
on_terminal() {
  python3 - "$@" <<'END'
import os, pty, subprocess, sys
master, slave = pty.openpty()
process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stderr=slave)
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
