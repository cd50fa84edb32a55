# SPDX-License-Identifier: Apache-2.0
# The law from the shell: threads, instruction sets, prefill chunks and the place in a batch leave ids and logits alone.
. "$EXPECT"
generate() {
  local name=$1
  shift
  tl-generate -m "$model" -n 12 --temperature 0.8 --seed 7 --ignore-eos --stats=stats "$@" >"$name" <prompts
  python3 - stats >"$name.hash" <<'END'
import json, sys
for line in open(sys.argv[1]):
    record = json.loads(line)
    print(record['logits_hash'], record['generated'], record['loops_run'])
END
}
equal() {
  generate other "$@"
  same plain other
  same plain.hash other.hash
}

# 40 ids and a short line.
{ seq 1 40 | paste -s -d ' '; echo '5 6'; } >prompts
for model in "$MODELS"/m.tinyloop "$MODELS"/odd.tinyloop "$MODELS"/huginn.tinyloop; do
  for kv in f16 int8; do
    generate plain --threads 1 --kv $kv
    equal --threads 1 --kv $kv
    equal --threads 2 --kv $kv
    equal --threads 3 --kv $kv
    equal --isa portable --kv $kv
    for chunk in 1 7 16 64; do equal --prefill-chunk $chunk --kv $kv; done
    tac prompts >reversed && mv reversed prompts
    generate other --kv $kv
    tac other >back && same plain back
    tac other.hash >back && same plain.hash back
    tac prompts >reversed && mv reversed prompts
  done
done
! grep -q '^0 ' plain.hash || fail 'no logits hash'
