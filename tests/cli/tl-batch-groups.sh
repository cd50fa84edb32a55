# SPDX-License-Identifier: Apache-2.0
# Coalition jobs: the prompt is that of the segments present, the group is the key that other programs compute too.
. "$EXPECT"
model=$MODELS/m.tinyloop
segments='"segments":[{"id":"alice","tokens":[1,2,3]},{"id":"bob","tokens":[4,5]},{"id":"carol","tokens":[6]}]'
cat >jobs <<END
{"id":1,"snapshot":"snap-1",$segments,"present":[true,false,true]}
{"id":2,"tokens":[1,2,3,6]}
{"id":3,"snapshot":"snap-1",$segments,"present":[true,false,false],"seed":4}
{"id":4,"present":[true,true,true],$segments,"snapshot":"snap-1"}
{"id":5,"tokens":[9,9],"group":"other"}
{"id":6,"snapshot":"snap-2",$segments,"present":[true,false,true]}
{"id":7,"snapshot":"snap-1",$segments,"present":[false,false,false]}
{"id":8,"snapshot":"s","segments":[{"tokens":[7],"id":"\u00e9"}],"present":[true]}
END
for group in prefix key none; do
  ends 3 tl-batch -m "$model" -n 4 --seed 5 --jsonl --group $group jobs
  python3 - out >got <<'END'
import hashlib, json, sys
def key(snapshot, segments, present):
    text = snapshot.encode()
    for name, there in list(zip(segments, present))[:-1]: text += name.encode() + (b'\1' if there else b'\0')
    return hashlib.sha256(text).hexdigest()[:16]
records = [json.loads(line) for line in open(sys.argv[1])]
assert list(records[0]) == ['line', 'id', 'group', 'tokens', 'stop', 'seed'], records[0]
groups = [record.get('group') for record in records]
names = ['alice', 'bob', 'carol']
assert groups[0] == groups[2] == '00fe394dc0d0ec8a' == key('snap-1', names, [1, 0, 1])
assert groups[3] == key('snap-1', names, [1, 1, 1]) and groups[5] == key('snap-2', names, [1, 0, 1])
assert groups[6] == key('snap-1', names, [0, 0, 0]) and groups[7] == key('s', ['x'], [1])
assert groups[1] is None and groups[4] == 'other'
for record in records:
    print(*record.get('tokens', [record.get('error')]))
END
  for line in '1 2 3 6' '1 2 3 6' '1 2 3' '1 2 3 4 5 6' '9 9' '1 2 3 6' 1 '7'; do
    seed=$([ "$line" = '1 2 3' ] && echo 4 || echo 5)
    echo "$line" | tl-generate -m "$model" -n 4 --seed "$seed"
  done | sed '7s/.*/jobs:7:1: the sequence is empty/' >wanted
  if [ $group = key ]; then sed -i '2s/.*/jobs:2: it has no group, which grouping by key requires/' wanted; fi
  same wanted got
done

# What a coalition cannot be, one record each.
cat >jobs <<END
{"tokens":[1],"snapshot":"s",$segments,"present":[true,true,true]}
{"group":"g","snapshot":"s",$segments,"present":[true,true,true]}
{$segments,"present":[true,true,true]}
{"snapshot":"s","present":[true,true,true]}
{"snapshot":"s",$segments}
{"snapshot":"s",$segments,"present":[true,true]}
{"snapshot":"s","segments":[],"present":[]}
{"snapshot":1,$segments,"present":[true,true,true]}
{"snapshot":"s",$segments,"present":[true,1,true]}
{"snapshot":"s","segments":[{"id":"a"}],"present":[true]}
{"snapshot":"s","segments":[{"tokens":[1]}],"present":[true]}
{"snapshot":"s","segments":[{"id":"a","tokens":[64]}],"present":[false]}
{"snapshot":"s","segments":[{"id":"a","tokens":[1],"x":2}],"present":[true]}
{"snapshot":"s","segments":[[1]],"present":[true]}
{"snapshot":"s","segments":[{"id":"a","tokens":[$(seq -s , 0 63)]},{"id":"b","tokens":[1]}],"present":[true,true]}
END
cat >wanted <<'END'
'tokens' and 'segments' exclude each other: a coalition's prompt consists of its segments
'group' and 'segments' exclude each other: a coalition's group is computed
key 'snapshot' is missing
key 'segments' is missing
key 'present' is missing
present: 2 values for 3 segments
segments: the list is empty
snapshot: not a string
present[1]: not true or false
segments[0]: key 'tokens' is missing
segments[0]: key 'id' is missing
segments[0].tokens[0]: id 64 is not below 64
unknown key 'x'
segments[0]: an array is not allowed here
prompt too long: more than 64 ids (the context)
END
ends 3 tl-batch -m "$model" --jsonl jobs
sed 's/.*jobs:[0-9]*: //; s/"}$//' out >got
same wanted got
# Only batches know them.
head -n 1 jobs >one
refused 2 "key 'snapshot' is only for jobs of tl-batch" tl-generate -m "$model" --jsonl one
