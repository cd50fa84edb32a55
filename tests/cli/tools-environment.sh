# SPDX-License-Identifier: Apache-2.0
# The environment gives defaults that options outrank; wrong values are USAGE and name the variable or its option.
. "$EXPECT"
generate() { tl-generate -m "$MODELS/m.tinyloop" -n 6 --temperature 0 prompts "$@"; }
with() { # VARIABLE=VALUE COMMAND...
  local -x "$1"
  shift
  "$@"
}
refused_with() { # VARIABLE=VALUE TEXT
  ends 2 with "$1" tl-generate -m "$MODELS/m.tinyloop" prompts
  [ ! -s out ] && [ "$(wc -l <err)" -eq 1 ] || fail "$1: $(cat out err)"
  holds err "$2"
}
echo '1 2 3' >prompts
generate >wanted
for setting in TL_THREADS=1 TL_THREADS=3 TL_CPU_ISA=portable TINYLOOP_KV_INT8=0 TINYLOOP_KV_INT8= TINYLOOP_KV_H_MODE=off; do
  with $setting generate >other
  same wanted other
done
refused_with TL_THREADS=many many
refused_with TL_CPU_ISA=mmx mmx
refused_with TINYLOOP_KV_INT8=yes TINYLOOP_KV_INT8
refused_with TINYLOOP_KV_INT4=2 TINYLOOP_KV_INT4
refused_with TINYLOOP_KV_H_MODE=h2 TINYLOOP_KV_H_MODE
ends 2 with TINYLOOP_KV_H_MODE=h8 with TINYLOOP_KV_INT8=1 generate
ends 2 with TINYLOOP_KV_INT8=1 with TINYLOOP_KV_INT4=1 generate
with TL_CPU_ISA=mmx generate --isa portable >other
same wanted other
with TINYLOOP_KV_H_MODE=h8 generate --kv f16 >other
same wanted other

generate --kv h8 >wanted
with TINYLOOP_KV_H_MODE=h8 generate >other
same wanted other

# A pool that is a default only is left aside where there can be none.
echo '1 2 3' >one
state() { tl-generate -m "$MODELS/m.tinyloop" -n 6 --temperature 0 "$@"; }
state one >wanted
with TL_POOL=pool state --save-state state one >other 2>err
same wanted other
with TL_POOL=pool state --resume state >other 2>>err
same wanted other
[ ! -s err ] && [ ! -e pool ] || fail "the pool was used: $(cat err)"
ends 2 with TL_POOL=pool state --resume state --pool-add
holds err '--pool-add needs --pool'
ends 2 state --resume state --pool pool
# What does not go with the command line is called by the variable's name.
ends 2 with TL_BACKEND=cuda state --threads 1 one
holds err '--threads and TL_BACKEND=cuda exclude each other'
ends 2 with TL_BACKEND=cuda state --isa portable one
holds err '--isa and TL_BACKEND=cuda exclude each other'
ends 2 state --backend cuda --isa portable one
holds err '--isa and --backend cuda exclude each other'
for command in 'tl-generate --save-state state one' 'tl-generate --resume state' 'tl-pool-register --pool pool --resumable one'; do
  case $command in
    tl-pool*) said='--resumable needs stored keys and values; MODE stores layer inputs' ;;
    *) said='and MODE exclude each other' ;;
  esac
  # shellcheck disable=SC2086 # words
  ends 2 with TINYLOOP_KV_H_MODE=h8 $command -m "$MODELS/m.tinyloop"
  holds err "${said/MODE/TINYLOOP_KV_H_MODE=h8}"
  # shellcheck disable=SC2086 # words
  ends 2 with TINYLOOP_KV_H_MODE=h4 $command -m "$MODELS/m.tinyloop" --kv h8
  holds err "${said/MODE/--kv h8}"
done
