# debian_root.sh - the parts that the tests of this folder share which make an empty Debian by
# debootstrap, with the packages of the host's own sources.  It is sourced, and defines functions.
root_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

skip() { echo "skipped: $*" && exit 77; }
fail() { echo "FAILED: $*" >&2 && exit 1; }

# Prints the archive that the host's apt takes the suite from, or nothing.
find_mirror() # SUITE
{
    apt-get indextargets --format '$(SUITE) $(CODENAME) $(SITE)' 'Created-By: Packages' |
        awk -v suite="$1" '$1 == suite || $2 == suite { print $3; exit }'
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
        CCACHE_DIR=/opt/ccache/cache DEBIAN_FRONTEND=noninteractive \
        ${CCACHE_MAXSIZE+CCACHE_MAXSIZE="$CCACHE_MAXSIZE"} \
        ${http_proxy+http_proxy="$http_proxy"} ${https_proxy+https_proxy="$https_proxy"} \
        ${no_proxy+no_proxy="$no_proxy"} "$@" </dev/null
}

mount_system() # ROOT
{
    mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" &&
        mount -t tmpfs tmpfs "$1/dev/shm" || return
    [ ! -e "$1/opt/ccache" ] || mount --bind "$(ccache -k cache_dir)" "$1/opt/ccache/cache"
}

# Skips the test where there cannot be an empty Debian of this suite; sets mirror.
need_debian() # SUITE
{
    [ "$(id -u)" = 0 ] || skip 'only root can make a chroot'
    command -v debootstrap >/dev/null || skip 'no debootstrap'
    unshare --mount --pid --fork true 2>/dev/null || skip 'no mount namespaces here'
    mirror=$(find_mirror "$1")
    [ -n "$mirror" ] || mirror=$(find_mirror bookworm)
    [ -n "$mirror" ] || skip "apt has no source of $1 here"
    wget -q -T 20 -t 2 -O /dev/null "${mirror%/}/dists/$1/Release" ||
        skip 'the packages are out of reach'
}

make_debian() # SUITE ROOT
{
    mkdir -p "$2" && chmod 755 "$2"
    debootstrap --variant=minbase "$1" "$2" "$mirror" >"$2.log" 2>&1 ||
        { tail -n 20 "$2.log" && rm -f "$2.log" && fail debootstrap; }
    rm -f "$2.log"
    copy_settings "$2"
    [ -n "$(find_mirror "$1")" ] || name_source "$1" "$2"
}

# Replaces the host's package sources, which are of another suite.
name_source() # SUITE ROOT
{
    rm -rf "$2/etc/apt/sources.list.d" "$2"/etc/apt/preferences.d/*
    echo "deb $mirror $1 main" >"$2/etc/apt/sources.list"
}

# Prints the accuracy of the last "done" event of a run.
accuracy_of() # EVENTS
{
    python3 -c '
import json, sys
done = [e for e in map(json.loads, open(sys.argv[1])) if e["event"] == "done"]
print(done[-1]["validation_accuracy"])' "$1"
}
