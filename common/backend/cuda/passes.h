/* passes - what stands before and behind a library's convolution or product: weights into another
 * order, bias and activation, the sums for a bias' gradient.
 *
 * Each launches on the backend's stream and returns; after the last one of a kernel's run,
 * passes_check says whether a launch failed. */
#ifndef BACKEND_CUDA_PASSES_H
#define BACKEND_CUDA_PASSES_H

#include "backend/cuda/cuda.h"

/* An array of F32, BF16 or F16 elements on the device. */
struct passes_array {
    void *at;
    enum dtype type;
};

/* to[s][j][i] = from[s][i][j], i < rows, j < cols; `to` is of from's type or F32. */
void passes_transpose(struct cuda *b, struct passes_array from, struct passes_array to,
                      int64_t samples, int64_t rows, int64_t cols);

/* The same numbers, n of them; `to` is F32. */
void passes_widen(struct cuda *b, struct passes_array from, struct passes_array to, int64_t n);

/* y[r][c] = act(y[r][c] + bias[c]); bias of y's type, NULL: none. */
void passes_bias_act(struct cuda *b, struct passes_array y, const void *bias, enum activation act,
                     int64_t rows, int64_t c);

/* The mask that a fused relu or gelu_tanh leaves for its gradient, as op/linear.c and blas.h have
 * it: one of the two, the other NULL. */
struct passes_saved {
    void *mask; /* int32 [rows, 4*ceil(c/128)] */
    void *pre;  /* [rows, c], of y's type */
};

/* The same, saving: with a mask that of y; with pre y = act(pre), and pre becomes pre + bias. */
void passes_bias_act_saving(struct cuda *b, struct passes_array y, const void *bias,
                            enum activation act, int64_t rows, int64_t c, struct passes_saved s);

/* dx[r][c] times the derivative of act there, by what was saved. */
void passes_act_grad(struct cuda *b, struct passes_array dx, enum activation act, int64_t rows,
                     int64_t c, struct passes_saved s);

/* sum[c] = x[0][c] + x[1][c] + ..., added in double in an order that only the shape decides; sum is
 * of x's type or F32. */
void passes_column_sums(struct cuda *b, struct passes_array x, struct passes_array sum,
                        int64_t rows, int64_t c, void *scratch);
size_t passes_column_sums_scratch(int64_t rows, int64_t c);

int passes_check(const char *what, struct err *err);

#endif
