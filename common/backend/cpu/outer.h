/* outer - sums of outer products in registers: the inner loop of our own convolutions (AVX-512).
 *
 *     acc[i][j] = sum over t1 < n1, t2 < n2 of a[a_off[i] + t1*a1 + t2*a2] * b[t1*b1 + t2*b2 + j]
 *
 * for i < n_i and j < n_j; then to[to_off[i] + j] += acc, or = acc + add[j] (OUTER_STORE), where
 * negative sums may become 0 (OUTER_RELU).  n_j <= 16 * OUTER_MAX_V, n_i <= outer_max_i(n_j):
 * beyond that the accumulators would not fit into registers.  Nothing beyond n_j is touched. */
#ifndef BACKEND_CPU_OUTER_H
#define BACKEND_CPU_OUTER_H

#include <stdint.h>

enum { OUTER_MAX_V = 8, OUTER_MAX_I = 12 };
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

/* Whether this processor can, and oneDNN's cap on the instruction set (ONEDNN_MAX_CPU_ISA) lets it;
 * the cap stands for an older machine in tests. */
int outer_available(void);

#endif
