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
  holds err 'answers.run: this run was started with other options'
done
same kept answers.0
ends 0 "$slurm" 4 answers "${options[@]}" in
same wanted answers
ends 0 "$slurm" 4 answers "${options[@]}" in
holds err 'answers exists: nothing to do'
rm answers
touch answers.1
ends 2 "$slurm" 4 answers "${options[@]}" in
holds err 'answers.1: exists without answers.run'
rm answers.1

# What this script sets, or what makes no sense for shards.
for option in --unordered --stats=x --merge=2 --keep-journal -ox --output=x --shard=1/2 --continue; do
  ends 2 "$slurm" 2 answers "${options[@]}" "$option" in
  holds err "$option: "
done
ends 2 "$slurm" 2 answers -m "$MODELS/m.tinyloop" in
holds err '--seed is required'
ends 2 "$slurm" 0 answers "${options[@]}" in
holds err 'usage: slurm_batch.sh SHARDS OUTPUT'
[ "$(echo answers*)" = 'answers*' ] || fail "left: $(echo answers*)"

# No FILE, a pipe, standard input: nothing could be read by every task, or checked afterwards.
for input in '' - /dev/null nowhere; do
  # shellcheck disable=SC2086 # none is a case
  ends 2 "$slurm" 2 answers "${options[@]}" --ignore-eos $input <in
  [ ! -s out ] || fail "submitted: $(cat out)"
done
mkfifo pipe
ends 2 "$slurm" 2 answers "${options[@]}" pipe
ends 2 "$slurm" 2 answers "${options[@]}" - in
[ "$(echo answers*)" = 'answers*' ] || fail "left: $(echo answers*)"

# One task is lost, lines are appended, the same command again: every line has its answer, in its place.
head -n 10 in >growing
FAIL=2 ends 0 "$slurm" 4 answers "${options[@]}" growing
for i in 1 2 3 4; do echo "60 $i"; done >>growing
tl-batch "${options[@]}" growing >wanted
[ "$(wc -l <wanted)" -eq 14 ] || fail 'not 14 lines'
ends 0 "$slurm" 4 answers "${options[@]}" growing
same wanted answers
rm answers

# A line that was answered already is another one now: refused by name, and nothing is merged.
FAIL=2 ends 0 "$slurm" 4 answers "${options[@]}" growing
sed -i 1s/.*/9/ growing
: >messages
ends 0 "$slurm" 4 answers "${options[@]}" growing
[ ! -e answers ] || fail 'merged answers to two inputs'
holds messages 'growing:1 has changed since the run'
rm -r answers.*

# Another model under the same name: refused by name, and nothing is merged.
cp "$MODELS/m.tinyloop" model
FAIL=2 ends 0 "$slurm" 4 answers -m model -n 5 --seed 3 in
cp "$MODELS/m2.tinyloop" model
: >messages
ends 0 "$slurm" 4 answers -m model -n 5 --seed 3 in
[ ! -e answers ] || fail 'merged answers of two models'
holds messages "--model was '"
rm -r answers.*

# --merge checks for itself: a shard that is missing, that answers less, other options, a changed line, lines that are gone.
for i in 0 1 2; do tl-batch "${options[@]}" --keep-journal --shard $i/3 -o part.$i in; done
tl-batch "${options[@]}" in >wanted
ends 0 tl-batch "${options[@]}" --merge 3 -o part in
same wanted part
rm part
will_not() { # TEXT COMMAND...
  ends 2 "${@:2}"
  holds err "$1"
  [ ! -e part ] || fail "merged: $*"
}
will_not 'part.3.journal: does not exist' tl-batch "${options[@]}" --merge 4 -o part in
will_not "--shard was '0/3' when the run started and is '0/2' now" tl-batch "${options[@]}" --merge 2 -o part in
will_not "--top-k was '50'" tl-batch "${options[@]}" --top-k 3 --merge 3 -o part in
cp in more && echo 5 >>in
will_not 'line 11 of the input is not answered' tl-batch "${options[@]}" --merge 3 -o part in
head -n 9 more >in
will_not 'the input ends before line 10' tl-batch "${options[@]}" --merge 3 -o part in
sed 3s/.*/1/ more >in
will_not 'in:3 has changed' tl-batch "${options[@]}" --merge 3 -o part in
cp more in
for option in --unordered --continue --keep-journal --shard=0/3 --stats; do
  will_not "--merge and ${option%%=*} exclude each other" tl-batch "${options[@]}" --merge 3 -o part $option in
done
will_not '--merge needs input from files' tl-batch "${options[@]}" --merge 3 -o part - <in
will_not '--keep-journal needs input from files' tl-batch "${options[@]}" --keep-journal -o part <in
will_not '--keep-journal needs --output' tl-batch "${options[@]}" --keep-journal in

# With its journal a complete output is checked, and goes on where lines were appended.
tl-batch "${options[@]}" --keep-journal -o whole in
echo 5 6 >>in
tl-batch "${options[@]}" in >wanted
ends 2 tl-batch "${options[@]}" --keep-journal -o whole in
holds err 'whole.journal: the journal of an earlier run'
ends 0 tl-batch "${options[@]}" --keep-journal --continue -o whole in
same wanted whole
ends 2 tl-batch "${options[@]}" --keep-journal --continue -o whole --top-p 0.5 in
holds err "--top-p was '1'"
same wanted whole

# A line of a journal that somebody doubled by hand is one record, also where the order does not matter.
cp whole.journal doubled.journal
tail -n 1 whole.journal >>doubled.journal
ends 0 tl-batch "${options[@]}" --continue -o doubled in
same wanted doubled
tl-batch "${options[@]}" --unordered --keep-journal -o loose in
rm loose
tail -n 1 loose.journal >line && cat line >>loose.journal
ends 0 tl-batch "${options[@]}" --unordered --continue -o loose in
sort wanted >sorted && sort loose >got && same sorted got

# What this script makes and removes is no input.
for name in answers.0.log answers.merge.log answers.1 answers; do
  cp in $name
  ends 2 "$slurm" 2 answers "${options[@]}" $name
  same in $name
  rm $name
done

# Shards that drew their own seeds are not one run.
for i in 0 1; do tl-batch -m "$MODELS/m.tinyloop" -n 5 --keep-journal --shard $i/2 -o drawn.$i in; done
ends 2 tl-batch -m "$MODELS/m.tinyloop" -n 5 --merge 2 -o drawn in
holds err "drawn.1.journal: --seed was '"
[ ! -e drawn ] || fail 'merged two seeds'
