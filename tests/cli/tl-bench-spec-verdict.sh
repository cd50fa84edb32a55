# SPDX-License-Identifier: Apache-2.0
# Verdicts, by passes and not by time, so that they are the same on every machine: one model where drafting cannot pay,
# one where every draft is right (U-14); and what tl-generate makes of them.
. "$EXPECT"
printf '5 17 3 40\n8 9\n1 2 3 4 5 6 7\n' >prompts
cp "$MODELS"/m.tinyloop plain.tinyloop
cp "$MODELS"/flat.tinyloop flat.tinyloop
bench() { tl-bench-spec --clock passes --temperature 0 --repeats 2 -n 25 "$@" prompts; }

# Draft loops = loops cannot pay.
bench -m plain.tinyloop --loops 8 --speculative block:d=8,k=4 --json --save-profile >plain.json 2>warned
holds warned 'a verdict by --clock passes, which is not about time'
python3 - plain.json <<'END'
import json, sys
report = json.load(open(sys.argv[1]))
assert report['verdict'] == 'plain' and report['ratio'] < 1.3 and report['threshold'] == 1.3
assert report['repeats'] == 2 and report['prompts'] == 3
arm, = report['arms']
assert len(arm['times']) == len(arm['ratios']) == len(report['plain']['times']) == 6
assert arm['acceptance'] == 1 and arm['equal_to_plain'] and len(report['update_ratios']) == 7
END
tl-generate -m plain.tinyloop --loops 8 --temperature 0 -n 9 --speculative auto --stats=stats prompts >answer
[ "$(value schedule stats)" = off ] || fail 'speculates against the verdict'
value auto stats | grep -q "plain: the profile's verdict" || fail 'does not say why'
tl-generate -m plain.tinyloop --loops 8 --temperature 0 -n 9 prompts >wanted
same wanted answer

bench -m flat.tinyloop --loops 8 --speculative block:d=1,k=4 --speculative wavefront:d=1 --save-profile --plot plot.svg >table 2>warned
holds table 'verdict: speculate with wavefront:d=1'
holds table '100.0 %'
python3 -c 'import xml.dom.minidom; xml.dom.minidom.parse("plot.svg")'
tl-generate -m flat.tinyloop --loops 8 --temperature 0 -n 9 --speculative auto --stats=stats prompts >answer
[ "$(value schedule stats)" = wavefront:d=1 ] || fail 'does not obey'
tl-generate -m flat.tinyloop --loops 8 --temperature 0 -n 9 prompts >wanted
same wanted answer
# Another number of loops or threads, or another model, is not what was measured.
tl-generate -m flat.tinyloop --loops 7 --temperature 0 -n 9 --speculative auto --stats=stats prompts >answer
[ "$(value schedule stats)" = off ] || fail 'other loops'
tl-generate -m flat.tinyloop --loops 8 --threads 7 --temperature 0 -n 9 --speculative auto --stats=stats prompts >answer
[ "$(value schedule stats)" = off ] || fail 'other threads'
tl-generate -m plain.tinyloop --loops 8 -n 9 --speculative auto:flat.tinyloop.speculation.json --stats=stats prompts >answer
[ "$(value schedule stats)" = off ] || fail 'another model'
tl-generate -m flat.tinyloop --loops 8 -n 9 --speculative auto:nowhere --stats=stats prompts >answer 2>warning
holds warning 'nowhere: no such profile'
value auto stats | grep -q 'no profile' || fail 'does not say that there is none'
echo '{' >broken
tl-generate -m flat.tinyloop --loops 8 -n 9 --speculative auto:broken --stats=stats prompts >answer 2>warning
holds warning 'broken: not a speculation profile'
mkfifo fifo
mkdir folder
for path in fifo folder /dev/zero; do
  tl-generate -m flat.tinyloop --loops 8 -n 9 --speculative "auto:$path" --stats=stats prompts >answer 2>warning
  grep -q -E "$path: (is not a regular file|Is a directory)" warning || fail "$(cat warning)"
  [ "$(value schedule stats)" = off ] || fail "$path decides"
done

ends 1 bench -m plain.tinyloop --loops 8 --speculative block:d=8,k=4 --require-speedup 1.1
holds err 'below the 1.1 of --require-speedup'
ends 0 bench -m flat.tinyloop --loops 8 --speculative wavefront:d=1 --require-speedup 2
# One pair has no spread: no quartiles and no verdict for speculation.
bench -m flat.tinyloop --loops 8 --csv --budget 0 >table.csv 2>warned
holds warned 'a single pair of runs has no spread'
[ -z "$(tail -n +3 table.csv | sed 's/"[^"]*"//' | cut -d , -f 3,4 | tr -d ,'\n')" ] || fail "$(cat table.csv)"
bench -m flat.tinyloop --loops 8 --budget 0 --json >one.json 2>warned
[ "$(value verdict one.json)" = plain ] || fail 'a verdict without a spread'
[ "$(head -n 1 table.csv | tr -cd , | wc -c)" -eq 14 ] || fail 'columns'
[ "$(wc -l <table.csv)" -gt 10 ] || fail 'no sweep'
refused 2 --csv tl-bench-spec -m flat.tinyloop --json --csv prompts
for schedule in foo auto block:k=x; do
  refused 2 "--speculative: " tl-bench-spec -m flat.tinyloop --speculative "$schedule" prompts
done
refused 2 '--speculative block:d=5,k=4 and --loops 4' tl-bench-spec -m flat.tinyloop --loops 4 --speculative block:d=5 prompts
refused 2 --loops tl-bench-spec -m flat.tinyloop --loops 4 --speculative block:d=5 prompts
refused 2 --speculative tl-bench-spec -m flat.tinyloop --speculative off prompts
# By the clock on the wall, with made-up prompts.
tl-bench-spec -m flat.tinyloop --seed 1 --loops 4 --budget 1 -n 8 --prompts 2 >table 2>warned  # perhaps that quartiles are wide
holds table 'verdict:'
refused 2 '--input-format needs a FILE' tl-bench-spec -q -m "$MODELS/m.tinyloop" --repeats 1 --prompts 1 -n 2 --speculative block --input-format npy
