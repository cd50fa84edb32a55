# SPDX-License-Identifier: Apache-2.0
# What the model reads decides how q4 rounds; the report says what it was; wrong texts leave everything as it was.
. "$EXPECT"
hf=$MODELS/llama-hf
printf '3 1 4 15 9 2 6 5 3 5\n8 8 8 1\n' >text

mkdir made
for source in random none text; do
  tl-convert --dtype q4 --calibrate $source --json "$hf" made/$source >report.$source
  tl-inspect -m made/$source --verify >shown
done
[ "$(ls -A made | wc -l)" -eq 3 ] || fail "something is left: $(ls -A made)"
tl-convert --dtype q4 "$hf" default >said
same made/random default
grep -q '^calibration  [0-9]* ids, random$' said || fail "the report does not tell the source: $(cat said)"
tl-convert -q --dtype q4 --calibrate text "$hf" again >said
same made/text again
holds said 'calibration  14 ids, text'
differ made/random made/none
differ made/text made/none
differ made/text made/random
python3 - <<'END'
import json
reports = {name: json.load(open('report.' + name)) for name in ('random', 'none', 'text')}
assert reports['random']['calibration']['source'] == 'random', reports['random']
assert reports['text']['calibration'] == {'source': 'text', 'ids': 14}, reports['text']
assert 'calibration' not in reports['none'], reports['none']
for report in reports.values():
    bits = {'q4': 4.5, 'q8': 8.5}
    total = sum(row['elements'] * bits[row['type']] for row in report['errors'])
    elements = sum(row['elements'] for row in report['errors'])
    assert abs(report['bits_per_weight'] - total / elements) < 1e-6, report
rms = {name: sum(row['relative_rms'] for row in report['errors']) for name, report in reports.items()}
# Without weights the plain error is least.
assert rms['none'] < rms['random'] and rms['none'] < rms['text'], rms
END

cp made/none kept
refused 2 '--calibrate is for --dtype q4' tl-convert --dtype q8 --calibrate text "$hf" kept
refused 2 '--calibrate is for --dtype q4' tl-convert --calibrate none "$hf" kept
echo '3 99 1' >wrong
refused 2 wrong tl-convert --dtype q4 --calibrate wrong "$hf" kept
: >empty
refused 2 empty tl-convert --dtype q4 --calibrate empty "$hf" kept
refused 2 missing tl-convert --dtype q4 --calibrate missing "$hf" kept
cp text kept_text
refused 2 text tl-convert --dtype q4 --calibrate text "$hf" text
same kept_text text
same made/none kept
[ -z "$(find . -name '*calibration*')" ] || fail 'a file of the calibration is left'
