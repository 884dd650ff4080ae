/* passes - the work before and after a library's convolution or product: reordering weights, bias
 * and activation, and the sums of a bias' gradient.
 *
 * Each function launches a pass on the backend's stream and returns.  After the last pass of a
 * kernel's run, passes_check says whether a launch failed.
 *
 * Threads: the backend's. */
#ifndef BACKEND_CUDA_PASSES_H
#define BACKEND_CUDA_PASSES_H

#include "backend/cuda/cuda.h"

/* An array of F32, BF16 or F16 elements on the device. */
struct passes_array {
    void *at;
    enum dtype type;
};

/* to[s][j][i] = from[s][i][j] for i < rows, j < cols or, with `adds`, to[s][j][i] += that; `to` has
 * the type of `from`, or F32. */
void passes_transpose(struct cuda *b, struct passes_array from, struct passes_array to,
                      int64_t samples, int64_t rows, int64_t cols, int adds);

/* to[i] = from[i] for i < n or, with `adds`, to[i] += from[i]; `to` has the type of `from`, or F32.
 */
void passes_give(struct cuda *b, struct passes_array from, struct passes_array to, int64_t n,
                 int adds);

/* y[r][c] = act(y[r][c] + bias[c]); `bias` has y's type, or is NULL. */
void passes_bias_act(struct cuda *b, struct passes_array y, const void *bias, enum activation act,
                     int64_t rows, int64_t c);

/* The array that a fused activation saves for its gradient, as op/linear.c and blas.h define it:
 * relu saves mask, gelu_tanh saves pre, and the other one is NULL. */
struct passes_saved {
    void *mask; /* int32 [rows, 4*ceil(c/128)] */
    void *pre;  /* [rows, c], of y's type */
};

/* Bias and activation, and what is saved.  With a mask, y is as by passes_bias_act, and the mask
 * has a bit for each positive y.  With pre, pre becomes pre + bias, and then y = act(pre). */
void passes_bias_act_saving(struct cuda *b, struct passes_array y, const void *bias,
                            enum activation act, int64_t rows, int64_t c, struct passes_saved s);

/* Multiplies dx[r][c] by the derivative of act, from what was saved. */
void passes_act_grad(struct cuda *b, struct passes_array dx, enum activation act, int64_t rows,
                     int64_t c, struct passes_saved s);

/* sum[c] = x[0][c] + x[1][c] + ... or, with `adds`, sum[c] += that, added in double; only the shape
 * decides the order.  `sum` has x's type, or F32. */
void passes_column_sums(struct cuda *b, struct passes_array x, struct passes_array sum,
                        int64_t rows, int64_t c, int adds, void *scratch);
size_t passes_column_sums_scratch(int64_t rows, int64_t c);

int passes_check(const char *what, struct err *err);

#endif
