/* registers - loops whose sums stay in vector registers.  For kernels that define AVX512, the
 * attribute with their instruction set.
 *
 * Threads: any; these are macros. */
#ifndef BACKEND_CPU_REGISTERS_H
#define BACKEND_CPU_REGISTERS_H

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
/* A loop of a constant number of turns, which the compiler must unroll. */
#define EACH(i, n) UNROLL for (int i = 0; i < (n); i++)
#define INLINE     AVX512 __attribute__((always_inline)) static inline

/* Keeps x in a register.  Else the compiler would load x again for each use, and half of the loads
 * would straddle cache lines. */
#define KEEP(x)      __asm__("" : "+v"(x))
#define KEEP_MASK(x) __asm__("" : "+Yk"(x)) /* a mask register, kept from here on */

#endif
