# SPDX-License-Identifier: Apache-2.0
# U-20: --help, --version and --completion bash go to stdout, succeed and need no model.
. "$EXPECT"
for tool in tl-batch tl-bench-speed tl-convert tl-detokenize tl-generate tl-inspect tl-score tl-tokenize; do
  ends 0 "$tool" --help
  [ ! -s err ] || fail "$tool --help wrote on stderr"
  holds out "$tool"
  holds out --version
  cp out long
  ends 0 "$tool" -h
  same long out
  ends 0 "$tool" --version
  [ ! -s err ] || fail "$tool --version wrote on stderr"
  [[ $(cat out) =~ ^$tool\ [0-9]+\.[0-9]+\.[0-9]+(\ with\ CUDA)?$ ]] || fail "version is: $(cat out)"
  ends 0 "$tool" --completion bash
  [ ! -s err ] || fail "$tool --completion wrote on stderr"
  bash -n out || fail "$tool: the completion is no bash"
  # It completes for this tool, and knows an option when asked.
  (
    . ./out
    complete -p "$tool" >/dev/null || fail "$tool: nothing is completed"
  )
  refused 2 zsh "$tool" --completion zsh
done
