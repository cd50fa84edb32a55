# SPDX-License-Identifier: Apache-2.0
# Text becomes ids line by line, whole or in JSON Lines, and comes back as it was; control tokens only where they are asked for.
. "$EXPECT"
tokenizer=$CASES/../text/byte_level.json
tokenize() { tl-tokenize --tokenizer "$tokenizer" "$@"; }
detokenize() { tl-detokenize --tokenizer "$tokenizer" "$@"; }

# Line n of the output is line n of the input, an empty one too; a last line need not end.
printf 'the word\n\n \xff caf\xc3\xa9\r\nend' >in
tokenize in >ids
[ "$(wc -l <ids)" -eq 4 ] || fail "not four lines: $(cat ids)"
[ -z "$(sed -n 2p ids)" ] || fail 'the empty line has ids'
{ cat in; echo; } >wanted
detokenize --bytes ids >back
same wanted back
tokenize <in >ids_of_stdin
same ids ids_of_stdin
tokenize - <in >ids_of_stdin
same ids ids_of_stdin

# A file as one sequence, with its line ends.
tokenize --whole in >whole
[ "$(wc -l <whole)" -eq 1 ] || fail 'not one line'
detokenize --bytes whole >back
same wanted back
tokenize --whole in in >twice
[ "$(wc -l <twice)" -eq 2 ] || fail 'not a line a file'

# Objects keep what they have beside the text, to the byte and in order.
cat >jobs <<'END'
{"id" : [1, "x"], "text":"a\nb\r\n", "max_tokens": 5}
{"text":"","z":{"tokens":"}"}}
END
tokenize --jsonl jobs >job_ids
python3 - "$tokenizer" <<'END'
import json
first, second = open('job_ids').read().splitlines()
assert first.startswith('{"id":[1, "x"],"tokens":[') and first.endswith('],"max_tokens":5}'), first
assert second == '{"tokens":[],"z":{"tokens":"}"}}', second
END
detokenize --jsonl job_ids >job_texts
[ "$(cat job_texts)" = '{"id":[1, "x"],"text":"a\u000ab\u000d\u000a","max_tokens":5}
{"text":"","z":{"tokens":"}"}}' ] || fail "objects came back as $(cat job_texts)"
# A line without ids, as of an error, stays.
echo '{"line":4,"error":"no room"}' >error
detokenize --jsonl error >kept
same error kept

# A name in the text is text, unless it may be more.
echo 'a<|im_end|>b' >named
plain=$(tokenize named | wc -w) special=$(tokenize --special named | wc -w)
[ "$special" -eq 3 ] && [ "$plain" -gt 6 ] || fail "ids: $plain plain, $special special"
tokenize named | detokenize >back
same named back
[ "$(tokenize --special named | detokenize)" = ab ] || fail 'a control token is shown'
tokenize --special named | detokenize --special >back
same named back

# The first token of a sequence, once.
prefix=$CASES/../text/byte_level_prefix.json
echo the | tl-tokenize --tokenizer "$prefix" >without
echo the | tl-tokenize --tokenizer "$prefix" --bos >with
[ "$(cat with)" = "0 $(cat without)" ] || fail "--bos: $(cat with), not 0 and $(cat without)"
echo '<s>the' | tl-tokenize --tokenizer "$prefix" --bos --special >once
[ "$(cut -d ' ' -f 1,2 once)" != '0 0' ] && [ "$(cut -d ' ' -f 1 once)" = 0 ] || fail "--bos appears twice: $(cat once)"

tokenize -o file in
same ids file
