# SPDX-License-Identifier: Apache-2.0
# Every greedily generated id has the greatest log-probability, and the sums are those of the logits.
. "$EXPECT"
model=$MODELS/m.tinyloop
echo '3 1 4 15' >prompts
for loops in 1 4; do
  tl-generate -m "$model" -n 20 --temperature 0 --ignore-eos --loops $loops prompts >stream
  tl-score -m "$model" --loops $loops --per-token --logits logits.npy stream >scores
  python3 - <<'END'
import math, re, struct

data = open('logits.npy', 'rb').read()
size = int.from_bytes(data[8:10], 'little')
header = data[10:10 + size].decode()
rows, vocab = map(int, re.search(r"\((\d+), (\d+)\)", header).groups())
assert "'<f4'" in header and vocab == 64, header
ids = list(map(int, open('stream').read().split()))
assert rows == len(ids), (rows, len(ids))
values = struct.unpack(f'<{rows * vocab}f', data[10 + size:])
line, loops, count, total, perplexity, per_token = open('scores').read().rstrip('\n').split('\t')
per_token = list(map(float, per_token.split()))
assert (line, int(count), len(per_token)) == ('1', len(ids) - 1, len(ids) - 1), (line, count)
for at, chosen in enumerate(ids[1:]):
    logits = values[at * vocab:(at + 1) * vocab]
    top = max(logits)
    log_probability = logits[chosen] - top - math.log(math.fsum(math.exp(x - top) for x in logits))
    assert abs(log_probability - per_token[at]) < 1e-6, (at, log_probability, per_token[at])
    if at >= 3:
        assert chosen == logits.index(top), f'step {at - 2}: {chosen} is not the best id'
assert abs(math.fsum(per_token) - float(total)) < 1e-6
assert abs(math.exp(-float(total) / int(count)) / float(perplexity) - 1) < 1e-6
END
done
