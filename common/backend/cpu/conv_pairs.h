/* conv_pairs - the gradient of a convolution's filter in BF16, as sums of outer products of pairs
 * (AVX512-BF16).
 *
 * One instruction multiplies two BF16 numbers by two others and adds both products to a float.  The
 * two are neighbours of the sum, here two pixels of a row, which lie C or K numbers apart in NHWC.
 * So the pixels of x and dy are put together in pairs first, once for all filter taps and channels
 * that read them.  conv_pairs_fits says for which convolutions this is taken instead of oneDNN;
 * conv_pairs.c has the timings.
 *
 * Threads: the engine's; a kernel that runs cuts its work by plain_split. */
#ifndef BACKEND_CPU_CONV_PAIRS_H
#define BACKEND_CPU_CONV_PAIRS_H

#include "backend/cpu/cpu.h"

/* n is a conv2d, conv2d_grad_x or conv2d_grad_w; only the last one may fit. */
int conv_pairs_fits(const struct cpu *b, const struct graph *g, const struct node *n);
int conv_pairs_make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err);

#endif
