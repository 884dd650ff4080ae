#!/bin/sh
# arm64.sh - prepares a cross build for arm64: Debian's libraries of that architecture, and a cross
# file of meson.
#
#   deploy/deps.sh --arm64
#   deploy/arm64.sh FOLDER
#   meson setup build-arm64 --cross-file FOLDER/arm64.ini --buildtype=release
#   ninja -C build-arm64
#
# FOLDER/root becomes a system root of 180 MB.  apt fetches its packages from the sources of this
# machine, so that they belong to the same Debian as the compiler.  Nothing is installed, and no
# root is needed.  A root that is there is taken as it is; remove it for newer packages.
#
# Programs of the build run by qemu-user: the build itself starts some, and so do tests
# (tests/run.sh arm64).
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
tuple=aarch64-linux-gnu

fail()
{
    echo "deploy/arm64.sh: $*" >&2
    exit 1
}

case ${1:-} in
-h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
-* | '') fail 'want one folder; deploy/arm64.sh --help' ;;
esac
for tool in $tuple-gcc $tuple-g++ qemu-aarch64-static apt-get dpkg-deb; do
    command -v $tool >/dev/null || fail "no $tool here: deploy/deps.sh --arm64"
done
mkdir -p "$1"
folder=$(cd "$1" && pwd)
root=$folder/root

fetch() # PACKAGE...: them, and all that they depend on, of arm64
{
    mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
    : >"$folder/apt/status"
    for action in 'update' "install --download-only -y $*"; do
        # shellcheck disable=SC2086 # several words
        apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 \
            -o APT::Install-Recommends=0 -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 \
            -o Dir::State="$folder/apt" -o Dir::State::status="$folder/apt/status" \
            -o Dir::Cache="$folder/apt/cache" $action || fail "apt-get $action"
    done
}

# Debian's folders of /usr have links in /; a package may name either.
unpack() # INTO
{
    for name in bin lib sbin; do
        mkdir -p "$1/usr/$name"
        ln -s usr/$name "$1/$name"
    done
    for file in "$folder"/apt/cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$file" | tar -C "$1" --keep-directory-symlink -xf -
    done
}

if [ ! -d "$root" ]; then
    trap 'rm -rf "$folder/apt" "$folder/unpacked"' EXIT
    trap 'exit 1' INT TERM
    # shellcheck disable=SC2046 # several words
    fetch $("$top/deploy/deps.sh" --build --list | grep '^lib') libcmocka-dev
    unpack "$folder/unpacked"
    mv "$folder/unpacked" "$root"
fi

cached=
! command -v ccache >/dev/null || cached="'ccache', "
cat >"$folder/arm64.ini" <<EOF
[constants]
root = '$root'
there = ['--sysroot=' + root]

[binaries]
c = [$cached'$tuple-gcc']
cpp = [$cached'$tuple-g++']
ar = '$tuple-gcc-ar'
strip = '$tuple-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64-static', '-L', root]

[built-in options]
c_args = there
cpp_args = there
c_link_args = there
cpp_link_args = there

[properties]
sys_root = root
pkg_config_libdir = [root / 'usr/lib/$tuple/pkgconfig', root / 'usr/share/pkgconfig']

[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
EOF
