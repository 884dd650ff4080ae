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
root_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

skip() { echo "skipped: $*" && exit 77; }
fail() { echo "FAILED: $*" >&2 && exit 1; }

# Prints the archive that the host's apt takes this suite from.
find_mirror()
{
    apt-get indextargets --format '$(SUITE) $(CODENAME) $(SITE)' 'Created-By: Packages' |
        awk -v suite=$suite '$1 == suite || $2 == suite { print $3; exit }'
}

# Copies the host's package sources, keys, certificates and name resolution.
copy_settings() # ROOT
{
    local root=$1 path
    rm -f "$root/etc/apt/sources.list"
    for path in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf \
        /etc/apt/apt.conf.d /etc/apt/preferences.d /etc/apt/auth.conf.d /etc/apt/trusted.gpg.d \
        /etc/apt/keyrings /usr/share/keyrings /etc/ssl/certs /etc/resolv.conf /etc/hosts; do
        [ -e $path ] && mkdir -p "$root${path%/*}" && cp -rL $path "$root${path%/*}/" 2>/dev/null
    done
    return 0
}

# Copies the files of a clone: all that git tracks or would track.
copy_source() # ROOT
{
    mkdir -p "$1/src"
    git -C "$source" ls-files -co --exclude-standard -z |
        tar -C "$source" --null -T - --ignore-failed-read -cf - 2>/dev/null | tar -C "$1/src" -xf -
    [ -x "$1/src/deploy/quickstart.sh" ] || fail "no quickstart.sh in the copy of $source"
}

# Lends the host's ccache.  It brings its loader, too, as the host may be another system.
lend_ccache() # ROOT
{
    local to=$1/opt/ccache path
    path=$(command -v ccache) || return 0
    mkdir -p "$to/cache" "$1/usr/local/bin"
    cp -L "$path" "$to/ccache"
    ldd "$path" | awk '{ for (i = 1; i <= NF; i++) if ($i ~ "^/") print $i }' |
        while read -r path; do cp -L "$path" "$to/"; done
    printf '#!/bin/sh\nexec /opt/ccache/%s --library-path /opt/ccache /opt/ccache/ccache "$@"\n' \
        "$(basename "$to"/ld-linux*)" >"$1/usr/local/bin/ccache"
    chmod +x "$1/usr/local/bin/ccache"
    mkdir -p "$(ccache -k cache_dir)"
    # It may not run there; then all is compiled.
    chroot "$1" ccache --version >/dev/null 2>&1 || rm "$1/usr/local/bin/ccache"
}

inside() # ROOT COMMAND...: run it there, with the proxies of the host and nothing else
{
    local root=$1
    shift
    chroot "$root" env -i PATH=$root_path HOME=/tmp LANG=C.UTF-8 TERM=dumb \
        CCACHE_DIR=/opt/ccache/cache \
        ${http_proxy+http_proxy="$http_proxy"} ${https_proxy+https_proxy="$https_proxy"} \
        ${no_proxy+no_proxy="$no_proxy"} "$@" </dev/null
}

mount_system() # ROOT
{
    mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" &&
        mount -t tmpfs tmpfs "$1/dev/shm" || return
    [ ! -e "$1/opt/ccache" ] || mount --bind "$(ccache -k cache_dir)" "$1/opt/ccache/cache"
}

# Prints the accuracy of the last "done" event of a run.
accuracy_of() # EVENTS
{
    python3 -c '
import json, sys
done = [e for e in map(json.loads, open(sys.argv[1])) if e["event"] == "done"]
print(done[-1]["validation_accuracy"])' "$1"
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

[ "$(id -u)" = 0 ] || skip 'only root can make a chroot'
command -v debootstrap >/dev/null || skip 'no debootstrap'
unshare --mount --pid --fork true 2>/dev/null || skip 'no mount namespaces here'
mirror=$(find_mirror) && [ -n "$mirror" ] || skip "apt has no source of $suite here"
wget -q -T 20 -t 2 -O /dev/null "${mirror%/}/dists/$suite/Release" ||
    skip 'the packages are out of reach'

root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
trap 'exit 1' INT TERM
chmod 755 "$root"
debootstrap --variant=minbase $suite "$root" "$mirror" >"$root.log" 2>&1 ||
    { tail -n 20 "$root.log" && rm -f "$root.log" && fail debootstrap; }
rm -f "$root.log"
copy_settings "$root"
copy_source "$root"
lend_ccache "$root"
unshare --mount --pid --fork --kill-child "$0" --in-namespace "$root"
