# SPDX-License-Identifier: Apache-2.0
# U-19, first group: the same five ids in every accepted form give the same stream.
. "$EXPECT"
generate() { tl-generate -m "$MODELS/m.tinyloop" -n 6 --temperature 0 "$@"; }

printf '3 1 4 15 9\n' >lf
generate lf >wanted
printf '3 1 4 15 9\r\n' >crlf
printf '3 1 4 15 9' >no_end
printf '  3 1 4 15 9   \n' >blanks
printf '\t3\t1\t\t4\t15\t9\t\n' >tabs
printf '3 01 004 15 0000000009\n' >zeros
for form in crlf no_end blanks tabs zeros; do
  generate $form >answer
  same wanted answer
done

printf '\003\000\001\000\004\000\017\000\011\000' >ids.u16
printf '\003\000\000\000\001\000\000\000\004\000\000\000\017\000\000\000\011\000\000\000' >ids.i32
npy_header() { # DTYPE SHAPE
  python3 -c 'import sys
text = "{\"descr\": \"%s\", \"fortran_order\": False, \"shape\": %s, }" % (sys.argv[1], sys.argv[2])
text = text.replace(chr(34), chr(39))
text += " " * (-(len(text) + 11) % 64) + "\n"
sys.stdout.buffer.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode())' "$@"
}
{ npy_header '<i4' '(5,)'; cat ids.i32; } >ids.npy
for form in u16 i32 npy; do
  generate --input-format $form ids.$form >answer
  same wanted answer
  generate --input-format $form <ids.$form >answer
  same wanted answer
done
{ npy_header '<u2' '(2, 5)'; cat ids.u16 ids.u16; } >twice.npy
generate --input-format npy twice.npy >answer
cat wanted wanted >wanted_twice
same wanted_twice answer

echo '{"id":"a","tokens":[3,1,4,15,9]}' >ids.jsonl
generate --input-format jsonl ids.jsonl >answer
same wanted answer
