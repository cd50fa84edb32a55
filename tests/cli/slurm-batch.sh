# SPDX-License-Identifier: Apache-2.0
# scripts/slurm_batch.sh, with a stand-in for sbatch that runs the tasks one after the other: the merged records are those
# of one run, after failures too, and parts of different runs are never merged.
. "$EXPECT"
mkdir bin
cat >bin/sbatch <<'END'
#!/bin/bash
# FAIL names the task that fails; like afterok, what depends on it does not run then.
array=
while [[ $1 == --* ]]; do
  [[ $1 != --array=* ]] || array=${1#--array=}
  shift
done
if [ -z "$array" ]; then
  if [ -e failed ]; then rm failed; else "$@"; fi
else
  for task in $(seq "${array%-*}" "${array#*-}"); do
    if [ "$task" = "${FAIL-}" ] || ! SLURM_ARRAY_TASK_ID=$task "$@" 2>>messages; then touch failed; fi
  done
fi
echo 17
END
chmod +x bin/sbatch
export PATH=$PWD/bin:$PATH
slurm=$(dirname "$EXPECT")/../../scripts/slurm_batch.sh
for i in $(seq 0 9); do echo "$i $((i * 7 % 64))"; done >in
options=(-m "$MODELS/m.tinyloop" -n 5 --seed 3)
tl-batch "${options[@]}" in >wanted
for shards in 1 3 10; do
  ends 0 "$slurm" "$shards" answers "${options[@]}" in
  holds out 'shards: job 17, merge: job 17'
  same wanted answers
  rm answers
  [ "$(echo answers*)" = 'answers*' ] || fail "left: $(echo answers*)"
done

# A task fails: no output; another division, other options or parts of who knows what are refused; the same goes on.
FAIL=2 ends 0 "$slurm" 4 answers "${options[@]}" in
[ ! -e answers ] || fail 'merged without all parts'
cp answers.0 kept
for other in "2 answers ${options[*]} in" "4 answers ${options[*]} --top-k 3 in"; do
  # shellcheck disable=SC2086 # options are separate words
  ends 2 "$slurm" $other
  holds err 'answers.run: this run was begun with other options'
done
same kept answers.0
ends 0 "$slurm" 4 answers "${options[@]}" in
same wanted answers
ends 0 "$slurm" 4 answers "${options[@]}" in
holds err 'answers is there: nothing to do'
rm answers
touch answers.1
ends 2 "$slurm" 4 answers "${options[@]}" in
holds err 'answers.1: is there, and no answers.run'
rm answers.1

# What this script sets, or what makes no sense for shards.
for option in --unordered --stats=x -ox --output=x --shard=1/2 --continue; do
  ends 2 "$slurm" 2 answers "${options[@]}" "$option" in
  holds err "$option: "
done
ends 2 "$slurm" 2 answers -m "$MODELS/m.tinyloop" in
holds err '--seed: give one'
ends 2 "$slurm" 0 answers "${options[@]}" in
holds err 'usage: slurm_batch.sh SHARDS OUTPUT'
[ "$(echo answers*)" = 'answers*' ] || fail "left: $(echo answers*)"
