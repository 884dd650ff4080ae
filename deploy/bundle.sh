#!/bin/sh
# bundle.sh - makes one tar that runs where nothing is installed.  It holds the daemons, the plugins
# for GPUs and fabrics, tests (of the GPU and others), benchmarks, and every library that they need
# but the C library, libfabric and NVIDIA's.
#
#   deploy/bundle.sh [--build DIR] [--out FILE] [--as-built | MESON OPTION...]
#
# Builds in DIR (build-bundle/) for all GPUs that -Dgpu_arch=release names, and writes FILE
# (dptrain-VERSION-x86_64.tar.gz in the working directory).  --as-built builds nothing and takes
# what DIR holds.  The tar unpacks to one folder, which may be put anywhere: bin/dpdriver --nranks 2
# --local.  It runs on x86-64 Linux with the C library of Debian 12 or a newer one.  NVIDIA's
# libraries are found there in the toolkit or in pip's packages; bin/dpdriver --check --device cuda
# says where it looked.
#
# DPTRAIN_SKIP_DEPS=1 does not install what building needs (deploy/deps.sh).
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
build=$top/build-bundle
out=
as_built=no
max_mib=60
max_glibc=2.36

fail()
{
    echo "bundle.sh: $*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
    --build | --out) [ $# -ge 2 ] || fail "$1 wants a value" ;;
    esac
    case $1 in
    --build) build=$2 && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    --as-built) as_built=yes && shift ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
    -D*) break ;;
    *) fail "unknown argument '$1'; known: --build DIR, --out FILE, --as-built, -Doption=value" ;;
    esac
done

[ "$(uname -m)" = x86_64 ] || fail "this is $(uname -m); bundles are made on x86_64"
[ "${DPTRAIN_SKIP_DEPS:-}" = 1 ] || "$top/deploy/deps.sh" --bundle

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

build_all()
{
    if [ ! -f "$build/build.ninja" ]; then
        meson setup "$build" "$top" --buildtype=release -Dgpu_arch=release "$@" >"$work/log" 2>&1
    else
        meson configure "$build" -Dgpu_arch=release "$@" >"$work/log" 2>&1
    fi || { cat "$work/log" >&2 && fail "meson setup of $build"; }
    ninja -C "$build" >"$work/log" 2>&1 || { tail -n 50 "$work/log" >&2 && fail "the build"; }
}

[ $as_built = yes ] || build_all "$@"

version=$(meson introspect "$build" --projectinfo | sed -n 's/.*"version": *"\([^"]*\)".*/\1/p')
name=dptrain-$version-x86_64
root=$work/$name
mkdir -p "$root/bin" "$root/lib" "$root/licenses"

# copy DIR FILE...
copy()
{
    mkdir -p "$root/$1"
    to=$root/$1
    shift
    for file in "$@"; do
        cp -L "$file" "$to/" || fail "there is no $file"
    done
}

plugins=$build/common/plugin
copy bin "$build/driver/dpdriver" "$build/follower/dpfollower"
for plugin in dptrain-cuda.so dptrain-fabric.so; do
    if [ -f "$plugins/$plugin" ]; then copy lib "$plugins/$plugin"; fi
done
copy . "$top/README.md" "$top/CHANGELOG.md" "$top/CONTRIBUTING.md" "$top/SECURITY.md" \
    "$top/LICENSE"
copy docs "$top"/docs/*.md
copy docs/operating "$top"/docs/operating/*.md "$top"/docs/operating/*.json
git -C "$top" describe --always --dirty >"$root/commit" 2>/dev/null || echo unknown >"$root/commit"
copy tests "$top/tests/run.sh"
copy tests/gpu "$top"/tests/gpu/*.py "$top/tests/golden/golden.json"
for program in "$build"/tests/gpu/gpu_*; do
    if [ -f "$program" ]; then strip -o "$root/bin/$(basename "$program")" "$program"; fi
done
copy tests/interop "$top"/tests/interop/*.py
if [ -x "$root/bin/gpu_probe" ]; then
    "$top/deploy/bundle_tests.py" "$build" "$top" "$root" >"$work/log" 2>&1 ||
        { cat "$work/log" >&2 && fail "the tests"; }
fi
copy tests/bench "$top/tests/bench/RESULTS.md"
for script in bench checkpoints gpu gpu_models models recovery torch_gpu torch_gpu_models \
    torch_networks torch_recovery torch_side; do
    copy tests/bench "$top/tests/bench/$script.py"
done

is_elf() { [ "$(head -c 4 "$1" | tail -c 3)" = ELF ]; }

programs()
{
    find "$root" -type f | while read -r file; do
        if is_elf "$file"; then echo "$file"; fi
    done
}

# The C library is the machine's.  NVIDIA's libraries are found at run time, and so is libfabric: a
# site's own one knows its network.
not_ours='^(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|libutil|libanl|libnsl)[.]so'
nvidia='^(libcu[A-Za-z_]*|libnccl|libnv[A-Za-z-]*)[.]so'

programs | grep -v '/dptrain-fabric[.]so$' | while read -r file; do ldd "$file"; done \
    >"$work/ldd" 2>/dev/null || true
awk -v nvidia="$nvidia" '/not found/ && $1 !~ nvidia { print $1 }' "$work/ldd" >"$work/missing"
[ ! -s "$work/missing" ] || fail "libraries are missing here: $(cat "$work/missing")"
awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' "$work/ldd" | sort -u |
    grep -vE "$not_ours|$nvidia" >"$work/libraries"
# Each call reads all of dpkg's lists, so there is one for all libraries: "PACKAGE: PATH" of each.
while read -r soname path; do
    printf '*/%s\0' "$(basename "$(readlink -f "$path")")"
done <"$work/libraries" | xargs -0 dpkg-query -S >"$work/packages" 2>/dev/null || true
while read -r soname path; do
    if [ -e "$root/lib/$soname" ]; then continue; fi
    cp -L "$path" "$root/lib/$soname"
    chmod 755 "$root/lib/$soname"
    file=$(basename "$(readlink -f "$path")")
    package=$(awk -F ': ' -v file="/$file" \
        'substr($2, length($2) - length(file) + 1) == file { sub(":.*", "", $1); print $1; exit }' \
        "$work/packages")
    copyright=/usr/share/doc/${package:-none}/copyright
    if [ -f "$copyright" ]; then cp -L "$copyright" "$root/licenses/$package"; fi
done <"$work/libraries"

command -v patchelf >/dev/null || fail "no patchelf here: deploy/deps.sh --bundle installs it"

# Nothing in the bundle may need a newer C library than Debian 12 has.
programs | while read -r file; do
    readelf -V "$file" 2>/dev/null | grep -oE 'GLIBC_[0-9]+\.[0-9]+' | sort -u |
        sed "s,\$, ${file#"$root"/},"
done | sort -V >"$work/glibc"
newest=$(tail -n 1 "$work/glibc" | sed 's/GLIBC_\([0-9.]*\) .*/\1/')
[ "$(printf '%s\n%s\n' "$newest" $max_glibc | sort -V | tail -n 1)" = $max_glibc ] ||
    fail "$(tail -n 1 "$work/glibc") is newer than $max_glibc, which Debian 12 has: build there"

# Each program finds its libraries beside itself, wherever the folder is.  It gets an RPATH, not a
# RUNPATH, because an RPATH holds for the libraries of the libraries, too.
for file in "$root"/bin/* "$root"/unit/* "$root"/lib/dptrain-*.so; do
    { [ -f "$file" ] && is_elf "$file"; } || continue
    own=$(patchelf --print-rpath "$file")
    patchelf --force-rpath --set-rpath "\$ORIGIN/../lib${own:+:$own}" "$file"
    readelf -d "$file" | grep -q 'RPATH.*\$ORIGIN/../lib' || fail "${file#"$root"/} has no rpath"
done

out=${out:-$PWD/$name.tar.gz}
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cf - "$name" |
    gzip -9n >"$work/bundle.tar.gz"
bytes=$(wc -c <"$work/bundle.tar.gz")
[ "$bytes" -lt $((max_mib * 1048576)) ] ||
    fail "it would have $((bytes / 1048576)) MiB, and $max_mib are the limit"
mv "$work/bundle.tar.gz" "$out"
echo "bundle.sh: $out, $((bytes / 1048576)) MiB" \
    "($(ls "$root/lib" | wc -l) libraries, glibc $newest or newer)"
[ -f "$root/lib/dptrain-cuda.so" ] ||
    echo "bundle.sh: without the GPU plugin: no CUDA toolkit here" >&2
