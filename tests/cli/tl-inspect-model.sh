# SPDX-License-Identifier: Apache-2.0
# What a model is: a table for people, one JSON document for programs, the same figures in both.
. "$EXPECT"
model=$MODELS/ouro.tinyloop
tl-inspect -m "$model" >table
! LC_ALL=C grep -q -P '[^ -~\n\t]' table || fail 'the table is not plain text'
tl-inspect -m "$model" --json >json
[ "$(wc -l <json)" -eq 1 ] || python3 -m json.tool json >/dev/null
python3 -m json.tool json >document
holds document '"ouro"'
holds table ouro
# 32 hidden, 2 layers of 4 x 16 query and 2 x 16 key/value channels ... the parameters are counted from the shapes.
tl-inspect -m "$model" --json --length 100 >at_100
python3 -m json.tool at_100 >/dev/null
differ json at_100
tl-inspect -m "$model" --length 100 >table_100
differ table table_100
refused 2 --length tl-inspect -m "$model" --length -1
