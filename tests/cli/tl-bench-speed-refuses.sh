# SPDX-License-Identifier: Apache-2.0
# Wrong shapes, lists and combinations are USAGE with the option and the key named, before anything is measured.
. "$EXPECT"
shape=dim=32,ffn=48,heads=4,layers=2,vocab=64
model=$MODELS/m.tinyloop
bad_shape() { # TEXT SHAPE
  refused 2 "$1" tl-bench-speed --shape "$2"
  holds err --shape
}
bad_shape vocab dim=32,ffn=48,heads=4,layers=2
bad_shape width $shape,width=3
bad_shape ffn dim=32,ffn=0,heads=4,layers=2,vocab=64
bad_shape ffn dim=32,ffn=4x,heads=4,layers=2,vocab=64
bad_shape layers $shape,layers=3
bad_shape kv_heads $shape,kv-heads=3
bad_shape heads dim=32,ffn=48,heads=5,layers=2,vocab=64
bad_shape head_dim $shape,head-dim=7
refused 2 --shape tl-bench-speed
refused 2 --model tl-bench-speed --shape $shape -m "$model"
refused 2 --dtype tl-bench-speed -m "$model" --dtype f16
refused 2 --csv tl-bench-speed --shape $shape --json --csv
for value in '--dtype=q2' '--dtype=f16,f16' '--kv=f8' '--kv=f16,' '--threads=x' '--threads=-1' '--threads=1,1' '--loops=0' '--rows=0' '--prefill=0' \
  '--context=-1' '--context=1,,2' '--only=all' '--repeats=0' '--repeats=x' '--warm-up=-1' '--seconds=0' '--array=0'; do
  refused 2 "${value%%=*}" tl-bench-speed --shape $shape "$value"
done
refused 2 mmx tl-bench-speed --shape $shape --isa mmx
refused 1 missing.tinyloop tl-bench-speed -m missing.tinyloop
# What the model cannot do.
for option in '--loops 17' '--context 64' '--prefill 65' '--rows 65'; do
  # shellcheck disable=SC2086 # two words
  refused 2 '' tl-bench-speed -q -m "$model" --threads 1 --array 2 $option
done
cp "$model" own
refused 2 --output tl-bench-speed -q -m own -o own
same own "$model"
# An array that the cache may hold is worth a warning, and only one line.
ends 0 tl-bench-speed --shape $shape --threads 1 --array 1 --only limits --repeats 1
[ "$(wc -l <err)" -eq 1 ] || fail "not one line of warning: $(cat err)"
holds err 'warning: --array'
# An option of parts that are left out.
for use in 'limits --rows 5' 'limits --prefill 6' 'limits --context 7' 'limits --kv int8' 'limits --loops 3' 'passes --loops 3' 'passes --prefill 6' \
  'passes --context 0' 'prefill --context 0' 'prefill --rows 5' 'decode --prefill 6' 'growth,limits --rows 5' 'growth --loops 3'; do
  # shellcheck disable=SC2086 # two words and more
  refused 2 "$(echo "$use" | cut -d' ' -f2) is for" tl-bench-speed --shape $shape -q --threads 1 --array 1 --only $use
done
for use in 'passes --rows 5 --kv int8' 'prefill --prefill 6 --loops 2' 'decode --context 0 --loops 2' 'growth --context 0 --loops 1,2'; do
  # shellcheck disable=SC2086 # two words and more
  ends 0 tl-bench-speed --shape $shape -q --threads 1 --array 1 --repeats 1 --seconds 0.001 --only $use
done
TINYLOOP_KV_INT8=1 ends 0 tl-bench-speed --shape $shape -q --threads 1 --array 1 --repeats 1 --only limits
