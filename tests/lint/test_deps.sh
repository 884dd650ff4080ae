#!/bin/sh
# deploy/deps.sh where packages are missing and it cannot install them: it names them, and the
# command for root.  The programs that it asks are played.  deploy/arm64.sh names a program that is
# missing, too, and its remedy lists that program's package; tests/run.sh arm64 is skipped by name.
set -eu

deps=$(dirname "$0")/../../deploy/deps.sh
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
for program in dpkg-query apt-get; do
    printf '#!/bin/sh\n' >"$bin/$program"
done
printf '#!/bin/sh\necho 1000\n' >"$bin/id"
for program in sh sed grep dirname; do
    ln -s "$(command -v $program)" "$bin/$program"
done
chmod +x "$bin"/dpkg-query "$bin"/apt-get "$bin"/id

# expect TEXT: deps.sh fails, and says it.
expect()
{
    if said=$(PATH=$bin sh "$deps" --run </dev/null 2>&1); then
        echo "deps.sh did not fail: $said"
        exit 1
    fi
    case $said in
    *"$1"*) ;;
    *)
        echo "deps.sh says \"$said\", want \"$1\""
        exit 1
        ;;
    esac
}

expect "neither root nor sudo here.  As root: apt-get install libuv1 libprotobuf-c1"
printf '#!/bin/sh\nexit 1\n' >"$bin/sudo"
chmod +x "$bin/sudo"
expect "sudo wants a password here.  As root: apt-get install libuv1 libprotobuf-c1"

if said=$(PATH=$bin sh "$(dirname "$deps")/arm64.sh" "$bin/arm64" 2>&1) || [ -e "$bin/arm64" ] ||
    [ "$said" != 'deploy/arm64.sh: no aarch64-linux-gnu-gcc here: deploy/deps.sh --arm64' ]; then
    echo "arm64.sh without a cross compiler says \"$said\""
    exit 1
fi
for program in bash mktemp rm; do
    ln -s "$(command -v $program)" "$bin/$program"
done
if ! said=$(PATH=$bin DPTRAIN_SKIP_DEPS=1 bash "$(dirname "$0")/../run.sh" arm64 2>&1) ||
    [ "$said" != "skipped: arm64: no aarch64-linux-gnu-gcc here: deploy/deps.sh --arm64

0 passed, 0 failed, 1 skipped" ]; then
    echo "run.sh arm64 without a cross compiler says \"$said\""
    exit 1
fi
sh "$deps" --arm64 --list >"$bin/list"
for package in gcc-aarch64-linux-gnu qemu-user-static libdnnl-dev; do
    grep -qx $package "$bin/list" || {
        echo "deps.sh --arm64 does not list $package"
        exit 1
    }
done
