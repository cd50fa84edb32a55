# SPDX-License-Identifier: Apache-2.0
# Without FILE and with a terminal on stdin a tool does not wait in silence: USAGE, with a hint; "-" reads the terminal.
. "$EXPECT"
on_terminal() { # COMMAND...: runs it with a terminal that types "1 2 3" and the end of the input
  python3 - "$@" <<'END'
import os, pty, subprocess, sys
master, slave = pty.openpty()
os.write(master, b'1 2 3\n\x04')
sys.exit(subprocess.run(sys.argv[1:], stdin=slave, timeout=60).returncode)
END
}
for tool in tl-batch tl-generate tl-score 'tl-inspect --trace'; do
  # shellcheck disable=SC2086 # two words
  ends 2 on_terminal $tool -m "$MODELS/m.tinyloop"
  [ ! -s out ] && [ "$(wc -l <err)" -eq 1 ] || fail "$tool: $(cat out err)"
  holds err "'-'"
done
for tool in tl-tokenize tl-detokenize; do
  ends 2 on_terminal $tool --tokenizer "$CASES/../text/byte_level.json"
  holds err "'-'"
done
echo '1 2 3' | tl-generate -m "$MODELS/m.tinyloop" -n 4 --temperature 0 >wanted
ends 0 on_terminal tl-generate -m "$MODELS/m.tinyloop" -n 4 --temperature 0 -
same wanted out
