# SPDX-License-Identifier: Apache-2.0
# --stream answers a line before the next one is there and writes each id at once; the ids are those of a plain run.
. "$EXPECT"
generate() { tl-generate -m "$MODELS/m.tinyloop" -n 8 --seed 2 --ignore-eos "$@"; }

printf '1 2 3\n9 8\n' >prompts
generate prompts >plain
generate --stream prompts >streamed
same plain streamed
generate --only-new prompts >plain_new
generate --stream --only-new prompts >streamed_new
same plain_new streamed_new

# A conversation: the second line is sent after the first answer has been read to its end.
coproc generate --stream --only-new -
echo '1 2 3' >&"${COPROC[1]}"
read -r -t 60 first <&"${COPROC[0]}" || fail 'no answer while the input is open'
echo '9 8' >&"${COPROC[1]}"
read -r -t 60 second <&"${COPROC[0]}" || fail 'no second answer'
eval "exec ${COPROC[1]}>&-"
wait "$COPROC_PID"
printf '%s\n' "$first" "$second" >answers
same plain_new answers

# Ids are written one by one: through a pipe that keeps the writes apart come the prompt, eight ids and the line end.
python3 - tl-generate -m "$MODELS/m.tinyloop" -n 8 --seed 2 --ignore-eos --stream prompts >seen <<'END'
import os, subprocess, sys
reader, writer = os.pipe2(os.O_DIRECT)
with subprocess.Popen(sys.argv[1:], stdout=writer) as tool:
    os.close(writer)
    while piece := os.read(reader, 4096):
        print(repr(piece.decode()))
END
python3 - <<'END' >wanted
for line in open('plain'):
    prompt = 3 if line.startswith('1 2 3') else 2
    ids = line.split()
    print(repr(' '.join(ids[:prompt])))
    for id in ids[prompt:]: print(repr(' ' + id))
    print(repr('\n'))
END
same wanted seen

# Without --stream everything is read and checked first: a bad second line leaves stdout empty. With it, the first is answered.
printf '1 2 3\nx\n' >prompts
refused 2 prompts:2:1 tl-generate -m "$MODELS/m.tinyloop" -n 8 prompts
ends 2 tl-generate -m "$MODELS/m.tinyloop" -n 8 --seed 2 --ignore-eos --stream prompts
holds err 'prompts:2:1'
head -n 1 plain >wanted
same wanted out
