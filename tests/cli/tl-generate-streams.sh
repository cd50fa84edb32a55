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

# Ids come one by one: a pipe that a reader looks into sees the answer grow in more than one piece.
echo 5 >prompts
generate --stream prompts | python3 -c 'import os
pieces = []
while piece := os.read(0, 65536):
    pieces.append(piece)
print(len(pieces) > 1)
print(b"".join(pieces).decode(), end="")' >seen
{ echo True; generate prompts; } >wanted
same wanted seen

# Without --stream everything is read and checked first: a bad second line leaves stdout empty. With it, the first is answered.
printf '1 2 3\nx\n' >prompts
refused 2 prompts:2:1 tl-generate -m "$MODELS/m.tinyloop" -n 8 prompts
ends 2 tl-generate -m "$MODELS/m.tinyloop" -n 8 --seed 2 --ignore-eos --stream prompts
holds err 'prompts:2:1'
head -n 1 plain >wanted
same wanted out
