#!/usr/bin/env bash
# Tests the promise of deploy/bundle.sh: its tar runs where there is nothing but a kernel and a C
# library.  The root here holds a C library, /proc, /dev, /etc/hosts and the unpacked bundle.  In it
# the demo trains on two ranks, the bundle's unit tests pass, and a program that is asked for a GPU
# names the missing libraries.  The bundle also works after it was moved to another folder.
#
#     tests/chroot/bundle.sh BUNDLE.tar.gz
#     tests/chroot/bundle.sh --build DIR     makes a bundle of the build in DIR, and tests it
#
# It is skipped (77) without root or mount namespaces.
set -u
source=$(cd "$(dirname "$0")/../.." && pwd)

skip() { echo "skipped: $*" && exit 77; }
fail() { echo "FAILED: $*" >&2 && exit 1; }

# Copies the C library of this machine, and nothing else.
copy_libc() # ROOT
{
    local root=$1 name path
    for name in ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 \
        libresolv.so.2; do
        path=$(ldconfig -p | awk -v name=$name '$1 == name && /x86-64/ { print $NF; exit }')
        [ -n "$path" ] || continue
        mkdir -p "$root${path%/*}"
        cp -L "$path" "$root$path"
    done
    mkdir -p "$root/lib64"
    [ -e "$root/lib64/ld-linux-x86-64.so.2" ] ||
        cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
}

accuracy_of() # EVENTS
{
    python3 -c '
import json, sys
done = [e for e in map(json.loads, open(sys.argv[1])) if e["event"] == "done"]
print(done[-1]["validation_accuracy"])' "$1"
}

check_training() # ROOT FOLDER
{
    local root=$1 accuracy
    env -i PATH="$PATH" HOME=/tmp chroot "$root" "$2/bin/dpdriver" --nranks 2 --local --port 0 \
        --run-dir /tmp/run --set train.epochs=1 </dev/null >"$root/tmp/log" 2>&1 ||
        { cat "$root/tmp/log" && fail 'the demo'; }
    tail -n 6 "$root/tmp/log"
    accuracy=$(accuracy_of "$root/tmp/run/events.jsonl") || fail 'no done event'
    awk -v a="$accuracy" 'BEGIN { exit !(a > 0.9 && a <= 1) }' || fail "accuracy is $accuracy"
    [ -e "$root/tmp/run/checkpoints/latest/model.safetensors" ] || fail 'no model was saved'
}

# COMMAND must end with STATUS and say every one of WORDS.
expect() # ROOT STATUS WORDS COMMAND...
{
    local root=$1 want=$2 words=$3 status text word
    shift 3
    text=$(env -i PATH="$PATH" HOME=/tmp chroot "$root" "$@" </dev/null 2>&1)
    status=$?
    [ $status = "$want" ] || fail "$* ended with $status, want $want: $text"
    for word in $words; do
        case $text in
        *$word*) ;;
        *) fail "$* does not say $word: $text" ;;
        esac
    done
}

check_gpu() # ROOT FOLDER
{
    if [ ! -e "$1$2/lib/dptrain-cuda.so" ]; then
        echo 'the bundle has no GPU plugin: nothing to ask of it'
        return
    fi
    expect "$1" 77 'libcudart.so.13 libcublasLt.so.13 libcudnn.so.9 libnccl.so.2' \
        "$2/bin/gpu_probe"
    expect "$1" 2 'libcudart.so.13 libnccl.so.2 dptrain-cuda.so' \
        "$2/bin/dpdriver" --check --nranks 1 --device cuda
}

# Runs the tests of the bundle that are programs, as nothing else runs there; not those that take
# minutes.
check_tests() # ROOT FOLDER
{
    [ -f "$1$2/tests/list" ] || fail 'the bundle has no tests'
    python3 - "$1" "$2" <<'PY' || fail 'tests of the bundle'
import os, shlex, subprocess, sys
from concurrent.futures import ThreadPoolExecutor

root, folder = sys.argv[1:]
take_minutes = {"session/sim_plain", "session/sim_elastic", "session/sim_leaders",
                "session/sim_standby", "coll/coll", "coll/cases", "coll/strangers", "coll/nccl",
                "coll/nccl_many", "coll/nccl_stop", "op/cases", "op/cases_avx2", "op/cases_sse41",
                "train/resume", "train/zero", "train/zero_lost"}

def run(name, seconds, command):
    words = shlex.split(command)
    env = {"HOME": "/tmp", "PATH": "/bin"}
    while "=" in words[0]:
        env.update([words.pop(0).split("=", 1)])
    if words[0] == "python3" or name in take_minutes:
        return None
    done = subprocess.run(["/usr/bin/unshare", "--root=" + root, "--wd=" + folder, *words],
                          env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace",
                          timeout=10 * int(seconds))
    return name, done.returncode, done.stdout

with open(root + folder + "/tests/list", encoding="utf-8") as tests:
    lines = [line.rstrip("\n").split("\t") for line in tests]
# Many of them wait most of the time.
with ThreadPoolExecutor(3 * os.cpu_count()) as side_by_side:
    ran = [one for one in side_by_side.map(lambda line: run(*line), lines) if one]
failed = [one for one in ran if one[1] not in (0, 77)]
for name, status, output in failed:
    print(f"{name}: status {status}\n{output[-2000:]}")
n_passed = sum(status == 0 for _, status, _ in ran)
n_skipped = len(ran) - len(failed) - n_passed
print(f"its tests: {n_passed} passed, {len(failed)} failed, {n_skipped} skipped")
sys.exit(1 if failed or n_passed < 60 else 0)
PY
}

in_namespace() # ROOT FOLDER
{
    mkdir -p "$1/proc" "$1/dev" "$1/tmp" "$1/etc"
    echo '127.0.0.1 localhost' >"$1/etc/hosts"
    mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" || fail 'mounts'
    expect "$1" 0 dpdriver "$2/bin/dpdriver" --version
    check_training "$1" "$2"
    check_gpu "$1" "$2"
    check_tests "$1" "$2"
    mkdir -p "$1/elsewhere/deep"
    mv "$1$2" "$1/elsewhere/deep/moved"
    expect "$1" 0 dpfollower /elsewhere/deep/moved/bin/dpfollower --version
    expect "$1" 0 listening /elsewhere/deep/moved/bin/dpdriver --nranks 2 --local --port 0 \
        --run-dir /tmp/moved --set train.max_steps=3
    echo 'the bundle runs where there is nothing but a C library'
}

if [ "${1:-}" = --in-namespace ]; then
    in_namespace "$2" "$3"
    exit
fi

[ "$(id -u)" = 0 ] || skip 'only root can make a chroot'
unshare --mount --pid --fork true 2>/dev/null || skip 'no mount namespaces here'
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' INT TERM
bundle=$1
if [ "$bundle" = --build ]; then
    bundle=$work/bundle.tar.gz
    DPTRAIN_SKIP_DEPS=1 "$source/deploy/bundle.sh" --as-built --build "$2" --out "$bundle" ||
        fail 'deploy/bundle.sh'
fi
root=$work/root
mkdir -p "$root/opt"
tar -C "$root/opt" -xzf "$bundle" || fail 'it does not unpack'
folder=/opt/$(ls "$root/opt")
copy_libc "$root"
# Outside of the root, its GPU suite and its benchmark start from the bundle's folder, whether this
# machine has a GPU or not.
(cd "$root$folder" && tests/run.sh gpu --only properties) >"$work/suite" 2>&1
status=$?
[ $status = 77 ] || [ $status = 0 ] || { cat "$work/suite" && fail "its run.sh gpu: $status"; }
for name in gpu gpu-models; do
    "$root$folder/tests/bench/bench.py" $name --help >"$work/bench" || fail "its bench.py $name"
done
unshare --mount --pid --fork --kill-child "$0" --in-namespace "$root" "$folder"
