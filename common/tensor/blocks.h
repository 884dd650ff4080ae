/* blocks - float32 numbers in 8 bits: codes from -127 to 127, and a scale for each block of
 * BLOCKS_LEN of them in the order of memory, as in GGML's Q8_0 (llama.cpp, ggml-quants.c).
 *
 *     scale = the block's largest magnitude / 127, rounded to 16 significant bits
 *     code = number / scale, rounded to the nearest, ties to even
 *
 * The number that a code stands for is code * scale, which float32 holds exactly (7 and 16 bits).
 * It differs from the number that was packed by at most half a scale, and by 0.001 of it.  A block
 * whose magnitudes are all below BLOCKS_LEAST is zeros.  Numbers that were unpacked give the same
 * codes and scales when they are packed again.
 *
 * Threads: pure. */
#ifndef TENSOR_BLOCKS_H
#define TENSOR_BLOCKS_H

#include <stdint.h>

enum { BLOCKS_LEN = 64 };

#define BLOCKS_LEAST 0x1p-100f

/* The number of blocks of n numbers; the last one may be shorter. */
static inline int64_t blocks_of(int64_t n) { return (n + BLOCKS_LEN - 1) / BLOCKS_LEN; }

/* Pack n finite numbers to codes [n] and scales [blocks_of(n)]. */
void blocks_pack(const float *x, int64_t n, int8_t *codes, float *scales);

#endif
