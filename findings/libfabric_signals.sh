#!/usr/bin/env bash
# libfabric_signals.sh - what loading libfabric does to a process's signals, Debian 12.
#
# Guess: nothing.  A library that only offers network providers leaves signals to the program, and
#        a provider for hardware that is not there does nothing at all.
# Seen:  libfabric1 1.17.0-3 is linked to libpsm-infinipath1 3.3+20.604758e7-6.2, for InfiniPath
#        adapters.  When that is loaded it takes SIGTERM and SIGINT and the four signals of a crash,
#        with or without such hardware, and also where the program has a handler of its own.  At
#        SIGTERM the process then ends with status 1, not by the signal, and without a word.  At
#        Ctrl-C Python raises no KeyboardInterrupt, and `finally` does not run, though
#        signal.getsignal still names Python's handler.  Loading is enough: no function is called.
#        With IPATH_NO_BACKTRACE in the environment nothing of this happens.
#
# The packages are unpacked, not installed.
# Exit status: 0 if that is seen; 1 if not; 77 if the packages cannot be had.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get download -q libfabric1=1.17.0-3 libpsm-infinipath1=3.3+20.604758e7-6.2 libpsm2-2 \
    librdmacm1 ibverbs-providers libibverbs1 libnl-3-200 libnl-route-3-200 libnuma1 libatomic1 \
    libuuid1 >log 2>&1 || {
    tail -n 1 log
    exit 77
}
for package in ./*.deb; do dpkg-deb -x "$package" unpacked; done
lib=$dir/unpacked/usr/lib/$(uname -m)-linux-gnu
cat >look.py <<'PY'
import ctypes
import os
import signal
import sys
import time


def taken():
    with open("/proc/self/status", encoding="ascii") as file:
        bits = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt"))
    return {signal.Signals(n).name for n in range(1, 32) if bits >> (n - 1) & 1}


before = taken()
ctypes.CDLL("libfabric.so.1")
print(*sorted(taken() - before))
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
sys.stdout.flush()
try:
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(5)
except KeyboardInterrupt:
    print("KeyboardInterrupt")
PY
look() # SIGNAL [NAME=VALUE]; prints what the process said, and its status
{
    local status=0
    env "LD_LIBRARY_PATH=$lib:${lib/usr\/}" "${2:-IPATH_UNSET=}" python3 look.py "$1" || status=$?
    echo "status $status"
}
see() # WHAT WANTED SEEN
{
    echo "$1: $3"
    [ "$2" = "$3" ] || { echo "  want: $2"; exit 1; }
}
crash="SIGABRT SIGBUS SIGILL SIGSEGV SIGTERM"
see "SIGTERM" "$crash True status 1" "$(look 15 | xargs)"
see "SIGINT" "$crash True status 1" "$(look 2 | xargs)"
free=IPATH_NO_BACKTRACE=1
see "SIGTERM, $free" "True status 143" "$(look 15 $free 2>log | xargs)"
see "SIGINT, $free" "True KeyboardInterrupt status 0" "$(look 2 $free | xargs)"
