#!/usr/bin/env bash
# gcc_tile_config.sh - what GCC 12's _tile_loadconfig tells its optimiser.
#
# A program that multiplies by Intel's tiles (AMX) first fills 64 bytes with the shapes of the
# tiles, and loads them with the intrinsic _tile_loadconfig.  Most examples fill a local structure
# in a loop, right before.
#
# Guess: the intrinsic reads the 64 bytes that its manual names, so all that was written is there.
# Seen:  GCC 12.2.0 and 11.3.0 are told that it reads a pointer's 8 bytes.  With -O2 the stores of
#        all rows and widths are removed as dead: the tiles get shapes of whatever lay on the stack.
#        At -O0 all are there, as with clang 14.0.6 at both.  Nothing warns.
#
# The compilers write assembly, in which the instruction is replaced by a copy of its operand, so
# that the script runs on any x86-64 processor.  It needs a C compiler to assemble that (cc).
#
# Exit status: 0 if that is seen; 1 if not; 77 if the packages (of Debian 12) cannot be had.
set -eu
command -v cc >/dev/null && [ "$(uname -m)" = x86_64 ] || { echo "no cc for x86-64"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
chmod 755 .
packages=(libisl23=0.25-1.1 libmpc3=1.3.1-1 libmpfr6=4.2.0-1 libgmp10=2:6.2.1+dfsg1-1.1)
for gcc in 11=11.3.0-12 12=12.2.0-14+deb12u1; do
    v=${gcc%%=*}
    for name in gcc-$v cpp-$v libgcc-$v-dev; do packages+=("$name=${gcc#*=}"); done
done
for name in clang-14 libclang-common-14-dev libclang-cpp14 libllvm14; do
    packages+=("$name=1:14.0.6-12")
done
apt-get download -q "${packages[@]}" >log 2>&1 || { tail -n 1 log; exit 77; }
for package in *.deb; do dpkg -x "$package" tree; done

cat >config.c <<'C'
#include <immintrin.h>

struct config {
    unsigned char palette, start_row, reserved[14];
    unsigned short width[16];
    unsigned char rows[16];
};

void configure(void)
{
    struct config c = {.palette = 1};

    for (int i = 0; i < 8; i++) {
        c.width[i] = 64;
        c.rows[i] = 16;
    }
    _tile_loadconfig(&c);
}
C
cat >main.c <<'C'
#include <stdio.h>

unsigned char seen[64];
void configure(void);

/* The next function finds these on the stack: neither zeros nor a configuration. */
__attribute__((noinline)) static void fill_stack(void)
{
    volatile unsigned char bytes[512];

    for (int i = 0; i < 512; i++)
        bytes[i] = 0xaa;
}

int main(void)
{
    int n = 0;

    fill_stack();
    configure();
    for (int i = 0; i < 8; i++)
        n += seen[16 + 2 * i] == 64 && seen[48 + i] == 16;
    printf("%d\n", n);
    return 0;
}
C

# The operand's address goes to rax; nothing after the instruction needs that or xmm0.
replace() {
    awk '$1 == "ldtilecfg" {
             sub(/^[ \t]*ldtilecfg[ \t]+/, "")
             print "\tleaq " $0 ", %rax"
             for (at = 0; at < 64; at += 16)
                 print "\tmovdqu " at "(%rax), %xmm0\n\tmovdqu %xmm0, seen+" at "(%rip)"
             next
         }
         $1 !~ /^[.]addrsig/ { print }' "$1"
}

lib=$dir/tree/usr/lib/x86_64-linux-gnu
status=0
# compiler, option, and how many of 8 tiles have their shape
while read -r name compiler option want; do
    LD_LIBRARY_PATH=$lib:$dir/tree/usr/lib/llvm-14/lib "tree/usr/$compiler" -w "$option" \
        -mamx-tile -S config.c -o config.s
    replace config.s >copied.s
    cc -no-pie main.c copied.s -o program 2>log || { cat log; exit 1; }
    n=$(./program)
    echo "$name $option: $n of 8 tiles have the shape that was written"
    [ "$n" = "$want" ] || status=1
done <<'TABLE'
gcc-11.3.0 bin/x86_64-linux-gnu-gcc-11 -O0 8
gcc-11.3.0 bin/x86_64-linux-gnu-gcc-11 -O2 0
gcc-12.2.0 bin/x86_64-linux-gnu-gcc-12 -O0 8
gcc-12.2.0 bin/x86_64-linux-gnu-gcc-12 -O2 0
clang-14.0.6 lib/llvm-14/bin/clang -O0 8
clang-14.0.6 lib/llvm-14/bin/clang -O2 8
TABLE
exit $status
