#!/bin/sh
# lead_model.sh SPIN CC [--mutants | --long] - let spin look at every interleaving of lead.pml.
#
# --long: four followers; minutes.
# --mutants: leave out one of the rules that the model marks (1) to (3) at a time; spin must find
# what that breaks.
# Exit status 0: all as it should be.
set -eu
# shellcheck source=tests/session/spin.sh
. "$(dirname "$0")/spin.sh"
model=$here/lead.pml

check() { search 1000000 '' "$@"; } # MODEL OPTION...

mutant() # NUMBER FOLLOWERS SED-SCRIPT
{
    mutate "$1" "$3" "$model"
    if check mutant.pml "-DN=$2" -DG=3; then
        echo "mutant $1: nothing noticed"
        exit 1
    fi
    echo "mutant $1: found: $(sed -n 's/^pan:1: //p' pan.log)"
}

if [ "$what" = --mutants ]; then
    mutant 1 2 's,:: yes -> is_out,:: is_out,'
    mutant 2 4 's,counts = counts | BIT(g_now),counts = BIT(g_now),'
    mutant 3 2 's,known = g_now; is_out = 1,is_out = 1,'
    exit
fi
if [ "$what" = --long ]; then
    set -- '-DN=4 -DG=3'
else
    set -- '-DN=2 -DG=4' '-DN=3 -DG=3'
fi
search_all "$model" "$@"
