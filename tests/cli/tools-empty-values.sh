# SPDX-License-Identifier: Apache-2.0
# An option that is given acts or is refused by name: values that are empty (a shell variable that is not set), lists with
# empty words, flags with a value, and whose fault a wrong value is.
. "$EXPECT"
model=$MODELS/m.tinyloop
echo '1 2 3' >in
seq 100 >many

# Every option that takes a value, as --help shows it: "--name WORD", not "--name" and not "--name [=FILE]".
for tool in tl-batch tl-bench-spec tl-bench-speed tl-convert tl-detokenize tl-generate tl-inspect tl-pool-evict tl-pool-list tl-pool-register tl-score tl-tokenize; do
  "$tool" --help | sed -n -E 's/^  (-[a-z],)?(--[a-z-]+)(:| )[^ [].*/\2/p' >options
  grep -q . options || fail "$tool has no options?"
  while read -r option; do
    refused 2 "$option" "$tool" "$option" '' </dev/null
    refused 2 "$option" "$tool" "$option=" </dev/null
  done <options
done
refused 2 --output tl-generate -m "$model" -o '' in
refused 2 FILE tl-generate -m "$model" ''
refused 2 OUT tl-convert "$MODELS/m-hf" ''

for list in '1:1,' ',1:1' '1:1,,2:1'; do refused 2 --logit-bias tl-generate -m "$model" --logit-bias "$list" in; done
for list in '1,2,' ',1' '1,,2' 1..8 '1 2'; do refused 2 --loops tl-score -m "$model" --loops "$list" in; done
refused 2 "duplicate value '1'" tl-score -m "$model" --loops 1,2,1 in
for flag in --only-new=5 --only-new=false --quiet=0 --help=1; do
  refused 2 "${flag%=*}: takes no value" tl-generate -m "$model" "$flag" in
done

# Once, also where the value may be left out.
for stats in '--stats=x --stats=y' '--stats --stats=y' '--stats=x --stats'; do
  # shellcheck disable=SC2086 # two words
  for tool in tl-generate tl-batch; do refused 2 '--stats: given more than once' $tool -m "$model" -n 1 $stats in; done
done
refused 2 '--save-profile: given more than once' tl-bench-spec -m "$model" -n 2 --prompts 1 --repeats 1 --speculative block --save-profile=x --save-profile=y
[ ! -e x ] && [ ! -e y ] || fail 'something was written'

TL_BACKEND=foo refused 2 'environment variable TL_BACKEND: --backend' tl-generate -m "$model" in
TL_THREADS=x refused 2 'environment variable TL_THREADS: --threads' tl-generate -m "$model" in
TL_THREADS=1 refused 2 'tl-generate: --threads' tl-generate -m "$model" --threads x in
TL_BACKEND='' TL_THREADS='' TL_CPU_ISA='' ends 0 tl-generate -m "$model" -n 1 in

refused 2 'stats.json: No such file or directory (did you mean --stats=stats.json?)' tl-generate -m "$model" --stats stats.json
refused 1 'tl-convert makes a .tinyloop file' tl-generate -m "$MODELS" in
refused 1 'not a safetensors file, as models, saved states and pool entries are' tl-generate -m many in

# The same end id given once or twice is the same run.
tl-generate -m "$model" --seed 1 --eos 5 in >once
tl-generate -m "$model" --seed 1 --eos 5 --eos 5 in >twice
same once twice

# What a parent process holds is not this one's.
python3 - "$model" <<'END'
import json, subprocess, sys
ballast = bytearray(400 << 20)
for i in range(0, len(ballast), 4096):
    ballast[i] = 1
for command in (["tl-generate"], ["tl-batch"]):
    run = subprocess.run(command + ["-q", "-m", sys.argv[1], "-n", "2", "--stats", "in"], capture_output=True, check=True)
    last = json.loads(run.stderr.splitlines()[-1])
    peak = last.get("summary", last)["peak_resident_bytes"]
    assert 1 << 20 < peak < 300 << 20, (command, peak)
END
