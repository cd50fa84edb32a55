# SPDX-License-Identifier: Apache-2.0
# U-20: stdout carries the answer and nothing else; messages and statistics go to stderr, without control characters.
. "$EXPECT"
generate() { tl-generate -m "$MODELS/ouro.tinyloop" -n 6 --seed 3 prompts "$@"; }

printf '1 2 3\n9 8\n' >prompts
generate >plain 2>messages
[ ! -s messages ] || fail 'a message without cause'
generate 2>/dev/null >other
same plain other

# More loops than the model was trained for: a warning, once, that --quiet drops; the answer is the same.
generate --loops 6 >deep 2>messages
[ "$(wc -l <messages)" -eq 1 ] || fail 'not one warning'
holds messages 'tl-generate: warning: '
holds messages '4'
generate --loops 6 --quiet >other 2>messages
[ ! -s messages ] || fail '--quiet is not quiet'
same deep other

generate --stats >other 2>messages
same plain other
[ "$(wc -l <messages)" -eq 2 ] || fail 'not one statistics line an answer'
! LC_ALL=C grep -q '[[:cntrl:]]' messages || fail 'control characters on stderr'
generate --stats --quiet 2>quiet_messages >other
same plain other
[ "$(wc -l <quiet_messages)" -eq 2 ] || fail '--quiet must leave what was asked for'
