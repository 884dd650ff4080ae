# spin.sh - what the scripts that let spin look at a model share.  To be sourced with SPIN, CC and
# perhaps an option as $1 to $3: the working folder is a new one from then on, and gone at the end.
# shellcheck shell=sh
# shellcheck disable=SC2034 # the scripts read `what` and `here`
spin=$1 cc=$2 what=${3-} here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit

# Look at a model.  Exit status 0: no error, and the search was complete.
search() # DEPTH CC-OPTIONS MODEL OPTION...
{
    depth=$1 build=$2 file=$3
    shift 3
    rm -f pan* ./*.trail
    "$spin" -a "$@" "$file" >spin.log || { cat spin.log; return 2; }
    # shellcheck disable=SC2086 # several options
    "$cc" -w -O2 -DSAFETY -DCOLLAPSE $build -o pan pan.c || return 2
    ./pan "-m$depth" -w24 >pan.log || return 2
    grep -q 'errors: 0' pan.log && ! grep -q 'max search depth too small' pan.log
}

# Write mutant.pml: the model, changed.
mutate() # NUMBER SED-SCRIPT MODEL
{
    sed "$2" "$3" >mutant.pml
    if cmp -s mutant.pml "$3"; then
        echo "mutant $1: the model has no such line"
        exit 1
    fi
}

# Look at the model with each of these sets of options.
search_all() # MODEL OPTIONS...
{
    model=$1 name=$(basename "$1")
    shift
    for options; do
        # shellcheck disable=SC2086 # several options
        if ! check "$model" $options; then
            echo "$name $options:"
            grep -E 'pan:|errors' pan.log || true
            exit 1
        fi
        echo "$name $options: $(sed -n 's/states, stored.*/states, no error/p' pan.log)"
    done
}
