/* unpack - numbers that are stored in fewer bits, as float32 or half precision: the weights of a
 * frozen base (program/base.h).
 *
 * unpack       codes [..], scales? [S] -> y [..]
 *   The codes are BF16, and y is their numbers; or they are I8, with a scale for each block
 *   (tensor/blocks.h), and y[i] = codes[i] * scales[i / BLOCKS_LEN], i in the order of memory.
 *
 * unpack_rows  codes [V,C], scales? [S], tokens I32 [..,T], position? [P,C] -> y [R,C]
 *   As embedding (op/embedding.c) of the table that unpack would make; no table is made.
 *
 * unpack_linear         x [N,in], codes [out,in], scales? [S], b? [out] -> y [N,out]
 * unpack_linear_grad_x  dy [N,out], codes, scales? [S] -> dx [N,in]
 *   As linear and linear_grad_x (op/linear.c) of the weight that unpack would make, which is
 * [in,out] with attr.linear.transposed.  They unpack some of its rows at a time.  Only
 * program/fuse.c makes these nodes, for backends with FUSE_UNPACK.
 *
 * None has a gradient: what is stored so is not trained. */
#include "base/util.h"
#include "op/infer.h"
#include "tensor/blocks.h"

/* Check the operands `codes` and `scales`. */
static int unpack_check(const struct graph *g, const struct node *n, int codes, int scales,
                        struct err *err)
{
    const struct value *v = op_in(g, n, codes);
    const int has_scales = v->dtype == DTYPE_I8;

    if (!has_scales && v->dtype != DTYPE_BF16)
        return op_fail(n, err, "codes are %s, want BF16 or I8", dtype_name(v->dtype));
    if (op_has(n, scales) != has_scales)
        return op_fail(n, err, "codes are %s, which have %sscales", dtype_name(v->dtype),
                       has_scales ? "" : "no ");
    return op_want_shape(g, n, scales, SHAPE(blocks_of(shape_elements(&v->shape))), err);
}

static int unpack_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    const int rc = unpack_check(g, n, UNPACK_CODES, UNPACK_SCALES, err);

    op_out(out, UNPACK_Y, DTYPE_F32, *op_shape(g, n, UNPACK_CODES));
    return rc;
}

static int unpack_infer_rows(const struct graph *g, const struct node *n,
                             struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *codes = op_shape(g, n, UNPACK_ROWS_CODES);
    const struct shape *tokens = op_shape(g, n, UNPACK_ROWS_TOKENS);
    int rc = unpack_check(g, n, UNPACK_ROWS_CODES, UNPACK_ROWS_SCALES, err);

    if (rc < 0 || (rc = op_want(g, n, UNPACK_ROWS_TOKENS, DTYPE_I32, -1, err)) < 0 ||
        (rc = op_want(g, n, UNPACK_ROWS_POSITION, DTYPE_F32, 2, err)) < 0)
        return rc;
    if (codes->n != 2 || codes->dim[0] < 1)
        return op_fail(n, err, "its table has no rows");
    if (op_has(n, UNPACK_ROWS_POSITION)) {
        const struct shape *position = op_shape(g, n, UNPACK_ROWS_POSITION);

        if (position->dim[0] < op_last_dim(tokens))
            return op_fail(n, err, "%lld positions for %lld tokens in a row",
                           (long long)position->dim[0], (long long)op_last_dim(tokens));
        rc = op_want_shape(g, n, UNPACK_ROWS_POSITION, SHAPE(position->dim[0], codes->dim[1]), err);
    }
    op_out(out, UNPACK_ROWS_Y, DTYPE_F32, SHAPE(shape_elements(tokens), codes->dim[1]));
    return rc;
}

/* The product of in[0] with the weight `codes`; turned: in the direction of the gradient. */
static int unpack_product(const struct graph *g, const struct node *n, int codes, int scales,
                          int turned, struct shape *out, struct err *err)
{
    const struct shape *w = op_shape(g, n, codes);
    const int from = n->attr.linear.transposed == turned; /* the dimension of w that is summed */
    int rc = unpack_check(g, n, codes, scales, err);

    if (rc < 0 || (rc = op_want(g, n, 0, DTYPE_F32, 2, err)) < 0)
        return rc;
    if (w->n != 2 || w->dim[from] != op_shape(g, n, 0)->dim[1])
        return op_fail(n, err, "the weight does not fit rows of %lld numbers",
                       (long long)op_shape(g, n, 0)->dim[1]);
    *out = SHAPE(op_shape(g, n, 0)->dim[0], w->dim[!from]);
    return 0;
}

static int unpack_infer_linear(const struct graph *g, const struct node *n,
                               struct value out[NODE_MAX_OUT], struct err *err)
{
    struct shape y;
    const int rc = unpack_product(g, n, UNPACK_LINEAR_CODES, UNPACK_LINEAR_SCALES, 0, &y, err);

    if (rc < 0)
        return rc;
    op_out(out, UNPACK_LINEAR_Y, DTYPE_F32, y);
    return op_want_shape(g, n, UNPACK_LINEAR_B, SHAPE(y.dim[1]), err);
}

static int unpack_infer_linear_grad(const struct graph *g, const struct node *n,
                                    struct value out[NODE_MAX_OUT], struct err *err)
{
    struct shape dx;
    const int rc =
        unpack_product(g, n, UNPACK_LINEAR_GRAD_X_CODES, UNPACK_LINEAR_GRAD_X_SCALES, 1, &dx, err);

    if (rc == 0)
        op_out(out, UNPACK_LINEAR_GRAD_X_DX, DTYPE_F32, dx);
    return rc;
}

const struct op_def op_unpack = {
    .infer = unpack_infer,
    OP_SIGNATURE(unpack),
    .typed_out = 1u << UNPACK_Y,
};

const struct op_def op_unpack_rows = {
    .infer = unpack_infer_rows,
    OP_SIGNATURE(unpack_rows),
    .flags = OP_ROWS,
    .typed_in = 1u << UNPACK_ROWS_POSITION,
    .typed_out = 1u << UNPACK_ROWS_Y,
};

const struct op_def op_unpack_linear = {
    .infer = unpack_infer_linear,
    OP_SIGNATURE(unpack_linear),
    .flags = OP_ROWS,
    .typed_in = 1u << UNPACK_LINEAR_X | 1u << UNPACK_LINEAR_B,
    .typed_out = 1u << UNPACK_LINEAR_Y,
};

const struct op_def op_unpack_linear_grad_x = {
    .infer = unpack_infer_linear_grad,
    OP_SIGNATURE(unpack_linear_grad_x),
    .flags = OP_ROWS,
    .typed_in = 1u << UNPACK_LINEAR_GRAD_X_DY,
    .typed_out = 1u << UNPACK_LINEAR_GRAD_X_DX,
};
