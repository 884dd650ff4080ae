/* infer - helpers that the operators' files share: checks whose messages name node and operand,
 * shapes, and where gradients are written.
 *
 * Threads: as the graph. */
#ifndef OP_INFER_H
#define OP_INFER_H

#include "base/err.h"
#include "op/op.h"

/* The value of in[i], which must be present, and its shape. */
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

/* Set ERR_CONFIG with "conv1 (conv2d): " before the message; returns it. */
int op_fail(const struct node *n, struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Check that in[i] is absent or has this dtype and number of dimensions (-1: any number, at least
 * one).  With F32 wanted, a typed or wide input may be BF16 or F16, too: op.c checks for all
 * operators alike that a node's types agree. */
int op_want(const struct graph *g, const struct node *n, int i, enum dtype dtype, int n_dims,
            struct err *err);
/* Check that in[i] is absent or has this shape, and F32 by the rule of op_want. */
int op_want_shape(const struct graph *g, const struct node *n, int i, struct shape want,
                  struct err *err);

/* Check the inputs of a loss: in[x] is [R,C], F32 by the rule of op_want;
 * in[labels] is I32, of any shape with R elements. */
int op_want_labels(const struct graph *g, const struct node *n, int x, int labels, struct err *err);

/* Check that in[i], the place where each token's document begins, is absent, or I32 [..,length]
 * with `rows` elements. */
int op_want_starts(const struct graph *g, const struct node *n, int i, int64_t rows, int64_t length,
                   struct err *err);

/* Describe output i: it exists and has this dtype and shape. */
void op_out(struct value out[NODE_MAX_OUT], int i, enum dtype dtype, struct shape shape);

/* The extent of a convolution's or pool's output, or 0 if the kernel is larger than the padded
 * input. */
int64_t op_window_extent(int64_t in, int kernel, int stride, int pad, int dilation);

/* The extent of a pool's output in ceil mode, as PyTorch has it: the last window may reach beyond
 * the padding at the end, but begins before it. */
int64_t op_window_ceil(int64_t in, int kernel, int stride, int64_t before, int64_t after);

int64_t op_last_dim(const struct shape *s);
int64_t op_rows(const struct shape *s); /* the product of all dimensions but the last */

/* The output in which a node writes the gradient of `value`: the VALUE_GRAD of a parameter, to
 * which program/differentiate.c lets every node but the first one add; else NODE_NEW_OUT.  The
 * nodes that `grad` appends must not read this output. */
int op_grad_out(struct graph *g, int value);

/* op_grad_out(g, n->in[i]) if want[i], else NODE_NO_OUT. */
int op_grad_wanted(struct graph *g, const struct node *n, const int want[NODE_MAX_IN], int i);

/* The name of n with a suffix, "conv1.grad_w", in the graph's arena. */
const char *op_name(struct graph *g, const struct node *n, const char *suffix);

#endif
