#!/bin/sh
# quickstart.sh - from a fresh clone on Debian 12 to a trained network, in one command.
#
# Installs the packages that are missing (deploy/deps.sh; root or sudo), builds the daemons into
# build/, and runs the built-in demo on two ranks of this machine.  A second run does only the last.
# Where there are GPUs and the CUDA toolkit it builds for them, too, and one GPU gets one rank.
# Arguments are passed on to dpdriver:  deploy/quickstart.sh --set train.epochs=2
#
# DPTRAIN_SKIP_DEPS=1 leaves out the packages (not a Debian system, see deps.sh).
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)

[ "${DPTRAIN_SKIP_DEPS:-}" = 1 ] || "$top/deploy/deps.sh"

build=$top/build
# A checkout that was moved: meson would look for the sources in the old place.
if [ -f "$build/build.ninja" ] && ! grep -qF -- "$top" "$build/build.ninja"; then
    echo "quickstart.sh: this folder was moved: configuring build/ anew"
    rm -rf "$build/build.ninja" "$build/meson-private" "$build/meson-info"
fi
if [ ! -f "$build/build.ninja" ]; then
    echo "quickstart.sh: configuring build/ (release)"
    mkdir -p "$build"
    if ! meson setup "$build" "$top" --buildtype=release >"$build/quickstart.log" 2>&1; then
        cat "$build/quickstart.log" >&2
        exit 1
    fi
fi

# It builds only the daemons.  tests/run.sh builds the tests, in the same folder.
targets='driver/dpdriver follower/dpfollower'
plugin=common/plugin/dptrain-cuda.so
ranks=2
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ') || true
if [ "$gpus" -gt 0 ] && ninja -C "$build" -t query $plugin >/dev/null 2>&1; then
    targets="$targets $plugin"
    case " $* " in
    *' --device cpu '* | *' --device=cpu '*) ;;
    *) [ "$gpus" -ge 2 ] || ranks=1 ;;
    esac
fi
if ! ninja -C "$build" -n $targets | grep -q 'no work to do'; then
    echo "quickstart.sh: building the daemons"
    ninja -C "$build" $targets
fi

exec "$build/driver/dpdriver" --nranks $ranks --local "$@"
