/* compose - general nodes in one call each: what gradients, and models beyond layers, are made of.
 *
 * Every function appends the nodes that it needs and returns the value that they compute.  After
 * the first failure it returns NO_VALUE and appends nothing, so that only c->rc at the end must be
 * checked:
 *
 *     struct compose c = {.g = g, .name = "embed", .err = err};
 *     int x = compose_concat(&c, (int[]){token, patches}, 2, 1);
 *     x = compose_elementwise(&c, EW_ADD, x, position);
 *     if (c.rc < 0) ...
 *
 * A view that changes nothing appends no node.  Dimensions count from 0; a negative one counts
 * from the end, -1 being the last.
 *
 * Threads: as the graph. */
#ifndef OP_COMPOSE_H
#define OP_COMPOSE_H

#include "op/op.h"

struct compose {
    struct graph *g;
    const char *name; /* of all nodes */
    struct err *err;
    int rc;            /* 0, or the first failure */
    int64_t constants; /* elements of constants on the host so far: compose_has_room */
};

/* y = kind(a, b), with broadcasting; b is ignored by kinds of one operand.  Operands of equal
 * shape are added by the operator add.  A sum or a product that ends a formula for which there is
 * one node becomes that node: compose_turn, compose_gate. */
int compose_elementwise(struct compose *c, enum elementwise kind, int a, int b);
int compose_constants(struct compose *c, enum elementwise kind, int a, float p, float q);
int compose_where(struct compose *c, int condition, int a, int b); /* condition != 0 ? a : b */
int compose_activation(struct compose *c, enum activation kind, int x);

/* x to the power of p, by the cheapest kind that has PyTorch's values and gradient. */
int compose_power(struct compose *c, int x, double p);

/* x as `to`: F32, BF16, F16 or I32.  A cast to I32 cuts towards 0, and has no gradient. */
int compose_cast(struct compose *c, int x, enum dtype to);

/* Compare I32 numbers with a number, exactly in half precision, too: kind is EW_EQ .. EW_GE. */
int compose_compare(struct compose *c, enum elementwise kind, int x, int32_t number);

/* Exact arithmetic of I32 (op/integers.c); b of a's shape.  b NO_VALUE: with the number. */
int compose_integers(struct compose *c, enum integers kind, int a, int b, int32_t number);

/* Before a constant of a * b elements is made, whose size comes from a file: 1 and counted, or 0
 * and c failed, because all constants of c would be larger than 2 GiB. */
int compose_has_room(struct compose *c, int64_t a, int64_t b);
int compose_const(struct compose *c, struct shape shape, const float *content);
int compose_scalar(struct compose *c, double v); /* a constant of one element, [1] */

/* Any operator that has no function of its own here: inputs in[0 .. n).  The result is its first
 * output; others that nobody reads are dropped later (program/prune.c). */
int compose_append(struct compose *c, enum op op, const union node_attr *attr, const int *in,
                   int n);

/* Rotary positions (op/rotary.c) by tables cos and sin [T,R]. */
int compose_rotary(struct compose *c, int x, int cos, int sin, int64_t inner, int pairs);
/* a + b as a rotary node: x * cos + (-x2, x1) * sin with constant tables.  gate * x as one node:
 * silu(y) * x.  NO_VALUE: the formula is another one, and nothing was appended. */
int compose_turn(struct compose *c, int a, int b);
int compose_gate(struct compose *c, int gate, int x);

int compose_matmul(struct compose *c, int a, int b, int transpose_a, int transpose_b);
int compose_reduce(struct compose *c, enum reduction kind, int x, unsigned axes, int keep);

int compose_reshape(struct compose *c, int x, struct shape shape); /* one extent may be -1 */
int compose_expand(struct compose *c, int x, struct shape shape);
int compose_permute(struct compose *c, int x, const int *order); /* as many as x has dimensions */

/* The elements start, start + step ... before stop.  start and stop may be negative: they count
 * from the end.  INT64_MAX as stop means the end. */
int compose_slice(struct compose *c, int x, int dim, int64_t start, int64_t stop, int64_t step);
int compose_select(struct compose *c, int x, int dim, int64_t at);   /* a slice of 1, without dim */
int compose_concat(struct compose *c, const int *x, int n, int dim); /* n <= NODE_MAX_IN */

/* part[i] gets size[i] elements along dim, one behind the other. */
void compose_split(struct compose *c, int x, int dim, const int64_t *size, int n, int *part);

/* The sum of x over all that a value of this shape was broadcast along: its gradient from x. */
int compose_sum_to(struct compose *c, int x, struct shape shape);

/* x of its present shape without the dimensions `axes`, which were reduced: with those again, as
 * extents of 1. */
int compose_restore(struct compose *c, int x, const struct shape *before, unsigned axes);

/* ---- functions of torch.nn.functional that are several nodes ----
 *
 * Images are [N,H,W,C], as those of all operators. */

/* As torch.nn.functional.scaled_dot_product_attention: q [N,H,T,D], k [N,G,S,D], v [N,G,S,E] ->
 * [N,H,T,E].  H is a multiple of G: head h of q reads head h / (H / G) of k and v.  A row that sees
 * nothing is 0, as PyTorch has it.  Where there is no mask, and the heads have the lengths that
 * OP_attention wants, the result is one such node, of which no T x S matrix is kept.  q, k and v
 * that are parts of one matrix are then read where they lie.  Packed documents and windows need
 * such a node. */
struct compose_attention {
    int q, k, v;
    int mask;       /* broadcast to [N,H,T,S]; NO_VALUE: none */
    int is_bool;    /* 1: the mask is 0 where a row must not look; 0: it is added to the scores */
    int causal;     /* 1: row i sees the columns 0 .. i */
    int starts;     /* I32 [N,T]: row i sees no column before starts[i]; NO_VALUE: it does.  Causal,
                     * without a mask */
    int64_t window; /* row i sees the columns from i - window + 1 on; 0: all.  Likewise */
    double scale;   /* of q k^T; 0: 1 / sqrt(D) */
    double p;       /* of dropout; the graph's evaluation has none */
    int64_t tag;    /* of dropout, as in op/dropout.c */
    int64_t rows;   /* of dimension 0 that one sample has, for dropout; 0 means 1 */
};
int compose_attention(struct compose *c, const struct compose_attention *a);

/* x without the elements that are drawn, as op/dropout.c; x itself in evaluation, or if p is 0.  A
 * p of 1 or more gives zeros.  rows: of x's dimension 0 for a sample; whole: a sample is dropped as
 * a whole. */
int compose_dropout(struct compose *c, int x, double p, int64_t tag, int64_t rows, int whole);

/* Random numbers of this shape, whose dimension 0 counts samples: U[0,1), and 1 with probability p
 * or else 0.  The same on any number of ranks (op/uniform.c). */
int compose_uniform(struct compose *c, struct shape shape, int64_t tag);
int compose_bernoulli(struct compose *c, struct shape shape, double p, int64_t tag);

/* ---- by index.  Indices are I32 of any shape; one outside is the nearest one inside. ---- */

/* The rows of table [R,..] -> [index's shape, ..].  padding: the row that gets no gradient, -1: no
 * such row. */
int compose_lookup(struct compose *c, int table, int index, int64_t padding);
int compose_index_select(struct compose *c, int x, int dim, int index); /* index [n] */
/* As torch.gather: the index has as many dimensions as x.  Its cost is one product with the extent
 * of x along dim for each element. */
int compose_gather(struct compose *c, int x, int dim, int index);
int compose_one_hot(struct compose *c, int index, int64_t n); /* F32 [index's shape, n] */
/* The same with n numbers that are known now: flips, reflections, any order. */
int compose_select_many(struct compose *c, int x, int dim, const int64_t *at, int64_t n);

/* ---- along a dimension ---- */

int compose_roll(struct compose *c, int x, int dim, int64_t shift);
int compose_cumsum(struct compose *c, int x, int dim);
int compose_transpose(struct compose *c, int x, int d0, int d1);
/* The p-norm over `axes`, p 1, 2 or INFINITY; its gradient is 0 where the norm is 0. */
int compose_norm(struct compose *c, int x, double p, unsigned axes, int keep);
int compose_softmax(struct compose *c, int x, int dim, int log);
/* log(sum(exp(x))) over `axes`; rows that are -infinity throughout are -infinity. */
int compose_logsumexp(struct compose *c, int x, unsigned axes, int keep);

/* before and after elements are added along dim; negative numbers take elements away. */
enum padding { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE, PAD_CIRCULAR };
int compose_pad(struct compose *c, int x, int dim, const int64_t by[2], enum padding kind,
                double value);

/* ---- images ---- */

/* [0] rows, [1] columns; pad[i] is before and after.  As the arguments of conv2d and pools. */
struct compose_window {
    int kernel[2]; /* pools */
    int stride[2];
    int64_t pad[2][2];
    int dilation[2]; /* convolutions, maximum pools */
    int groups;      /* convolutions */
    int ceil_mode;   /* pools */
    int count_pad;   /* averages */
    int64_t divisor; /* averages; 0: the number of elements */
};
int compose_conv2d(struct compose *c, int x, int w, int b, const struct compose_window *win);
/* x [N,L,C], w [K,C/groups,S]; the window's rows are not read. */
int compose_conv1d(struct compose *c, int x, int w, int b, const struct compose_window *win);
int compose_max_pool(struct compose *c, int x, const struct compose_window *win);
int compose_avg_pool(struct compose *c, int x, const struct compose_window *win);
int compose_adaptive_avg_pool(struct compose *c, int x, int64_t rows, int64_t cols);
int compose_adaptive_max_pool(struct compose *c, int x, int64_t rows, int64_t cols);

/* As torch.nn.functional.interpolate.  scale[i]: the factor that the caller gave, 0: none, which
 * means the quotient of the extents. */
enum resize {
    RESIZE_NEAREST,
    RESIZE_NEAREST_EXACT,
    RESIZE_BILINEAR,
    RESIZE_BILINEAR_CORNERS,
    RESIZE_BICUBIC,
    RESIZE_BICUBIC_CORNERS,
    RESIZE_BILINEAR_SMOOTH, /* antialias=True */
    RESIZE_BICUBIC_SMOOTH,
};
int compose_resize(struct compose *c, int x, int64_t rows, int64_t cols, enum resize kind,
                   const double scale[2]);

/* ---- norms and products ---- */

/* x / sqrt(mean(x^2) + eps) * weight over the last dimension; weight may be NO_VALUE.  one_plus:
 * the factor is 1 + weight. */
int compose_rms_norm(struct compose *c, int x, int weight, double eps, int one_plus);

/* As torch.einsum of two operands, without "...": "bhid,bhjd->bhij".  A letter that only one
 * operand has, and the result has not, is summed first. */
int compose_einsum(struct compose *c, const char *text, int a, int b);

/* ---- recurrent layers ---- */

/* As torch.nn.LSTM, GRU and RNN with batch_first: x [N,T,I] -> [N,T,H] or, in both directions,
 * [N,T,2*H]. */
struct compose_recurrent {
    enum recurrent kind;
    int layers, bidirectional;
    double dropout; /* between layers; the graph's evaluation has none */
    int64_t tag;    /* of the first dropout; layers - 1 tags are used */
    int64_t rows;   /* of x's dimension 0 that one sample has, for dropout; 0 means 1 */
    int has_bias;
    /* PyTorch's parameters, layer by layer, and in each the forward direction first: weight_ih
     * [G*H,I], weight_hh [G*H,H] and, with has_bias, bias_ih [G*H], bias_hh [G*H]. */
    const int *param;
    int h0, c0; /* [layers * directions,N,H]; NO_VALUE: 0.  c0 is an LSTM's. */
};
/* h_n, c_n: NULL, or the last states of each layer and direction, [layers * directions,N,H]; c_n is
 * an LSTM's. */
int compose_recurrent(struct compose *c, const struct compose_recurrent *r, int x, int *h_n,
                      int *c_n);

/* ---- losses of rows: x [N,C] and targets -> [N,1] ---- */

/* [N,n]: 1 at each label's place, else 0; a label outside has no place. */
int compose_hot_rows(struct compose *c, int labels, int64_t n);

/* As torch.nn.functional.cross_entropy; with gamma each class's part is multiplied by (1 - p)^gamma
 * (focal loss).  labels: as many as rows; one that is ignored has the loss 0. */
struct compose_classes {
    const float *weight; /* [C], of each class; NULL: 1 */
    double smoothing, gamma;
};
int compose_class_loss(struct compose *c, int logits, int labels, const struct compose_classes *o);

/* kl_div of log_softmax(logits), summed over a row; targets [N,C] are probabilities. */
int compose_divergence(struct compose *c, int logits, int target);

/* Means over a row: targets are [N,C]. */
int compose_huber(struct compose *c, int y, int target, double delta);            /* huber_loss */
int compose_pointwise(struct compose *c, enum pointwise kind, int y, int target); /* mse, l1 */
/* binary_cross_entropy_with_logits; positive [C] is its pos_weight, NULL: 1. */
int compose_logistic(struct compose *c, int y, int target, const float *positive);

/* Row i of a and row i of b belong together, each among all rows of the other: the mean of both
 * cross entropies of `factor` * scale * a b^T, as in CLIP.  So a row's loss depends on the other
 * rows of the batch, and with `all` on those of the other ranks (op/all_rows.c). */
struct compose_contrast {
    int a, b;      /* [N,D] */
    int scale;     /* one number; NO_VALUE: 1 */
    double factor; /* 1 / temperature */
    int64_t all;   /* rows of a full global batch, over all ranks; 0: N are all */
};
int compose_contrast(struct compose *c, const struct compose_contrast *o);

#endif
