# SPDX-License-Identifier: Apache-2.0
# A checkpoint becomes one file that the other tools run; types, loops of a plain model and the stated error.
. "$EXPECT"
echo '3 1 4 15' >prompts
# The tiny models and these checkpoints hold the same f32 weights.
for name in m huginn huginn_llama llama qwen3; do
  tl-convert -q "$MODELS/$name-hf" $name.tinyloop >report 2>err
  [ ! -s err ] || fail "$name: --quiet is not quiet: $(cat err)"
  holds report family
  tl-inspect -m $name.tinyloop --verify >out
  tl-score -m $name.tinyloop --per-token prompts >converted
  tl-score -m "$MODELS/$name.tinyloop" --per-token prompts >wanted
  same wanted converted
done
# bf16, and f16 in two files with an index.
for name in ouro nanbeige; do
  tl-convert -q "$MODELS/$name-hf" $name.tinyloop >out
  tl-generate -m $name.tinyloop -n 4 prompts >out
done

# Twice the same bytes; an existing file is replaced.
cp m.tinyloop first
tl-convert -q "$MODELS/m-hf" m.tinyloop >out
same first m.tinyloop
for type in keep f32 f16 bf16 q8 q4_1 q4; do
  tl-convert --json --dtype $type "$MODELS/m-hf" $type.tinyloop >report.$type 2>err
  tl-inspect -m $type.tinyloop --verify >out
  tl-generate -m $type.tinyloop -n 4 prompts >out
done
same first f32.tinyloop
same first keep.tinyloop
# The stated errors: none, half a last place, half a step of the greatest weight in 32.
python3 - <<'END'
import json, os
bounds = {'keep': 0, 'f32': 0, 'f16': 2**-11, 'bf16': 2**-8, 'q8': 0.01, 'q4_1': 0.2, 'q4': 0.2}
sizes = []
for name, bound in bounds.items():
    report = json.load(open('report.' + name))
    assert report['file_bytes'] == os.path.getsize(name + '.tinyloop'), report
    sizes.append(report['file_bytes'])
    assert {row['class'] for row in report['errors']} >= {'embedding', 'head', 'attention', 'mlp'}, report
    for row in report['errors']:
        assert row['relative_rms'] <= bound and (bound == 0 or row['relative_rms'] > bound / 100), (name, row)
        assert row['type'] == ('f32' if name == 'keep' else 'q8' if name in ('q4', 'q4_1') and row['class'] in ('embedding', 'head') else name), row
assert sizes[0] == sizes[1] > sizes[2] == sizes[3] > sizes[4] > sizes[5] > sizes[6], sizes
END

# Training-free looping: one sub-step with alpha 1 and beta 0 is the plain model.
tl-convert -q "$MODELS/llama-hf" llama.tinyloop >out
tl-convert -q --loop-layers 1:1 --substeps 1 --alpha 1 --beta 0 "$MODELS/llama-hf" once.tinyloop >out
tl-convert -q --loop-layers 1:1 --substeps 3 "$MODELS/llama-hf" looped.tinyloop >out
tl-score -m llama.tinyloop prompts | cut -f 1,3- >plain
tl-score -m once.tinyloop prompts | cut -f 1,3- >once
tl-score -m looped.tinyloop prompts | cut -f 1,3- >looped
awk '{ getline other <"once"; split(other, o, "\t"); if ($3 - o[3] > 1e-3 || o[3] - $3 > 1e-3) exit 1 }' plain ||
  fail 'one sub-step is not the plain model'
differ plain looped
tl-convert -q --loop-layers 1:2 --substeps 3 --beta 0.25 "$MODELS/relaxed-hf" relaxed.tinyloop >out
tl-score -m relaxed.tinyloop --per-token prompts >converted
tl-score -m "$MODELS/relaxed.tinyloop" --per-token prompts >wanted
same wanted converted
