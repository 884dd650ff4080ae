#!/usr/bin/env bash
# Tests the packages of deploy/debian: they are built from a clean copy of the tree, lintian finds
# nothing, and in an empty Debian they are installed by apt, train the demo on two ranks, make a
# step over libfabric, follow an older version, and leave nothing behind when they are purged.  The
# RPM spec is parsed, too, where rpmspec is.
#
#     tests/chroot/debian.sh [SUITE [FOLDER]]
#
# SUITE is bookworm by default.  For another suite than the host's the packages are built in a
# chroot of that suite; FOLDER has packages that were built already.  dptrain-cuda, which needs
# NVIDIA's toolkit, is tested by debian_cuda.sh.
#
# It is skipped (77) without root, debootstrap, mount namespaces, debhelper, lintian, or a package
# source that can be reached.
set -u
source=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/chroot/debian_root.sh
. "$source/tests/chroot/debian_root.sh"
# shellcheck source=tests/chroot/debian_packages.sh
. "$source/tests/chroot/debian_packages.sh"

# ---- building ----

# In a chroot of another suite, with the packages that debian/control names.
build_there() # ROOT FOLDER
{
    local root=$1
    mkdir -p "$root/src"
    git -C "$source" ls-files -z | (cd "$source" && tar --null -T - -cf -) |
        tar -C "$root/src" -xf -
    lend_ccache "$root"
    unshare --mount --pid --fork --kill-child "$0" --build-in-namespace "$root" ||
        fail 'building in the chroot'
    cp "$root"/out/* "$2/"
}

build_in_namespace() # ROOT
{
    mount_system "$1" || fail 'mounts'
    mkdir -p "$1/out"
    inside "$1" sh -ec 'apt-get -qq update
        apt-get -qq install -y --no-install-recommends dpkg-dev
        cp -R /src/deploy/debian /src/debian
        apt-get -qq build-dep -y --no-install-recommends -P pkg.dptrain.nocuda /src
        rm -r /src/debian
        DEB_BUILD_PROFILES=pkg.dptrain.nocuda DEB_BUILD_OPTIONS=noautodbgsym \
            /src/deploy/debian/build /out' >"$1/build.log" 2>&1 ||
        { tail -n 40 "$1/build.log" && fail 'deploy/debian/build'; }
}

check_spec()
{
    if ! command -v rpmspec >/dev/null; then
        echo 'no rpmspec here: the RPM spec is not parsed'
        return
    fi
    local names
    names=$(rpmspec --with cuda -q --qf '%{name}\n' "$source/deploy/rpm/dptrain.spec") ||
        fail 'rpmspec'
    [ "$(sort <<<"$names" | tr '\n' ' ')" = 'dptrain dptrain-cuda dptrain-doc ' ] ||
        fail "the spec makes $names"
    echo 'rpmspec: three packages'
}

# ---- in the empty Debian ----

# One step over a fabric, without libfabric and with it.
check_fabric() # ROOT
{
    local run=(dpdriver --nranks 2 --local --port 0 --set train.max_steps=1
        --set 'cluster.fabric=tcp;ofi_rxm' --set cluster.shared_memory=off)
    inside "$1" "${run[@]}" --run-dir /tmp/without >"$1/tmp/log" 2>&1 &&
        fail 'a fabric without libfabric'
    grep -q "libfabric.so.1: .*Debian's package libfabric1" "$1/tmp/log" ||
        { cat "$1/tmp/log" && fail 'no word of libfabric1'; }
    inside "$1" apt-get -qq install -y --no-install-recommends libfabric1 >"$1/apt.log" 2>&1 ||
        { tail -n 30 "$1/apt.log" && fail 'apt-get install libfabric1'; }
    inside "$1" "${run[@]}" --run-dir /tmp/with >"$1/tmp/log" 2>&1 ||
        { cat "$1/tmp/log" && fail 'a step over libfabric'; }
    grep -q 'the links between ranks go over tcp;ofi_rxm' "$1/tmp/log" ||
        { cat "$1/tmp/log" && fail 'the links do not go over libfabric'; }
}

check_demo() # ROOT
{
    local accuracy
    inside "$1" dpdriver --nranks 2 --local --port 0 --run-dir /tmp/run --set train.epochs=1 \
        >"$1/tmp/log" 2>&1 || { cat "$1/tmp/log" && fail 'the demo'; }
    tail -n 6 "$1/tmp/log"
    accuracy=$(accuracy_of "$1/tmp/run/events.jsonl") || fail 'no done event'
    awk -v a="$accuracy" 'BEGIN { exit !(a > 0.9 && a <= 1) }' || fail "accuracy is $accuracy"
}

# The files of the package beside its programs.
check_files() # ROOT
{
    local path
    for path in lib/systemd/system/dpdriver@.service lib/sysusers.d/dptrain.conf \
        share/man/man1/dpdriver.1.gz share/man/man5/dptrain.yaml.5.gz \
        share/bash-completion/completions/dpfollower share/zsh/vendor-completions/_dpdriver \
        share/fish/vendor_completions.d/dpdriver.fish share/dptrain/job.schema.json \
        share/doc/dptrain/docs/operating/README.md share/doc/dptrain/copyright; do
        [ -e "$1/usr/$path" ] || [ -e "$1/$path" ] || fail "there is no /usr/$path"
    done
    inside "$1" getent passwd dptrain >/dev/null || fail 'there is no user dptrain'
    [ "$(inside "$1" stat -c '%U %a' /var/lib/dptrain)" = 'dptrain 750' ] ||
        fail '/var/lib/dptrain is not as dptrain.conf has it'
}

in_namespace() # ROOT VERSION
{
    local root=$1 left said
    mount_system "$root" || fail 'mounts'
    inside "$root" apt-get -qq update >/dev/null || fail 'apt-get update'
    [ -z "$(find_ours "$root")" ] || fail 'the system is not empty'
    install_folder "$root" old
    expect_version "$root" "$old_version installed" dptrain dptrain-doc
    install_folder "$root" packages
    expect_version "$root" "$2 installed" dptrain dptrain-doc
    check_files "$root"
    check_demo "$root"
    check_fabric "$root"
    said=$(inside "$root" dpkg --verify dptrain dptrain-doc) && [ -z "$said" ] ||
        fail "files differ from the packages: $said"
    mkdir "$root/var/lib/dptrain/mine"
    inside "$root" apt-get -qq remove -y dptrain dptrain-doc >/dev/null || fail 'apt-get remove'
    [ -d "$root/var/lib/dptrain/mine" ] || fail 'removing has taken a run'
    inside "$root" sh -c '! command -v dpdriver' || fail 'removing leaves a program'
    inside "$root" apt-get -qq purge -y dptrain dptrain-doc >"$root/apt.log" 2>&1 ||
        fail 'apt-get purge'
    [ -d "$root/var/lib/dptrain/mine" ] || fail 'purging has taken a run'
    grep -q 'the runs in /var/lib/dptrain are kept' "$root/apt.log" ||
        { cat "$root/apt.log" && fail 'purging does not tell of the runs'; }
    rmdir "$root/var/lib/dptrain/mine"
    install_folder "$root" packages
    inside "$root" apt-get -qq purge -y dptrain dptrain-doc >/dev/null || fail 'apt-get purge'
    left=$(find_ours "$root")
    [ -z "$left" ] || fail "purging leaves $left"
    echo 'the packages come, train, follow each other, and leave nothing'
}

case ${1:-} in
--in-namespace) in_namespace "$2" "$3" && exit ;;
--build-in-namespace) build_in_namespace "$2" && exit ;;
esac

suite=${1:-bookworm}
need_debian "$suite"
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' INT TERM
packages=${2:-$work/packages}
chmod 755 "$work"
mkdir -p "$work/packages"
check_spec
make_debian "$suite" "$work/system"
if [ -z "${2:-}" ]; then
    # shellcheck disable=SC1091 # it is the system's
    if [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = "$suite" ]; then
        build_here "$packages" DEB_BUILD_PROFILES=pkg.dptrain.nocuda
    else
        cp -a "$work/system" "$work/builder"
        build_there "$work/builder" "$packages"
    fi
fi
check_lint "$packages"
make_old "$packages" "$work/system/old" dptrain dptrain-doc
mkdir "$work/system/packages"
cp "$packages"/dptrain_*.deb "$packages"/dptrain-doc_*.deb "$work/system/packages/"
version=$(dpkg-deb -f "$packages"/dptrain_*.deb Version)
unshare --mount --pid --fork --kill-child "$0" --in-namespace "$work/system" "$version"
