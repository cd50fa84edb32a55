# SPDX-License-Identifier: Apache-2.0
# Text comes out while ids come in, never within a character; offsets say where each token's text begins.
. "$EXPECT"
tokenizer=$CASES/../text/byte_level.json
python3 - "$tokenizer" <<'END'
import subprocess, sys
tokenizer = sys.argv[1]
ids = subprocess.run(['tl-tokenize', '--tokenizer', tokenizer], input='the 👨 word\n'.encode(), stdout=subprocess.PIPE,
                     check=True).stdout.split()
with subprocess.Popen(['tl-detokenize', '--tokenizer', tokenizer], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tool:
    text = b''
    waiting = 0
    for i, one in enumerate(ids):
        # What is certain with this id must come before the next one is sent.
        tool.stdin.write(one + b' ')
        tool.stdin.flush()
        offsets = subprocess.run(['tl-detokenize', '--tokenizer', tokenizer, '--offsets'], stdout=subprocess.PIPE, check=True,
                                 input=b' '.join(ids[:i + 2] if i + 1 < len(ids) else ids)).stdout.split()
        certain = int(offsets[i + 1])
        while len(text) < certain:
            text += tool.stdout.read1(certain - len(text))
        text.decode()  # no half character
    tool.stdin.write(b'\n')
    tool.stdin.close()
    text += tool.stdout.read()
assert text == 'the 👨 word\n'.encode(), text
END
printf 'caf\xc3\xa9 the\n' | tl-tokenize --tokenizer "$tokenizer" >ids
tl-detokenize --tokenizer "$tokenizer" --offsets ids >offsets
[ "$(wc -w <offsets)" -eq $(($(wc -w <ids) + 1)) ] || fail 'not one offset more than ids'
[ "$(awk '{ print $NF }' offsets)" -eq 9 ] || fail "the text has 9 bytes, not $(cat offsets)"
echo "{\"tokens\":[$(tr ' ' ',' <ids)],\"id\":1}" >job
tl-detokenize --tokenizer "$tokenizer" --jsonl --offsets job >got
[ "$(cat got)" = "{\"text\":\"caf\\u00e9 the\",\"offsets\":[$(tr ' ' ',' <offsets)],\"id\":1}" ] || fail "$(cat got)"
# An empty line is an empty text, and a line that only ends with the file is one too.
printf '\n%s' "$(cat ids)" | tl-detokenize --tokenizer "$tokenizer" >lines
printf '\ncaf\xc3\xa9 the\n' >wanted
same wanted lines
