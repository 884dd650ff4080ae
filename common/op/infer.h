/* infer - helpers that the operators' files share: checks with good messages, shapes, gradient
 * nodes.
 *
 * Threads: pure. */
#ifndef OP_INFER_H
#define OP_INFER_H

#include "base/err.h"
#include "op/op.h"

/* in[i] of n, which is present; and its shape. */
static inline const struct value *op_in(const struct graph *g, const struct node *n, int i)
{
    return &g->value[n->in[i]];
}

static inline const struct shape *op_shape(const struct graph *g, const struct node *n, int i)
{
    return &g->value[n->in[i]].shape;
}

static inline int op_has(const struct node *n, int i)
{
    return i < n->n_in && n->in[i] != NO_VALUE;
}

/* ERR_CONFIG with "conv1 (conv2d): " in front. */
int op_fail(const struct node *n, struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* in[i] has this dtype and number of dimensions (-1: any, at least one); absent is fine.  For F32,
 * a typed input may be of any real type: that all agree is checked for all operators alike. */
int op_want(const struct graph *g, const struct node *n, int i, enum dtype dtype, int n_dims,
            struct err *err);
/* in[i] is F32 of this shape; absent is fine. */
int op_want_shape(const struct graph *g, const struct node *n, int i, struct shape want,
                  struct err *err);

/* Of a loss: in[x] is F32 [N,C], in[labels] I32 [N]. */
int op_want_labels(const struct graph *g, const struct node *n, int x, int labels, struct err *err);

/* Describe output i. */
void op_out(struct value out[NODE_MAX_OUT], int i, enum dtype dtype, struct shape shape);

/* Extent of a convolution's or pool's output, or 0 if the kernel does not fit. */
int64_t op_window_extent(int64_t in, int kernel, int stride, int pad, int dilation);

int64_t op_last_dim(const struct shape *s);
int64_t op_rows(const struct shape *s); /* elements / last dimension */

/* Where the gradient of `value` is to be written: its VALUE_GRAD for a parameter that one node of
 * the forward part uses, once; else a new temporary (differentiate adds them up). */
int op_grad_out(struct graph *g, int value);

/* op_grad_out for in[i] of n where want[i], else NODE_NO_OUT. */
int op_grad_wanted(struct graph *g, const struct node *n, const int want[NODE_MAX_IN], int i);

/* "conv1.grad_w" in the graph's arena. */
const char *op_name(struct graph *g, const struct node *n, const char *suffix);

#endif
