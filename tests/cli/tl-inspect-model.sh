# SPDX-License-Identifier: Apache-2.0
# What a model is: a table for people, one JSON document for programs; the figures are those that its shapes give.
. "$EXPECT"
model=$MODELS/ouro.tinyloop
tl-inspect -m "$model" --length 100 >table
! LC_ALL=C grep -q -P '[^ -~\n\t]' table || fail 'the table is not plain text'
holds table ouro
tl-inspect -m "$model" --length 100 --json >json
tl-inspect -m "$model" --length 100 --cache-window 20 --json >windowed
tl-inspect -m "$model" --json --loops 1 >whole
tl-convert --json "$MODELS/ouro-hf" converted.tinyloop >report
python3 - <<'END'
import json
r, windowed, whole, report = (json.load(open(name)) for name in ('json', 'windowed', 'whole', 'report'))
hidden, ffn, heads, kv_heads, head_dim, vocab, layers, loops = 32, 64, 4, 2, 16, 64, 2, 4
assert [r[key] for key in ('family', 'core_layers', 'prelude_layers', 'coda_layers', 'default_loops')] == ['ouro', 2, 0, 0, loops]
assert [r[key] for key in ('hidden', 'ffn', 'heads', 'kv_heads', 'head_dim', 'vocab')] == [hidden, ffn, heads, kv_heads, head_dim, vocab]
layer = hidden * head_dim * (2 * heads + 2 * kv_heads) + 3 * ffn * hidden + 4 * hidden
core = layers * layer + hidden + 1  # and the exit gate
parts = {part['part']: part['parameters'] for part in r['parts']}
assert parts == {'embedding': vocab * hidden, 'core': core, 'head': vocab * hidden + hidden}, parts
assert r['parameters'] == sum(parts.values()) == report['parameters'], (r['parameters'], report['parameters'])
# Keys and values of 16 positions of one head: 2 x 16 x 16 numbers, and 2 x 16 scales of 4 bytes where they are quantised.
tile = {'f32': 2048, 'f16': 1024, 'int8': 512 + 128, 'int4': 256 + 128}
planes = layers * loops
assert r['planes'] == planes and r['length'] == 100
for mode, size in tile.items():
    assert r['kv'][mode] == {'bytes_per_token': planes * kv_heads * size // 16, 'bytes': 7 * planes * kv_heads * size}, mode
    # A window of 20 spans at most three tiles.
    assert windowed['kv'][mode]['bytes'] == 3 * planes * kv_heads * size, mode
    assert whole['kv'][mode]['bytes'] == 32 * layers * kv_heads * size, mode
END

# The table says the same.
for figure in $(python3 -c 'import json; r = json.load(open("json")); print(r["parameters"], r["weight_bytes"], r["fingerprint"], r["kv"]["int8"]["bytes"])'); do
  holds table "$figure"
done
refused 2 --length tl-inspect -m "$model" --length -1
refused 2 --length tl-inspect -m "$model" --length 513
refused 2 prompts tl-inspect -m "$model" prompts
refused 2 --verify tl-inspect -m "$model" --trace --verify prompts
for option in '--kv f16' '--init-state zero' '--prefill-chunk 4' '--input-format text'; do
  # shellcheck disable=SC2086 # two words
  refused 2 --trace tl-inspect -m "$model" $option
done
