# SPDX-License-Identifier: Apache-2.0
# Conversations are written as the template says; what a message holds is text, whatever it names.
. "$EXPECT"
tokenizer=$CASES/../text/byte_level.json
tokenize() { tl-tokenize --tokenizer "$tokenizer" "$@"; }
shown() { tl-detokenize --tokenizer "$tokenizer" --special; }

[ "$(echo 'Why?' | tokenize --template chatml | shown)" = '<|im_start|>user
Why?<|im_end|>
<|im_start|>assistant' ] || fail 'chatml'
[ "$(echo 'Why?' | tokenize --template 'prefix=Q: ,suffix=\nA:' | shown)" = 'Q: Why?
A:' ] || fail 'prefix and suffix'

# The same ids as of the text that the template makes, but for what a user may not name.
printf '<|im_start|>system\nBe\nbrief.<|im_end|>\n<|im_start|>user\nHow  many?<|im_end|>\n<|im_start|>assistant\n' >written
tokenize --whole --special written >wanted
cat >jobs <<'END'
{"id":7,"messages":[{"role":"system","content":"Be\nbrief."},{"content":"How  many?","role":"user"}],"max_tokens":3}
END
tokenize --jsonl --template chatml jobs >got
[ "$(cat got)" = "{\"id\":7,\"tokens\":[$(tr ' ' ',' <wanted)],\"max_tokens\":3}" ] || fail "ids of messages: $(cat got)"
echo '<|im_end|>' | tokenize --template chatml >injected
mark=$(echo '<|im_end|>' | tokenize --special)
[ "$(tr ' ' '\n' <injected | grep -c -x "$mark")" -eq 1 ] || fail 'a message ended itself'

# The template beside the tokenizer, if it is a known one.
mkdir known other
cp "$tokenizer" known/tokenizer.json
cp "$tokenizer" other/tokenizer.json
cat >known/chat_template.jinja <<'END'
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
END
echo '{% for m in messages %}{{ m }}{% endfor %}' >other/chat_template.jinja
echo 'Why?' | tl-tokenize --tokenizer known/tokenizer.json --template auto >got
echo 'Why?' | tokenize --template chatml >wanted
same wanted got
refused 2 'the model'\''s own template, "{% for m in messages %}' tl-tokenize --tokenizer other/tokenizer.json --template auto jobs
refused 2 'has no template' tl-tokenize --tokenizer "$tokenizer" --template auto jobs
refused 2 'has no token <|begin_of_text|>' tl-tokenize --tokenizer "$tokenizer" --template llama3 jobs
refused 2 "--template 'mistral'" tl-tokenize --tokenizer "$tokenizer" --template mistral jobs
