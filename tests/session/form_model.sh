#!/bin/sh
# form_model.sh SPIN CC [--mutants | --long] - let spin look at every interleaving of form.pml.
#
# Without an option it takes half a minute.  --long: two followers with
# two crashes, and with a crash and a formation that is given up over two steps; minutes and GiB.
# --mutants: leave out one of the rules that the model marks (1) to (3) at a time; spin must find
# what that breaks.
# Exit status 0: all as it should be.
set -eu
# shellcheck source=tests/session/spin.sh
. "$(dirname "$0")/spin.sh"
model=$here/form.pml

check() { search 300000 -DVECTORSZ=2048 "$@"; } # MODEL OPTION...

mutant() # NUMBER SED-SCRIPT
{
    mutate "$1" "$2" "$model"
    for options in '-DN=2 -DCRASHES=0 -DGIVE_UPS=1 -DSTEPS=1' '-DN=1 -DCRASHES=1 -DGIVE_UPS=1'; do
        options="$options -DLAZY=1"
        # shellcheck disable=SC2086 # several options
        if ! check mutant.pml $options; then
            echo "mutant $1: found by $options: $(sed -n 's/^pan:1: //p' pan.log)"
            return
        fi
    done
    echo "mutant $1: nothing noticed"
    exit 1
}

if [ "$what" = --mutants ]; then
    mutant 1 's,^        tell(abort_.*,        skip;,'
    mutant 2 's,start\[g\] = most;,start[g] = s;,'
    mutant 3 's,:: gg == g && stage != WAIT -> digest().*,:: stage != WAIT -> digest(),'
    exit
fi
if [ "$what" = --long ]; then
    set -- '-DN=2 -DCRASHES=2 -DGIVE_UPS=0 -DSTEPS=1' '-DN=2 -DCRASHES=1 -DGIVE_UPS=1'
else
    set -- '-DN=1 -DCRASHES=2 -DGIVE_UPS=1' '-DN=2 -DCRASHES=1 -DGIVE_UPS=0' \
        '-DN=2 -DCRASHES=1 -DGIVE_UPS=1 -DSTEPS=1'
fi
search_all "$model" "$@"
