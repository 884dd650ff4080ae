/* minmax - one chunk of numbers as bytes, in host memory: the codec MinMaxUInt8 of op/codec.h.
 *
 * Strategy low_precision_decentralized calls this.  The operators of op/codec.c do the same to a
 * bucket that is cut into many chunks, on any backend.
 *
 * Threads: pure. */
#ifndef STRATEGY_MINMAX_H
#define STRATEGY_MINMAX_H

#include "op/codec.h"

/* The number of bytes of a chunk of n numbers, with its header. */
static inline int64_t minmax_bytes(int64_t n) { return codec_bytes(CODEC_MINMAX_UINT8, n); }

/* Write the code of x[n] to chunk[minmax_bytes(n)].  Returns 0; or 1 if a number, or the difference
 * between the largest and the smallest, is not finite, and then nothing was written. */
int minmax_encode(const float *x, int64_t n, uint8_t *chunk);

/* Decode a chunk of n numbers and add them to y[n]. */
void minmax_add(const uint8_t *chunk, int64_t n, float *y);

#endif
