/* mixing - weighted sums of pixels, and rows in reverse: the inner loops of resizing and mirroring.
 *
 * A pixel is three bytes.  Weights are whole numbers with MIXING_SHIFT bits after the point, and
 * those of one result sum to exactly 1, so results are bytes, and are the same whatever the order
 * of the sums and the processor.
 *
 * Threads: any; pure. */
#ifndef DATA_MIXING_H
#define DATA_MIXING_H

#include <stdint.h>

enum {
    MIXING_SHIFT = 14,
    MIXING_ONE = 1 << MIXING_SHIFT,
    MIXING_SPARE = 32, /* bytes behind a row that may be read, whatever they are */
};

/* Weighted sums of pixels along a row: result i is of the n pixels from `first` on. */
struct mixing_taps {
    int64_t n_results;
    int64_t most;    /* the largest n, rounded up to an even number */
    int64_t *first;  /* [n_results] */
    int64_t *n;      /* [n_results] */
    int16_t *weight; /* [n_results,most]; 0 behind n */
};

/* to[n] = the sum of n_rows rows of n bytes, which lie `stride` bytes apart, each by its weight.
 * sum [n] is room. */
void mixing_rows(const uint8_t *from, int64_t stride, const int16_t *weight, int64_t n_rows,
                 int64_t n, int32_t *sum, uint8_t *to);

/* to [n_rows,n_results,3] = the sums of pixels of n_rows rows, which lie `stride` bytes apart.  The
 * memory of the last one has MIXING_SPARE + 3 * most bytes more. */
void mixing_columns(const uint8_t *from, int64_t stride, int64_t n_rows,
                    const struct mixing_taps *t, uint8_t *to);

/* to [n,3] = the n pixels of `from` in reverse.  They do not overlap. */
void mixing_mirror(const uint8_t *from, int64_t n, uint8_t *to);

#endif
