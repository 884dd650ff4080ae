#!/usr/bin/env bash
# hydra_exit_status.sh - the exit status of MPICH's mpiexec, which no rank need have had.
#
# A batch script, a service or a workflow engine starts the ranks of a job by mpiexec, and decides
# by its exit status whether to start them anew: not after a wrong command line, say, but after a
# machine went away.
#
# Guess: the status is that of one rank: of the first that failed, of the lowest, or the largest.
#        Open MPI's manual says the lowest, srun's the largest. A rank that a signal ended gives
#        128 and the signal's number, as in a shell.
# Seen:  MPICH 4.3.2 and 5.0.2: it is the bitwise "or" of all ranks' statuses. Of 1 and 2 it is 3,
#        of 4 and 1 it is 5, and eight ranks with one bit each make 255. A signal counts by its
#        number, so a rank that SIGTERM ended is told as one that ended with 15. Where other ranks
#        still run, they are killed, and SIGKILL's 9 goes into the "or": SIGUSR1, 10, is told
#        as 11. `mpiexec --help` and the standard output say nothing about that;
#        -print-all-exitcodes prints all of them, each times 256: "256,512" for 1 and 2.
#
# Exit status: 0 if that is seen; 1 if not; 77 if the packages cannot be installed.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

status=0
start() # WANTED ARGUMENT...
{
    local wanted=$1 seen=0
    shift
    "$version/bin/mpiexec" "$@" </dev/null >out 2>&1 || seen=$?
    printf '%4s  mpiexec %s\n' "$seen" "$*"
    [ "$seen" = "$wanted" ] || { echo "      want: $wanted" && status=1; }
}
for version in 4.3.2 5.0.2; do
    python3 -m pip install -q --no-cache-dir --no-deps --target $version mpich==$version 2>log || {
        tail -n 1 log
        exit 77
    }
    echo "MPICH $version"
    # shellcheck disable=SC2016 # the ranks' shells expand it
    {
        start 3 -n 1 sh -c 'exit 1' : -n 1 sh -c 'exit 2'
        start 5 -n 3 sh -c 'exit 4' : -n 1 sh -c 'exit 1'
        start 255 -n 8 sh -c 'exit $((1 << PMI_RANK))'
        start 15 -n 1 sh -c 'exit 15'
        start 15 -n 1 sh -c 'kill -TERM $$'
        start 10 -n 1 sh -c 'kill -USR1 $$'
        start 11 -n 1 sh -c 'sleep 1; kill -USR1 $$' : -n 1 sleep 60
        start 3 -print-all-exitcodes -n 1 sh -c 'exit 1' : -n 1 sh -c 'exit 2'
    }
    grep -o 'Exit codes: .*' out
    grep -q 'Exit codes: .* 256,512$' out || status=1
done
exit $status
