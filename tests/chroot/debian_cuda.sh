#!/usr/bin/env bash
# Tests the package dptrain-cuda: it is built, lintian finds nothing, and in an empty Debian 12 it
# is installed, upgraded and removed beside dptrain.  NVIDIA's driver is not there.  A job that may
# use a GPU trains on the CPU, and one that must is refused with one line.  With the toolkit's
# libraries in place the daemons load the plugin.
#
#     tests/chroot/debian_cuda.sh TOOLKIT ARCHITECTURES [FOLDER]
#
# The plugin is built for the GPUs of the build whose test this is, so that ccache has its kernels.
# FOLDER has packages that were built already.
#
# It is skipped (77) for the reasons of debian.sh, and on another system than Debian 12.
set -u
source=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/chroot/debian_root.sh
. "$source/tests/chroot/debian_root.sh"
# shellcheck source=tests/chroot/debian_packages.sh
. "$source/tests/chroot/debian_packages.sh"
suite=bookworm
libraries='libcudart.so.13, libcublasLt.so.13, libcudnn.so.9, libcudnn_graph.so.9, libnccl.so.2'
# Names of NVIDIA's repository.  Those of a CUDA that is newer than the build's serve as well.
nvidia='cuda-cudart-13-1 cuda-nvrtc-13-1 libcublas-13-1 libcudnn9-cuda-13 libnccl2
    libnvjitlink-13-1'

# ---- outside of the empty Debian ----

# The plugin opens NVIDIA's libraries, so that none of their packages is a dependency.
check_depends() # FOLDER VERSION
{
    local depends
    depends=$(dpkg-deb -f "$1"/dptrain-cuda_*.deb Depends) || fail 'there is no dptrain-cuda'
    [[ $depends == "dptrain (= $2), "*"libc6 "* ]] || fail "dptrain-cuda depends on $depends"
    [[ ! $depends =~ cuda|libcu|nccl|libnv ]] || fail "dptrain-cuda depends on $depends"
}

# A repository of empty packages with the names of NVIDIA's.
make_nvidia() # ROOT
{
    local name version
    for name in $nvidia; do
        version=13.1.80-1
        [ "$name" != libnccl2 ] || version=2.28.9-1+cuda13.0
        mkdir -p "$1/nvidia/$name/DEBIAN"
        printf '%s\n' "Package: $name" "Version: $version" 'Architecture: all' \
            'Maintainer: nobody <nobody@dptrain.invalid>' 'Description: empty' \
            >"$1/nvidia/$name/DEBIAN/control"
        dpkg-deb -b "$1/nvidia/$name" "$1/nvidia" >/dev/null && rm -r "$1/nvidia/$name" ||
            fail "an empty $name"
    done
    (cd "$1/nvidia" && dpkg-scanpackages . >Packages 2>/dev/null) || fail 'dpkg-scanpackages'
}

# ---- in the empty Debian ----

# COMMAND ends with STATUS, and its output has PATTERN, a regular expression.  Sets said to it.
expect() # ROOT STATUS PATTERN COMMAND...
{
    local root=$1 want=$2 pattern=$3 status
    shift 3
    said=$(inside "$root" timeout 120 "$@" 2>&1)
    status=$?
    [ $status = "$want" ] || fail "$* ended with $status, want $want: $said"
    [[ $said =~ $pattern ]] || fail "$* does not say $pattern: $said"
}

# COMMAND is refused with one line.
expect_refusal() # ROOT PATTERN COMMAND...
{
    expect "$1" 2 "$2" "${@:3}"
    [ "$(wc -l <<<"$said")" = 1 ] || fail "${*:3} says more than a line: $said"
    echo "$said"
}

# A job that may use a GPU, by default, trains on the CPU.  Sets said to its output.
train_on_cpu() # ROOT
{
    rm -rf "$1/tmp/run"
    expect "$1" 0 listening dpdriver --nranks 2 --local --port 0 --run-dir /tmp/run \
        --set train.max_steps=5
    python3 -c '
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
devices = {e["device"] for e in events if e["event"] == "start"}
sys.exit(devices != {"cpu"} or events[-1]["event"] != "done")' "$1/tmp/run/events.jsonl" ||
        fail "the job was not trained on the CPU: $said"
}

# apt passes over NVIDIA's packages where it knows none, and installs them where it does.
check_recommends() # ROOT
{
    local name
    expect "$1" 0 'Inst dptrain-cuda ' sh -c 'apt-get -s install -y /packages/*.deb'
    echo 'deb [trusted=yes] file:/nvidia ./' >"$1/etc/apt/sources.list.d/nvidia.list"
    inside "$1" apt-get -qq update >/dev/null || fail 'apt-get update'
    expect "$1" 0 'Inst dptrain-cuda ' sh -c 'apt-get -s install -y /packages/*.deb'
    for name in $nvidia; do
        [[ $said == *"Inst $name "* ]] || fail "apt does not install $name: $said"
    done
    rm "$1/etc/apt/sources.list.d/nvidia.list"
    inside "$1" apt-get -qq update >/dev/null || fail 'apt-get update'
}

check_upgrade() # ROOT VERSION
{
    install_folder "$1" old
    expect_version "$1" "$old_version installed" dptrain dptrain-cuda
    # Halves of two versions do not stay beside each other.
    expect "$1" 0 'Remv dptrain-cuda ' sh -c 'apt-get -s install -y /packages/dptrain_*.deb'
    install_folder "$1" packages
    expect_version "$1" "$2 installed" dptrain dptrain-cuda
    said=$(inside "$1" dpkg --verify dptrain-cuda) && [ -z "$said" ] ||
        fail "files differ from the package: $said"
}

# Neither a driver nor libraries: as on a machine without GPUs that has the package.
check_nothing() # ROOT
{
    local missing="--device cuda: libraries not found: $libraries; .* --check --device cuda shows"
    train_on_cpu "$1"
    [[ ! $said =~ GPU ]] || fail "a job for the CPU speaks of GPUs: $said"
    expect_refusal "$1" "$missing" dpdriver --nranks 1 --device cuda
    expect_refusal "$1" "$missing" dpfollower --root localhost:1 --device cuda
    expect_refusal "$1" 'here: there is no NVIDIA driver \(libcuda.so.1\); --ranks N starts' \
        dpdriver --ranks gpus
    expect "$1" 2 "dptrain-cuda.so: /usr/lib/.*/dptrain-cuda.so; .*libcudart.so.13: not found" \
        dpdriver --check --nranks 1 --device cuda
}

# A driver, here an empty stand-in, without the libraries: the one thing that is worth a warning.
check_driver() # ROOT
{
    local all="libraries not found: $libraries; .* shows where they were looked for"
    cc -shared -Wl,-soname,libcuda.so.1 -o "$1/usr/lib/libcuda.so.1" -x c /dev/null ||
        fail 'a stand-in for the driver'
    train_on_cpu "$1"
    [[ $said =~ "--device auto: no GPU can be used: "$all"; computing on the CPU" ]] ||
        fail "the job does not say why it uses no GPU: $said"
    [ "$(grep -c 'no GPU can be used' <<<"$said")" = 1 ] || fail "it says so again: $said"
    expect_refusal "$1" "--ranks gpus: no GPU can be used here: $all; --ranks N starts" \
        dpdriver --ranks gpus
    rm "$1/usr/lib/libcuda.so.1"
}

# The toolkit's libraries without a driver.
check_libraries() # ROOT TOOLKIT ARCHITECTURES
{
    local pattern absent='no GPU can be used: there is no NVIDIA driver \(libcuda.so.1\)'
    mkdir -p "$1/usr/local/cuda/lib64"
    mount --bind "$(realpath "$2/lib64")" "$1/usr/local/cuda/lib64" || fail 'mounts'
    expect "$1" 2 "$absent" dpdriver --check --nranks 1 --device cuda
    for pattern in 'dptrain-cuda.so: /usr/lib/[^;]*/dptrain/dptrain-cuda.so; ' \
        'libcudart.so.13: /usr/local/cuda/lib64/libcudart.so.13' 'CUDA runtime: 13\.' \
        'cuBLASLt: 13\.' 'cuDNN: 9\.' 'NCCL: 2\.' "kernels built for: $3"; do
        [[ $said =~ $pattern ]] || fail "--check does not say $pattern: $said"
    done
    expect_refusal "$1" "--device cuda: $absent" dpdriver --nranks 1 --device cuda
    train_on_cpu "$1"
    umount "$1/usr/local/cuda/lib64" && rm -r "$1/usr/local/cuda" || fail 'umount'
}

check_removal() # ROOT VERSION
{
    local left
    inside "$1" apt-get -qq remove -y dptrain-cuda >/dev/null || fail 'apt-get remove'
    expect_version "$1" "$2 installed" dptrain
    expect_refusal "$1" 'dptrain-cuda.so is neither .*: install the package dptrain-cuda' \
        dpdriver --nranks 1 --device cuda
    train_on_cpu "$1"
    install_folder "$1" packages
    expect "$1" 0 'Remv dptrain-cuda ' apt-get -s remove -y dptrain
    inside "$1" apt-get -qq purge -y dptrain dptrain-cuda >/dev/null || fail 'apt-get purge'
    left=$(find_ours "$1")
    [ -z "$left" ] || fail "purging leaves $left"
}

in_namespace() # ROOT VERSION TOOLKIT ARCHITECTURES
{
    mount_system "$1" || fail 'mounts'
    inside "$1" apt-get -qq update >/dev/null || fail 'apt-get update'
    [ -z "$(find_ours "$1")" ] || fail 'the system is not empty'
    check_recommends "$1"
    check_upgrade "$1" "$2"
    check_nothing "$1"
    check_driver "$1"
    check_libraries "$1" "$3" "$4"
    check_removal "$1" "$2"
    echo 'dptrain-cuda comes, is found, follows an older one, and leaves nothing'
}

if [ "${1:-}" = --in-namespace ]; then
    in_namespace "${@:2}"
    exit
fi

[ $# -ge 2 ] || fail 'usage: debian_cuda.sh TOOLKIT ARCHITECTURES [FOLDER]'
# shellcheck disable=SC1091 # it is the system's
[ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = $suite ] ||
    skip 'the package is of the system on which it is built, and this is not Debian 12'
need_debian $suite
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' INT TERM
chmod 755 "$work"
packages=${3:-$work/packages}
mkdir -p "$work/packages"
[ -n "${3:-}" ] || build_here "$packages" DEB_BUILD_PROFILES= DPTRAIN_GPU_ARCH="$2" \
    PATH="$1/bin:$PATH"
version=$(dpkg-deb -f "$packages"/dptrain_*.deb Version)
check_depends "$packages" "$version"
check_lint "$packages"
make_debian $suite "$work/system"
make_old "$packages" "$work/system/old" dptrain dptrain-cuda
make_nvidia "$work/system"
mkdir "$work/system/packages"
cp "$packages"/dptrain_*.deb "$packages"/dptrain-cuda_*.deb "$work/system/packages/"
unshare --mount --pid --fork --kill-child "$0" --in-namespace "$work/system" "$version" "$1" "$2"
