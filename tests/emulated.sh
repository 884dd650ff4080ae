#!/bin/sh
# emulated.sh - runs a command under which programs of arm64 start as those of this machine do: by
# qemu-user, also where one program starts another.
#
#   tests/emulated.sh ROOT COMMAND [ARGUMENT...]
#
# ROOT has arm64's libraries (deploy/arm64.sh makes it).  The kernel starts qemu by a rule of
# binfmt_misc.  If this machine has none, the command gets one of its own, in a user namespace that
# ends with it: that takes Linux 6.7, and no root.  In this namespace the caller is root; if root
# calls, there are all other users, too.
#
# Exit status: the command's; 77 if there is no such rule and none can be made.
set -eu
rules=/proc/sys/fs/binfmt_misc

fail()
{
    echo "tests/emulated.sh: $*" >&2
    exit 77
}

[ $# -ge 2 ] || fail 'want a folder and a command; the head of this file tells more'
qemu=$(command -v qemu-aarch64-static) || fail 'no qemu-aarch64-static here: deploy/deps.sh --arm64'
QEMU_LD_PREFIX=$(cd "$1" && pwd)
export QEMU_LD_PREFIX
shift
! grep -qs '^enabled' $rules/qemu-aarch64 || exec "$@"

unshare --user --map-root-user --mount mount -t binfmt_misc none $rules 2>/dev/null ||
    fail "no rule for arm64 in $rules, and this system gives no namespace one (Linux 6.7 does):" \
        'as root, set one up with binfmt-support or systemd-binfmt'

# An ELF file of 64 bits, little endian, of machine 183; the kernel reads the escapes.  P: the
# program sees its own name.  F: qemu is opened now, so that it is also there in a chroot.
z='\x00' f='\xff'
magic='\x7fELF\x02\x01\x01'$z$z$z$z$z$z$z$z$z'\x02\x00\xb7\x00'
mask=$f$f$f$f$f$f$f$z$f$f$f$f$f$f$f$f'\xfe'$f$f$f
export RULE=":qemu-aarch64:M::$magic:$mask:$qemu:PF"

# This shell is process $$ still when `unshare` has taken its place.  The child gives root's
# namespace its users; unshare's own options would give it one.
mine=--map-root-user
if [ "$(id -u)" = 0 ]; then
    mine=
    outer=$(readlink /proc/self/ns/user)
    (
        while [ "$(readlink /proc/$$/ns/user)" = "$outer" ]; do sleep 0.01; done
        echo 0 0 65536 >/proc/$$/gid_map
        echo 0 0 65536 >/proc/$$/uid_map
    ) &
fi
# shellcheck disable=SC2016,SC2086 # the inner shell expands these; $mine may be no word
exec unshare --user $mine --mount sh -c '
    while [ "$(id -u)" != 0 ]; do sleep 0.01; done
    mount -t binfmt_misc none '$rules' && printf %s "$RULE" >'$rules'/register &&
        unset RULE && exec "$@"' sh "$@"
