# SPDX-License-Identifier: Apache-2.0
# The default output is the whole stream; --only-new leaves the prompt out and changes nothing else.
. "$EXPECT"
generate() { tl-generate -m "$MODELS/m.tinyloop" -n 7 --temperature 0 prompts "$@"; }

printf '  1\t2 3 \r\n9 8' >prompts
generate >stream
generate --only-new >new
printf '1 2 3\n9 8\n' >clean
paste -d ' ' clean new >joined
same stream joined
awk '{ print NF }' new >lengths
printf '7\n7\n' >wanted
same wanted lengths
# Single spaces, no blank at either end.
! grep -q -e '  ' -e '^ ' -e ' $' stream || fail 'blanks in the stream'
