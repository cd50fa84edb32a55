# SPDX-License-Identifier: Apache-2.0
# Line n of the output answers line n of the input, whichever way the input arrives.
. "$EXPECT"
generate() { tl-generate -m "$MODELS/m.tinyloop" -n 6 --temperature 0 "$@"; }

printf '1 2 3\n9 8\n40\n' >prompts
generate prompts >from_file
generate <prompts >from_stdin
generate - <prompts >from_dash
cat prompts | generate >from_pipe
same from_file from_stdin
same from_file from_dash
same from_file from_pipe

head -n 1 prompts >first
tail -n 2 prompts >rest
generate first rest >from_two
same from_file from_two
generate first - <rest >from_file_and_stdin
same from_file from_file_and_stdin

[ "$(wc -l <from_file)" -eq 3 ] || fail 'not three lines'
awk '{ print $1, $2 }' from_file >begins
printf '1 2\n9 8\n' >wanted
head -n 2 begins >two
same wanted two
while read -r prompt; do echo "$prompt" | generate; done <prompts >one_by_one
same from_file one_by_one

generate -o written prompts >nothing
[ ! -s nothing ] || fail 'something on stdout beside --output'
same from_file written
