#!/bin/sh
# lead_model.sh SPIN CC [--mutants | --long] - let spin look at every interleaving of lead.pml.
#
# --long: four followers; minutes.
# --mutants: leave out one of the rules that the model marks (1) to (3) at a time; spin must find
# what that breaks.
# Exit status 0: all as it should be.
set -eu
spin=$1 cc=$2 what=${3-}
model=$(cd "$(dirname "$0")" && pwd)/lead.pml
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# Exit status 0: no error, and the search was complete.
check() # MODEL OPTION...
{
    file=$1
    shift
    rm -f pan* ./*.trail
    "$spin" -a "$@" "$file" >spin.log || { cat spin.log; return 2; }
    "$cc" -w -O2 -DSAFETY -DCOLLAPSE -o pan pan.c || return 2
    ./pan -m1000000 -w24 >pan.log || return 2
    grep -q 'errors: 0' pan.log && ! grep -q 'max search depth too small' pan.log
}

mutant() # NUMBER FOLLOWERS SED-SCRIPT
{
    sed "$3" "$model" >mutant.pml
    if cmp -s mutant.pml "$model"; then
        echo "mutant $1: the model has no such line"
        exit 1
    fi
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
for options; do
    # shellcheck disable=SC2086 # several options
    if ! check "$model" $options; then
        echo "lead.pml $options:"
        grep -E 'pan:|errors' pan.log || true
        exit 1
    fi
    echo "lead.pml $options: $(sed -n 's/states, stored.*/states, no error/p' pan.log)"
done
