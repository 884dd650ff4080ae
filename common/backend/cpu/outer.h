/* outer - sums of outer products in registers: the inner loop of our own convolutions (AVX-512).
 *
 *     acc[i][j] = sum over t1 < n1, t2 < n2 of a[a_off[i] + t1*a1 + t2*a2] * b[t1*b1 + t2*b2 + j]
 *
 * for i < n_i and j < n_j.  Then OUTER_ADD does to[to_off[i] + j] += acc[i][j]; OUTER_STORE does
 * to[to_off[i] + j] = acc[i][j] + add[j]; OUTER_RELU is OUTER_STORE with negative sums made 0.
 * n_j <= 16 * OUTER_MAX_V and n_i <= outer_max_i(n_j), since more accumulators would not fit into
 * registers.  Columns from n_j on are neither read nor written.
 *
 * Threads: pure; each part of a plain_split calls outer_run for itself. */
#ifndef BACKEND_CPU_OUTER_H
#define BACKEND_CPU_OUTER_H

#include <stdint.h>

enum { OUTER_MAX_V = 8, OUTER_MAX_I = 12, OUTER_PAIRS_J = 64 };
enum { OUTER_PACKED_I = 8, OUTER_PACKED_J = 48 };
enum { OUTER_DOTS_I = 9, OUTER_DOTS_J = 2 };
enum outer_end { OUTER_ADD, OUTER_STORE, OUTER_RELU };

struct outer {
    int64_t n1, n2, a1, a2, b1, b2;
    int n_i, n_j;
    enum outer_end end;
    const float *add; /* [n_j], or NULL: zero */
    int64_t a_off[OUTER_MAX_I], to_off[OUTER_MAX_I];
};

int outer_max_i(int n_j);
void outer_run(const struct outer *o, const float *a, const float *b, float *to);

/* For few columns: k < n_j <= OUTER_DOTS_J and i < n_i <= OUTER_DOTS_I.  OUTER_STORE or OUTER_RELU
 * of
 *
 *     sum over t1 < n1, t2 < n2 of a[a_off[i] + t1*a1 + t2] * b[k*b2 + t1*b1 + t2]
 *
 * goes to to[to_off[i] + k]; a2 counts as 1, and OUTER_ADD is not for this. */
void outer_dots(const struct outer *o, const float *a, const float *b, float *to);

/* For j < OUTER_PACKED_J and i < OUTER_PACKED_I, which fill the registers:
 *
 *     to[i*to_row + j] = sum over t < n of a[t*OUTER_PACKED_I + i] * b[t*OUTER_PACKED_J + j]
 *
 * or, with OUTER_ADD, += that sum.  The bits are those of outer_run. */
void outer_run_packed(int64_t n, const float *a, const float *b, enum outer_end end, float *to,
                      int64_t to_row);

/* outer_run of pairs of BF16, in the places of the floats of a and b: a product is the sum of the
 * products of the lower halves and of the upper halves, in F32.  For OUTER_ADD and OUTER_STORE
 * without o->add, and n_j = OUTER_PAIRS_J.  The instruction (VDPBF16PS) takes operands and sums
 * below 2^-126 for 0. */
void outer_run_pairs(const struct outer *o, const float *a, const float *b, float *to);

/* 1 if this processor has AVX-512 and oneDNN's cap on the instruction set (ONEDNN_MAX_CPU_ISA)
 * allows it.  Tests set the cap to stand for an older machine. */
int outer_available(void);

/* 1 if this processor multiplies pairs of BF16, within the same cap, and has no AMX, by which
 * oneDNN multiplies faster. */
int outer_has_pairs(void);

#endif
