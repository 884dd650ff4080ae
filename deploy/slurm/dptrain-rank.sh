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
set -eu

here=$(cd "$(dirname "$0")" && pwd)

find_program() # NAME: its path
{
    for dir in ${DPTRAIN_BIN:+"$DPTRAIN_BIN"} "$here"; do
        if [ -x "$dir/$1" ]; then
            echo "$dir/$1"
            return
        fi
    done
    command -v "$1" || {
        echo "dptrain-rank.sh: no $1 in ${DPTRAIN_BIN:-\$DPTRAIN_BIN (unset)}, $here," \
            "or PATH" >&2
        exit 2
    }
}

rank=${RANK:-${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-}}}}
if [ -z "$rank" ]; then
    echo "dptrain-rank.sh: none of RANK, OMPI_COMM_WORLD_RANK, PMI_RANK and SLURM_PROCID is" \
        "set: start it by srun, mpirun or mpiexec, or start dpdriver and dpfollower by hand" >&2
    exit 2
fi

if [ "$rank" = 0 ]; then
    program=$(find_program dpdriver)
    for word in "$@"; do # the words before the --
        shift
        [ "$word" != -- ] || break
        set -- "$@" "$word"
        n=$((${n:-0} + 1))
    done
    while [ $# -gt "${n:-0}" ]; do shift; done
else
    program=$(find_program dpfollower)
    while [ $# -gt 0 ]; do # the words after the --
        word=$1
        shift
        [ "$word" != -- ] || break
    done
    set -- --once "$@"
fi
exec "$program" "$@"
