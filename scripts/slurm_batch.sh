#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs one tl-batch as a Slurm job array, a shard a task, and a job that merges the shards' records when all are there. Not a
# scheduler: partition, time, memory and so on are sbatch's own variables (SBATCH_PARTITION, SBATCH_TIMELIMIT, ...).
#
#   scripts/slurm_batch.sh SHARDS OUTPUT -m MODEL --seed N [option ...] FILE ...
#
# The options are tl-batch's, but for those that are set here (--output, --shard, --continue) or make no sense here
# (--unordered, --stats=FILE). Run it in a folder that all nodes see, with tl-batch in PATH. The records of shard I are in
# OUTPUT.I, its journal in OUTPUT.I.journal, its messages in OUTPUT.I.log, those of the merging in OUTPUT.merge.log, the
# command in OUTPUT.run; all are removed once OUTPUT is there. The same command again, after a failure, a time limit or
# scancel, goes on with what is missing, lines that were appended to the input included; another one is refused as long as
# parts of the first are there, and so is another model or a changed line, by tl-batch itself. Tasks may share --pool.
set -euo pipefail

shard() { # SHARDS OUTPUT OPTION...: one task of the array
  local shards=$1 output=$2 status=0
  shift 2
  export TL_THREADS=${TL_THREADS-${SLURM_CPUS_PER_TASK-0}}
  tl-batch --continue --keep-journal --shard "$SLURM_ARRAY_TASK_ID/$shards" -o "$output.$SLURM_ARRAY_TASK_ID" "$@" || status=$?
  # 3: some records are errors, but all are there.
  [ "$status" -eq 3 ] || exit "$status"
}

merge() { # SHARDS OUTPUT OPTION...: tl-batch checks that the shards answer this input with this model and these options
  local shards=$1 output=$2 status=0 i
  shift 2
  tl-batch --merge "$shards" -o "$output" "$@" || status=$?
  [ "$status" -eq 0 ] || [ "$status" -eq 3 ] || exit "$status"
  for ((i = 0; i < shards; i++)); do rm -f "$output.$i" "$output.$i.journal" "$output.$i.log"; done
  rm -f "$output.run" "$output.merge.log"
}

case ${1-} in
  shard | merge)
    "$@"
    exit
    ;;
esac
if [ $# -lt 4 ] || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  echo 'usage: slurm_batch.sh SHARDS OUTPUT -m MODEL --seed N [option ...] FILE ...' >&2
  exit 2
fi
case " ${*:3} " in
  *' --seed '* | *' --seed='*) ;;
  *)
    echo 'slurm_batch.sh: --seed: give one, or each shard would draw its own' >&2
    exit 2
    ;;
esac
for option in "${@:3}"; do
  case $option in
    "$2" | "$2".*)
      echo "slurm_batch.sh: $option: names beginning with $2. are those of the shards, which are removed" >&2
      exit 2
      ;;
    -o* | --output | --output=* | --shard | --shard=* | --continue | --keep-journal | --merge | --merge=*)
      echo "slurm_batch.sh: $option: is given to each shard by this script" >&2
      exit 2
      ;;
    -)
      echo 'slurm_batch.sh: -: the input comes from files, which every task reads for itself' >&2
      exit 2
      ;;
    --unordered | --stats | --stats=*)
      echo "slurm_batch.sh: $option: shards are merged line by line, and each would write the same file" >&2
      exit 2
      ;;
  esac
done
if [ ! -f "${*: -1}" ]; then
  echo "slurm_batch.sh: ${*: -1}: is not a file: the input comes last, and from files, which every task reads for itself" >&2
  exit 2
fi
if [ -e "$2" ]; then
  echo "slurm_batch.sh: $2 is there: nothing to do" >&2
  exit 0
fi
# Parts of another division or with other options must not be merged with these.
command=$(printf '%q ' "$@")
if [ -e "$2.run" ]; then
  if [ "$command" != "$(cat "$2.run")" ]; then
    echo "slurm_batch.sh: $2.run: this run was begun with other options; repeat those, or remove $2.*" >&2
    exit 2
  fi
else
  for ((i = 0; i < $1; i++)); do
    [ -e "$2.$i" ] || continue
    echo "slurm_batch.sh: $2.$i: is there, and no $2.run says of what run; remove it" >&2
    exit 2
  done
  printf '%s\n' "$command" >"$2.run"
fi

array=$(sbatch --parsable --job-name="tl-batch $2" --array="0-$(($1 - 1))" --requeue --open-mode=append \
  --output="$2.%a.log" "$0" shard "$@")
# Not before all shards have ended well; if one did not, it ends too, and the next call goes on.
merging=$(sbatch --parsable --job-name="tl-batch $2 merge" --dependency="afterok:${array%%;*}" --kill-on-invalid-dep=yes \
  --open-mode=append --output="$2.merge.log" "$0" merge "$@")
echo "shards: job $array, merge: job $merging"
