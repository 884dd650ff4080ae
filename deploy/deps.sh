#!/bin/sh
# deps.sh - installs the Debian packages that dptrain needs and this machine lacks.
#
#   deploy/deps.sh            packages for building, and so for running
#   deploy/deps.sh --bundle   these, and those for deploy/bundle.sh
#   deploy/deps.sh --tests    all these, and those for tests/run.sh
#   deploy/deps.sh --run      only those for running a built daemon
#   deploy/deps.sh --cluster  launchers that tests/run.sh cluster starts: Slurm, MPICH, sshd.  Where
#                             systemd runs, Debian starts their services; the tests need none of it
#   deploy/deps.sh --arm64    packages for building, and those for a cross build for arm64
#                             (deploy/arm64.sh)
#   --list                    with any of them: prints the package names and changes nothing
#
# Of the packages for tests chromium (380 MB on the disk with its driver) shows the page of --http,
# and prometheus (95 MB) has promtool.  Debian starts prometheus as a service, on port 9090, where
# systemd runs: `systemctl disable --now prometheus` ends that, and the tests do not need it.
#
# If all packages are there it prints nothing and takes no time.  Installing needs root or sudo.
set -eu

run_packages='libuv1 libprotobuf-c1 libyaml-0-2 libjansson4 zlib1g libdnnl2 libxxhash0 libssl3
    libsystemd0 libjpeg62-turbo libpng16-16 libmicrohttpd12
    libpcre2-8-0 libutf8proc2'
build_packages='gcc g++ libc6-dev meson ninja-build pkg-config protobuf-c-compiler
    libuv1-dev libprotobuf-c-dev libyaml-dev libjansson-dev zlib1g-dev libdnnl-dev libxxhash-dev
    libssl-dev libsystemd-dev libjpeg62-turbo-dev libpng-dev libmicrohttpd-dev
    libpcre2-dev libutf8proc-dev'
bundle_packages='patchelf libfabric-dev'
test_packages='libcmocka-dev spin python3 clang clang-format lld llvm
    libclang-rt-14-dev git openssl debootstrap iproute2 util-linux procps systemd openmpi-bin
    python3-venv python3-yaml python3-jsonschema groff-base zsh fish libcurl4
    chromium chromium-driver prometheus'
cluster_packages='slurm-wlm munge mpich openmpi-bin openssh-server openssh-client iproute2
    util-linux python3-yaml'

arm64_packages='gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static'

fail()
{
    echo "deps.sh: $*" >&2
    exit 1
}

wanted=$build_packages
list=no
for arg in "$@"; do
    case $arg in
    --run) wanted=$run_packages ;;
    --build) wanted=$build_packages ;;
    --bundle) wanted="$build_packages $bundle_packages" ;;
    --tests) wanted="$build_packages $bundle_packages $test_packages" ;;
    --cluster) wanted=$cluster_packages ;;
    --arm64) wanted="$build_packages $arm64_packages" ;;
    --list) list=yes ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
    *) fail "unknown argument '$arg'; known: --run --build --bundle --tests --cluster --arm64 \
--list" ;;
    esac
done

if [ $list = yes ]; then
    printf '%s\n' $wanted
    exit 0
fi

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    system=$(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-}") || system=
    fail "this is ${system:-not a Debian system}, and the packages below carry Debian 12's names.
Install their counterparts by your own means, set DPTRAIN_SKIP_DEPS=1, and run again:
$(printf '    %s\n' $wanted)"
fi

# One query for all packages: it prints the state of each that dpkg knows.
states=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $wanted 2>/dev/null) || true
missing=
for package in $wanted; do
    printf '%s\n' "$states" | grep -qx "$package installed" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 ||
        fail "missing packages, and neither root nor sudo here.  As root: apt-get install$missing"
    as_root=sudo
    if [ ! -t 0 ]; then # no password can be typed
        as_root='sudo -n'
        sudo -n true 2>/dev/null ||
            fail "sudo wants a password here.  As root: apt-get install$missing"
    fi
fi

echo "deps.sh: installing Debian packages:$missing"
install="env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0"
$as_root $install update </dev/null ||
    echo "deps.sh: apt-get update failed; trying with the old lists" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! $as_root $install install -y --no-install-recommends $missing </dev/null >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "apt-get install failed (above); wanted:$missing"
fi
