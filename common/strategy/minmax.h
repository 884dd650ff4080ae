/* minmax - numbers as bytes, in host memory: op/codec.h's MinMaxUInt8, of one chunk.
 *
 * The operators of op/codec.c do the same to a bucket that is cut into many chunks, on any backend.
 *
 * Threads: pure. */
#ifndef STRATEGY_MINMAX_H
#define STRATEGY_MINMAX_H

#include "op/codec.h"

/* Bytes of a chunk of n numbers. */
static inline int64_t minmax_bytes(int64_t n) { return codec_bytes(CODEC_MINMAX_UINT8, n); }

/* 1: a number is not finite, and nothing was written. */
int minmax_encode(const float *x, int64_t n, uint8_t *chunk);

/* Add the decoded numbers to y[n]. */
void minmax_add(const uint8_t *chunk, int64_t n, float *y);

#endif
