#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs one tl-batch as a Slurm job array, one shard per task, and a job that merges the shards' records at the end. Not a
# scheduler: partition, time, memory and so on are sbatch's own variables (SBATCH_PARTITION, SBATCH_TIMELIMIT, ...).
#
#   scripts/slurm_batch.sh SHARDS OUTPUT -m MODEL --seed N [option ...] FILE ...
#
# The options are tl-batch's, except those set here (--output, --shard, --continue) or meaningless here
# (--unordered, --stats=FILE). Run it in a folder that all nodes see, with tl-batch in PATH. Shard I writes its records to
# OUTPUT.I, its journal to OUTPUT.I.journal and its messages to OUTPUT.I.log; the merge job's messages go to
# OUTPUT.merge.log, the command to OUTPUT.run; all are removed once OUTPUT is written. Run the same command again after a
# failure, a time limit or scancel to finish what is missing, including lines appended to the input. A different command is
# refused while parts of the first exist; tl-batch itself refuses another model or a changed line. Tasks may share --pool.
set -euo pipefail

shard() { # SHARDS OUTPUT OPTION...: one task of the array
  local shards=$1 output=$2 status=0
  shift 2
  export TL_THREADS=${TL_THREADS-${SLURM_CPUS_PER_TASK-0}}
  tl-batch --continue --keep-journal --shard "$SLURM_ARRAY_TASK_ID/$shards" -o "$output.$SLURM_ARRAY_TASK_ID" "$@" || status=$?
  # 3: all records are written, but some are errors.
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
    echo 'slurm_batch.sh: --seed is required: without it each shard would draw its own' >&2
    exit 2
    ;;
esac
for option in "${@:3}"; do
  case $option in
    "$2" | "$2".*)
      echo "slurm_batch.sh: $option: names starting with $2. belong to the shards and are removed" >&2
      exit 2
      ;;
    -o* | --output | --output=* | --shard | --shard=* | --continue | --keep-journal | --merge | --merge=*)
      echo "slurm_batch.sh: $option: is set by this script for each shard" >&2
      exit 2
      ;;
    -)
      echo 'slurm_batch.sh: -: the input must be files, since every task reads it' >&2
      exit 2
      ;;
    --unordered | --stats | --stats=*)
      echo "slurm_batch.sh: $option: shards are merged line by line, and each would write the same file" >&2
      exit 2
      ;;
  esac
done
if [ ! -f "${*: -1}" ]; then
  echo "slurm_batch.sh: ${*: -1}: is not a file: the last argument must be an input file, since every task reads it" >&2
  exit 2
fi
if [ -e "$2" ]; then
  echo "slurm_batch.sh: $2 exists: nothing to do" >&2
  exit 0
fi
# Parts with another number of shards or other options must not be merged with these.
command=$(printf '%q ' "$@")
if [ -e "$2.run" ]; then
  if [ "$command" != "$(cat "$2.run")" ]; then
    echo "slurm_batch.sh: $2.run: this run was started with other options; repeat those, or remove $2.*" >&2
    exit 2
  fi
else
  for ((i = 0; i < $1; i++)); do
    [ -e "$2.$i" ] || continue
    echo "slurm_batch.sh: $2.$i: exists without $2.run, so its run is unknown; remove it" >&2
    exit 2
  done
  printf '%s\n' "$command" >"$2.run"
fi

array=$(sbatch --parsable --job-name="tl-batch $2" --array="0-$(($1 - 1))" --requeue --open-mode=append \
  --output="$2.%a.log" "$0" shard "$@")
# Runs after all shards have succeeded; if one fails, this job is cancelled, and the next call resumes.
merging=$(sbatch --parsable --job-name="tl-batch $2 merge" --dependency="afterok:${array%%;*}" --kill-on-invalid-dep=yes \
  --open-mode=append --output="$2.merge.log" "$0" merge "$@")
echo "shards: job $array, merge: job $merging"
