#!/usr/bin/env bash
# dash_trap.sh - a background command of dash that survives the signal that should end it.
#
# A script that has a trap for TERM, to remove a file at its end, starts a command in the background
# and may stop it at once: kill "$!".  POSIX says that a subshell has the default action where the
# script has a trap.
#
# Guess: the command ends by the signal, whenever that comes; at worst a moment later.
# Seen:  dash 0.5.12 (Debian 12) loses the signal if it comes before the child has become the
#        command: the child takes it with the trap's handler, forgets it, and starts the command,
#        which then runs to its end.  That is so in most of the runs in which kill follows at once.
#        Without the trap no signal is lost, and bash 5.2 loses none with it.
#
# A script can wait until /proc/$!/exe is another file than /proc/$$/exe before it sends the signal.
#
# Exit status: 0 if that is seen; 1 if not; 77 if the packages (of Debian 12) cannot be had.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
chmod 755 .
apt-get download -q dash=0.5.12-2 bash=5.2.15-2+b13 libtinfo6=6.4-4 >log 2>&1 ||
    { tail -n 1 log; exit 77; }
for package in *.deb; do dpkg -x "$package" tree; done
export LD_LIBRARY_PATH=$dir/tree/lib/x86_64-linux-gnu

cat >script <<'SH'
n=0
for i in 1 2 3 4 5 6 7 8 9 10; do
    sleep 0.5 &
    kill "$!"
    wait "$!" || continue
    n=$((n + 1))
done
echo "$n"
SH
{ echo "trap 'exit 4' TERM"; cat script; } >with_trap

status=0
tell() # SHELL SCRIPT WANTED
{
    local n
    n=$("tree/bin/$1" "$2" 2>/dev/null)
    echo "$1 ($(dpkg-deb -f "$1"_*.deb Version)), $2: $n of 10 commands survived the signal"
    case $3 in
        some) [ "$n" -gt 0 ] || status=1 ;;
        none) [ "$n" = 0 ] || status=1 ;;
    esac
}
tell dash with_trap some
tell dash script none
tell bash with_trap none
exit $status
