#!/bin/sh
# dptrain-rank.sh - one process of a job under srun, mpirun, mpiexec or torchrun: task 0 becomes
# dpdriver, every other one dpfollower.
#
#   srun dptrain-rank.sh [DPDRIVER OPTION...] [-- DPFOLLOWER OPTION...]
#
# Both read rank, number of ranks, and the driver's address from the launcher's environment
# (dpdriver --help, dpfollower --help).  Options that both need, such as --secret-file, are given on
# both sides of the "--".  The daemons are looked for in $DPTRAIN_BIN, beside this script, and in
# PATH.
#
# Under srun, a driver that ends with 1, 2 or 3 ends the step: its followers, which would wait for
# it, get SIGTERM.
#
# DPTRAIN_STEP: the beginning of paths in a folder that all nodes share (dptrain.sbatch sets it).
# Task 0 writes its node's name to $DPTRAIN_STEP.root, for an arbitrary distribution of tasks and
# for a heterogeneous step, in which the list of nodes does not say where task 0 is.  It writes the
# driver's status to $DPTRAIN_STEP.status, where a task that starts later finds it.  If task 0's
# node is lost, one of the other tasks ($DPTRAIN_STEP.watch) requeues the job, which would go on
# without batch script and driver until its time limit ($DPTRAIN_STEP.why).
set -eu

here=$(cd "$(dirname "$0")" && pwd)

say()
{
    echo "dptrain-rank.sh: $*" >&2
}

find_program() # NAME: its path
{
    for dir in ${DPTRAIN_BIN:+"$DPTRAIN_BIN"} "$here"; do
        if [ -x "$dir/$1" ]; then
            echo "$dir/$1"
            return
        fi
    done
    command -v "$1" || {
        say "no $1 in ${DPTRAIN_BIN:-\$DPTRAIN_BIN (unset)}, $here, or PATH"
        exit 2
    }
}

# 1: srun's node list does not say where task 0 is, and no one else has.
is_hidden()
{
    [ -z "${MASTER_ADDR:-}" ] || return 1
    case ${SLURM_DISTRIBUTION:-} in arbitrary*) return 0 ;; esac
    [ -n "${SLURM_HET_SIZE:-}" ]
}

put() # FILE TEXT: whoever reads the file finds all of the text or none
{
    echo "$2" >"$1.new" && mv "$1.new" "$1"
}

# Tell the step's other tasks.  If that fails, on a full disk, they wait in vain for a time, but the
# driver keeps its status.
tell() # root|status TEXT
{
    [ -n "${DPTRAIN_STEP:-}" ] || return 0
    put "$DPTRAIN_STEP.$1" "$2" ||
        say "cannot write $DPTRAIN_STEP.$1 (see above): tasks that need it wait for their time"
}

# Run the daemon of a step's task and set `status`.  It gets srun's signals as this shell does, so
# they are not passed on: a second one would stop a driver without a checkpoint.
run_daemon() # PROGRAM ARGUMENT...
{
    trap : HUP INT TERM USR1 USR2
    "$@" && status=0 || status=$?
}

# Become the driver of a step, and end the step if it fails.
drive_step() # PROGRAM ARGUMENT...
{
    tell root "${SLURMD_NODENAME:-$(hostname)}"
    run_daemon "$@"
    tell status "$status"
    case $status in
    1 | 2 | 3)
        say "dpdriver ended with $status: ending the other tasks of this step"
        (trap '' TERM && exec scancel --signal=TERM "$SLURM_JOB_ID.$SLURM_STEP_ID") ||
            say "scancel did not reach all tasks; one that waits for a driver ends after its --wait"
        ;;
    esac
    exit "$status"
}

# A follower that starts late, behind a node's prolog, was not there to be ended.
heed_status()
{
    [ -n "${DPTRAIN_STEP:-}" ] && [ -s "$DPTRAIN_STEP.status" ] || return 0
    read -r status <"$DPTRAIN_STEP.status" || return 0
    case $status in
    1 | 2 | 3)
        say "dpdriver has ended with $status"
        exit "$status"
        ;;
    esac
}

# Become a follower of a step.  One that failed may have lost its driver with its whole node: then
# there is no status, and Slurm gets to know it within its SlurmdTimeout.
follow_step() # PROGRAM ARGUMENT...
{
    run_daemon "$@"
    case $status in
    1 | 3) [ -z "${DPTRAIN_STEP:-}" ] || ! mkdir "$DPTRAIN_STEP.watch" 2>/dev/null || watch_node ;;
    esac
    exit "$status"
}

# Requeue the job, or if Slurm refuses, end it.  Slurm ends this task, too, when it requeues the
# job.  Then scontrol may fail although the job was requeued, and to end it would end the next run.
requeue()
{
    scontrol requeue "$SLURM_JOB_ID" ||
        ! scontrol show job "$SLURM_JOB_ID" | tr ' ' '\n' |
            grep -qx "Restarts=${SLURM_RESTART_COUNT:-0}" || scancel "$SLURM_JOB_ID"
}

watch_node()
{
    for _ in $(seq 360); do
        [ ! -s "$DPTRAIN_STEP.status" ] || break
        read -r node <"$DPTRAIN_STEP.root" || break
        case $(sinfo --noheader --nodes="$node" --format=%T) in
        *\* | down* | fail*) # *: it does not respond
            # srun was there, too: the log gets this line when the job starts again.
            put "$DPTRAIN_STEP.why" "$node was lost, and the driver with it: the job was requeued"
            requeue
            break
            ;;
        esac
        sleep 5
    done
    rmdir "$DPTRAIN_STEP.watch" 2>/dev/null || true
}

# Learn from task 0 where it is.
meet()
{
    if [ -z "${DPTRAIN_STEP:-}" ]; then
        say "the list of nodes does not say where task 0 is (SLURM_DISTRIBUTION is" \
            "\"${SLURM_DISTRIBUTION:-}\", SLURM_HET_SIZE \"${SLURM_HET_SIZE:-}\"): set" \
            "DPTRAIN_STEP to PATH in a folder that all nodes share, for PATH.root," \
            "or MASTER_ADDR to its node"
        exit 2
    fi
    for _ in $(seq 600); do
        heed_status
        if [ -s "$DPTRAIN_STEP.root" ]; then
            MASTER_ADDR=$(cat "$DPTRAIN_STEP.root")
            export MASTER_ADDR
            return
        fi
        sleep 1
    done
    say "task 0 has not written its node's name to $DPTRAIN_STEP.root in 600 s: is that folder" \
        "shared by all nodes?"
    exit 3
}

# The launchers in the daemons' order (common/daemon/launch.c).
rank=
for name in RANK OMPI_COMM_WORLD_RANK PALS_RANKID JSM_NAMESPACE_RANK FLUX_TASK_RANK PMI_RANK \
    SLURM_PROCID PMIX_RANK; do
    eval "rank=\${$name:-}"
    [ -z "$rank" ] || break
done
if [ -z "$rank" ]; then
    say "none of RANK, OMPI_COMM_WORLD_RANK, PALS_RANKID, JSM_NAMESPACE_RANK, FLUX_TASK_RANK," \
        "PMI_RANK, SLURM_PROCID and PMIX_RANK is set: start it by srun, mpirun or mpiexec, or" \
        "start dpdriver and dpfollower by hand"
    exit 2
fi
# 1: srun started this process, and no other launcher within its step.
in_step=
if [ -n "${SLURM_STEP_ID:-}" ] && case $name in PMI_RANK | SLURM_PROCID) ;; *) false ;; esac &&
    [ "${PMI_RANK:-$SLURM_PROCID}" = "$SLURM_PROCID" ] &&
    [ "${PMI_SIZE:-$SLURM_NTASKS}" = "$SLURM_NTASKS" ]; then # srun --mpi=pmi2 sets these alike
    in_step=1
fi

if [ "$rank" = 0 ]; then
    program=$(find_program dpdriver)
    n=0
    for word in "$@"; do # the words before the --
        shift
        [ "$word" != -- ] || break
        set -- "$@" "$word"
        n=$((n + 1))
    done
    while [ $# -gt $n ]; do shift; done
    [ -z "$in_step" ] || drive_step "$program" "$@"
else
    program=$(find_program dpfollower)
    while [ $# -gt 0 ]; do # the words after the --
        word=$1
        shift
        [ "$word" != -- ] || break
    done
    set -- --once "$@"
    if [ -n "$in_step" ]; then
        heed_status
        ! is_hidden || meet
        follow_step "$program" "$@"
    fi
fi
exec "$program" "$@"
