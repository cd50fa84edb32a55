#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What rounding the weights of a model costs: the tables of tl-model(5). Not a test: it needs a real model and a text.
#
#   quantisation_table.sh [--mdoc] TOOLS HF_DIR IDS [CALIBRATION]
#
# TOOLS: folder of the built tools; HF_DIR: a checkpoint as tl-convert takes it; IDS and CALIBRATION: files of token ids, a
# sequence a line, different texts. Prints one line for each type: bits a weight in the layers and in all matrices, error of
# the mlp matrices (relative, root of the mean square), mean divergence from the checkpoint in f32 (nats), share of positions
# with the same best id, perplexity; --mdoc: as rows of a list of a man page.
set -euo pipefail

form=text
if [ "${1-}" = --mdoc ]; then
  form=mdoc
  shift
fi
if [ $# -lt 3 ] || [ $# -gt 4 ]; then
  sed -n 's/^#   \(quantisation_table.*\)/usage: \1/p' "$0" >&2
  exit 2
fi
tools=$(cd "$1" && pwd) && checkpoint=$2 ids=$3 calibration=${4-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$tools/tl-convert" -q --dtype f32 "$checkpoint" "$folder/f32" >"$folder/report"

row() { # NAME OPTION...: a line of the table for the model that tl-convert makes with these options
  local name=$1
  shift
  "$tools/tl-convert" -q --json "$@" "$checkpoint" "$folder/model" >"$folder/report"
  "$tools/tl-score" -m "$folder/model" --kv f32 --against "$folder/f32" --jsonl --input-format text "$ids" >"$folder/scores"
  python3 - "$form" "$name" "$folder/report" "$folder/scores" <<'END'
import json, math, sys
form, name, report, scores = sys.argv[1:]
errors = json.load(open(report))['errors']
records = [json.loads(line) for line in open(scores)]
BITS = {'f32': 32, 'f16': 16, 'bf16': 16, 'q8': 8.5, 'q4_1': 5, 'q4': 4.5}

def mean_bits(rows):
    return sum(row['elements'] * BITS[row['type']] for row in rows) / sum(row['elements'] for row in rows)

layers = [row for row in errors if row['class'] in ('attention', 'mlp', 'adapter')]
mlp = next(row for row in errors if row['class'] == 'mlp')
positions = sum(record['tokens'] + 1 for record in records)
def mean_of(key):
    return sum(record[key] * (record['tokens'] + 1) for record in records) / positions
perplexity = math.exp(-sum(record['sum'] for record in records) / sum(record['tokens'] for record in records))
fields = [name, f'{mean_bits(layers):.3g}', f'{mean_bits(errors):.3g}', f'{100 * mlp["relative_rms"]:.2f} %',
          f'{mean_of("divergence"):.4f}', f'{100 * mean_of("same_best"):.1f} %', f'{perplexity:.2f}']
print('.It ' + ' Ta '.join(fields) if form == 'mdoc' else '\t'.join(fields), flush=True)
END
}

[ $form = mdoc ] || printf 'type\tbits, layers\tbits, all\terror, mlp\tdivergence\tsame best\tperplexity\n'
row f16 --dtype f16
row q8 --dtype q8
row q4_1 --dtype q4_1
row 'q4, no reading' --dtype q4 --calibrate none
row q4 --dtype q4
[ -z "$calibration" ] || row 'q4, a text' --dtype q4 --calibrate "$calibration"
