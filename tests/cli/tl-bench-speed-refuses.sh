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
