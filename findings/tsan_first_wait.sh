#!/usr/bin/env bash
# tsan_first_wait.sh - a signal that ThreadSanitizer of LLVM 14 forgets.
#
# TSan holds a signal back until the program is at a safe place.  A record of the thread has what it
# holds.  LLVM 14 makes this record, by mmap(), in the thread's first call that may wait, such as
# epoll_wait() in an event loop.  A signal that comes during this mmap() makes a record of its own
# and is put there; then the interrupted call puts its empty record in the place of that one.
#
# Guess: a sanitizer may delay a signal, and never loses one.
# Seen:  LLVM 14.0.6 loses it: the handler is not called, then or later.  A second signal works.  In
#        LLVM 16.0.6 no memory is mapped between sigaction() and the first wait.
#
# strace sends the signal at exactly that system call.  Without it a daemon that was told to stop as
# soon as it said that it is ready missed one SIGTERM in about 150.  A program that is tested under
# TSan can make the record early: usleep(0) before its first handler.
#
# Exit status: 0 if that is seen; 1 if not; 77 if the packages (of Debian 12) cannot be had.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
chmod 755 .
packages=(strace=6.1-0.1)
for llvm in 14=1:14.0.6-12 16=1:16.0.6-15~deb12u1; do
    v=${llvm%%=*}
    for name in clang-$v libclang-common-$v-dev libclang-rt-$v-dev libclang-cpp$v libllvm$v \
        libclang1-$v; do
        packages+=("$name=${llvm#*=}")
    done
done
apt-get download -q "${packages[@]}" >log 2>&1 || { tail -n 1 log; exit 77; }
for package in *.deb; do dpkg -x "$package" tree; done
strace=$dir/tree/usr/bin/strace

cat >program.c <<'C'
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t n_calls;

static void count(int number)
{
    (void)number;
    n_calls++;
}

int main(void)
{
    struct sigaction how = {.sa_handler = count};

    sigaction(SIGTERM, &how, NULL);
    alarm(0); /* a mark in the trace */
    for (int i = 0; i < 5; i++)
        poll(NULL, 0, 20);
    getppid(); /* another */
    printf("%d\n", (int)n_calls);
    return 0;
}
C

# The addresses are the same in each run, and so are the calls.
trace() { setarch -R "$strace" "$@"; }

status=0
for v in 14 16; do
    export LD_LIBRARY_PATH=$dir/tree/usr/lib/x86_64-linux-gnu:$dir/tree/usr/lib/llvm-$v/lib
    "tree/usr/lib/llvm-$v/bin/clang" -O1 -fsanitize=thread program.c -o program-$v
    unset LD_LIBRARY_PATH
    trace -o calls ./program-$v >/dev/null
    before=$(sed '/^alarm/q' calls | grep -c '^mmap')
    inside=$(sed '1,/^alarm/d; /^getppid/q' calls | grep -c '^mmap' || true)
    echo "clang $v: $inside mappings in the first wait"
    if [ $v = 16 ]; then
        [ "$inside" = 0 ] || status=1
        continue
    fi
    [ "$inside" -ge 1 ] || status=1
    seen=$(trace -o calls -e "inject=mmap:signal=SIGTERM:when=$((before + 1))" ./program-$v)
    came=$(sed '1,/^alarm/d; /^getppid/q' calls | grep -c -e '^--- SIGTERM')
    echo "clang $v: $came SIGTERM came during the first of them, its handler ran $seen times"
    [ "$came" = 1 ] && [ "$seen" = 0 ] || status=1
    seen=$(trace -o calls -e inject=poll:signal=SIGTERM:when=2 ./program-$v)
    echo "clang $v: one SIGTERM in the second wait, its handler ran $seen time"
    [ "$seen" = 1 ] || status=1
done
exit $status
