#!/usr/bin/env bash
# Tests the promise of the README on a machine with nothing installed: in an empty Debian 12
# (debootstrap), deploy/quickstart.sh installs, builds, and trains to more than 97 %.  A second run
# only trains.
#
# Where the host has ccache, it is lent with its libraries and its cache, so that what was compiled
# before is not compiled again.  That proves as much: ccache takes an object from its cache only if
# compiler, arguments and all headers are there and the same.
#
# The packages come from the host's own sources.  It is skipped (77) without root, debootstrap,
# mount namespaces, or a package source that can be reached.
set -u
source=$(cd "$(dirname "$0")/../.." && pwd)
suite=bookworm
# shellcheck source=tests/chroot/debian_root.sh
. "$source/tests/chroot/debian_root.sh"

# Copies the files of a clone: all that git tracks or would track.
copy_source() # ROOT
{
    mkdir -p "$1/src"
    git -C "$source" ls-files -co --exclude-standard -z |
        tar -C "$source" --null -T - --ignore-failed-read -cf - 2>/dev/null | tar -C "$1/src" -xf -
    [ -x "$1/src/deploy/quickstart.sh" ] || fail "no quickstart.sh in the copy of $source"
}

check_first_run() # ROOT
{
    local root=$1 start=$SECONDS accuracy
    inside "$root" sh -c 'command -v gcc || command -v meson' && fail 'the system is not empty'
    inside "$root" sh -c 'mkdir -p /home/me && cd /home/me && /src/deploy/quickstart.sh' \
        >"$root/first.log" 2>&1
    [ $? = 0 ] || { cat "$root/first.log" && fail "the first run, after $((SECONDS - start)) s"; }
    tail -n 25 "$root/first.log"
    echo "first run: $((SECONDS - start)) s"
    accuracy=$(accuracy_of "$root"/home/me/runs/*/events.jsonl) || fail 'no done event'
    awk -v a="$accuracy" 'BEGIN { exit !(a > 0.97 && a <= 1) }' || fail "accuracy is $accuracy"
    ls "$root"/home/me/runs/*/checkpoints/latest/model.safetensors || fail 'no model was saved'
}

# Nothing is installed, configured or built again, and the first run's folder is left alone.
check_second_run() # ROOT
{
    local root=$1 before
    before=$(stat -c %Y "$root/src/build/driver/dpdriver" "$root/var/lib/dpkg/status")
    inside "$root" sh -c 'cd /home/me && /src/deploy/quickstart.sh --set train.max_steps=5' \
        >"$root/second.log" 2>&1 || { cat "$root/second.log" && fail 'the second run'; }
    grep -E '^(deps|quickstart)\.sh:' "$root/second.log" && fail 'the second run did it again'
    [ "$before" = "$(stat -c %Y "$root/src/build/driver/dpdriver" "$root/var/lib/dpkg/status")" ] ||
        fail 'the second run installed or built something'
    [ "$(ls "$root/home/me/runs" | wc -l)" = 2 ] || fail 'not a folder of its own for each run'
}

# A user without root gets no complaint once all packages are there.
check_no_root_needed() # ROOT
{
    local said
    said=$(chroot --userspec=nobody "$1" env -i PATH=$root_path /src/deploy/deps.sh 2>&1) ||
        fail "deps.sh as nobody: $said"
    [ -z "$said" ] || fail "deps.sh is not silent when all is there: $said"
}

in_namespace() # ROOT
{
    mount_system "$1" || fail 'mounts'
    check_first_run "$1"
    check_second_run "$1"
    check_no_root_needed "$1"
    echo 'the quickstart works in an empty Debian'
}

if [ "${1:-}" = --in-namespace ]; then
    in_namespace "$2"
    exit
fi

need_debian $suite

root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
trap 'exit 1' INT TERM
make_debian $suite "$root"
copy_source "$root"
lend_ccache "$root"
unshare --mount --pid --fork --kill-child "$0" --in-namespace "$root"
