/* amx - products of BF16 matrices in the processor's tiles (AMX): blocks of up to 32 x 32 sums.
 *
 *     c[i*c_row + j] = sum over t1 < n1, t2 < n2, k < 32 of a[t1*a1 + t2*a2 + i*a_row + k]
 *                                               * b[t1*b1 + t2*b2 + k/2*b_row + 2*j + k%2]
 *
 * for i < n_i and j < n_j, which are 16 or 32; or += if it adds.  Strides of a and b count BF16
 * numbers, those of c floats.  So 32 terms of a row of a are neighbours, and of b the pairs of two
 * terms, column by column.  Products are summed in F32.  The processor takes operands and sums
 * below 2^-126 for 0.
 *
 * On other processors the same is computed by plain loops, so that whoever arranges operands can be
 * tested everywhere; kernels are chosen by amx_available().
 *
 * Threads: pure, but a thread calls amx_begin before its products and amx_end after them, which
 *          leaves no tile configured.  oneDNN configures its own. */
#ifndef BACKEND_CPU_AMX_H
#define BACKEND_CPU_AMX_H

#include <stdint.h>

enum { AMX_TERMS = 32, AMX_TILE = 16, AMX_BLOCK = 2 * AMX_TILE };

struct amx {
    int64_t n1, n2, a1, a2, b1, b2, a_row, b_row, c_row;
    int64_t a_low; /* from row 0 of a to row 16; 0: 16 * a_row */
    int n_i, n_j, adds;
    /* Or NULL.  Is called for each of the n1 * n2 steps, in their order: the processor does this
     * while it multiplies, if it is other work than the present block's. */
    void (*beside)(void *task, int64_t step);
    void *task;
};

void amx_begin(void);
void amx_run(const struct amx *x, const uint16_t *a, const uint16_t *b, float *c);
void amx_end(void);

/* to[place[i] + j] = sum[i*32 + j], rounded to BF16, for i < n and j < 32.  Rows whose place is
 * negative are left out.  Sums below 2^-126 are taken for 0. */
void amx_write(const float *sum, const int64_t *place, int64_t n, uint16_t *to);

/* Operands that lie otherwise, in pieces of 16.
 *
 * amx_pair: of b, whose terms are rows.  to[2*j] = low[j] and to[2*j + 1] = high[j], for j < n, a
 * multiple of 16; NULL stands for zeros.
 *
 * amx_turn_pairs: of b, whose terms are columns.  to[k*to_row + 2*j + e] = from[j*row + 2*k + e],
 * for j < 16, k < 16 and e < 2.
 *
 * amx_turn: of a, whose terms are rows.  to[i*32 + k] = row[k][at + i], for i < 16 and k < 32; a
 * row that is NULL is of zeros. */
void amx_pair(const uint16_t *low, const uint16_t *high, int64_t n, uint16_t *to);
void amx_turn_pairs(const uint16_t *from, int64_t row, uint16_t *to, int64_t to_row);
void amx_turn(const uint16_t *const row[AMX_TERMS], int64_t at, uint16_t *to);

/* 1 if the processor has AMX with BF16, oneDNN's cap on the instruction set (ONEDNN_MAX_CPU_ISA)
 * allows it, and the system lets this process use it. */
int amx_available(void);

#endif
