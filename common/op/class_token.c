/* class_token - a learned row before the rows of each sample, and the rows of their positions, as a
 * vision transformer begins.
 *
 * class_token       x [N*(T-1),C], token [1,1,C], position [1,T,C] -> y [N*T,C]
 *   T = attr.class_token.length rows of a sample, of which the first is the token:
 *   y[n*T] = token + position[0];  y[n*T + t] = x[n*(T-1) + t-1] + position[t] for 0 < t < T.
 *
 * class_token_grad  dy [N*T,C] -> dx? [N*(T-1),C], dtoken? [1,1,C], dposition? [1,T,C]
 *   dx has the rows of dy but for the first of each sample; dposition[t] is the sum over n of
 * dy[n*T + t], in ascending order; dtoken = dposition[0].  Their shapes are those of torchvision's
 * parameters. */
#include "op/infer.h"

static int class_token_infer(const struct graph *g, const struct node *n,
                             struct value out[NODE_MAX_OUT], struct err *err)
{
    const int64_t length = n->attr.class_token.length;
    const struct shape *x;
    int rc;

    rc = op_want(g, n, CLASS_TOKEN_X, DTYPE_F32, 2, err);
    if (rc < 0)
        return rc;
    x = op_shape(g, n, CLASS_TOKEN_X);
    if (length < 2 || x->dim[0] % (length - 1))
        return op_fail(n, err, "x has %lld rows, want a multiple of the %lld of one sample",
                       (long long)x->dim[0], (long long)(length - 1));
    if ((rc = op_want_shape(g, n, CLASS_TOKEN_TOKEN, SHAPE(1, 1, x->dim[1]), err)) < 0 ||
        (rc = op_want_shape(g, n, CLASS_TOKEN_POSITION, SHAPE(1, length, x->dim[1]), err)) < 0)
        return rc;
    op_out(out, CLASS_TOKEN_Y, DTYPE_F32, SHAPE(x->dim[0] / (length - 1) * length, x->dim[1]));
    return 0;
}

static int class_token_infer_grad(const struct graph *g, const struct node *n,
                                  struct value out[NODE_MAX_OUT], struct err *err)
{
    const int64_t length = n->attr.class_token.length;
    const struct shape *dy;
    int rc = op_want(g, n, CLASS_TOKEN_GRAD_DY, DTYPE_F32, 2, err);

    if (rc < 0)
        return rc;
    dy = op_shape(g, n, CLASS_TOKEN_GRAD_DY);
    if (length < 2 || dy->dim[0] % length)
        return op_fail(n, err, "dy has %lld rows, want a multiple of the %lld of one sample",
                       (long long)dy->dim[0], (long long)length);
    op_out(out, CLASS_TOKEN_GRAD_DX, DTYPE_F32,
           SHAPE(dy->dim[0] / length * (length - 1), dy->dim[1]));
    op_out(out, CLASS_TOKEN_GRAD_DTOKEN, DTYPE_F32, SHAPE(1, 1, dy->dim[1]));
    op_out(out, CLASS_TOKEN_GRAD_DPOSITION, DTYPE_F32, SHAPE(1, length, dy->dim[1]));
    return 0;
}

static int class_token_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    int out[] = {[CLASS_TOKEN_GRAD_DX] = op_grad_wanted(g, n, want, CLASS_TOKEN_X),
                 [CLASS_TOKEN_GRAD_DTOKEN] = op_grad_wanted(g, n, want, CLASS_TOKEN_TOKEN),
                 [CLASS_TOKEN_GRAD_DPOSITION] = op_grad_wanted(g, n, want, CLASS_TOKEN_POSITION)};
    int rc = graph_node(g, OP_class_token_grad, &n->attr, &dout[CLASS_TOKEN_Y], 1, out,
                        op_name(g, n, "grad"), err);

    din[CLASS_TOKEN_X] = out[CLASS_TOKEN_GRAD_DX];
    din[CLASS_TOKEN_TOKEN] = out[CLASS_TOKEN_GRAD_DTOKEN];
    din[CLASS_TOKEN_POSITION] = out[CLASS_TOKEN_GRAD_DPOSITION];
    return rc;
}

const struct op_def op_class_token = {
    .infer = class_token_infer,
    .grad = class_token_backward,
    OP_SIGNATURE(class_token),
    .flags = OP_ROWS,
    .typed_in = 1u << CLASS_TOKEN_X | 1u << CLASS_TOKEN_TOKEN | 1u << CLASS_TOKEN_POSITION,
    .typed_out = 1u << CLASS_TOKEN_Y,
};

const struct op_def op_class_token_grad = {
    .infer = class_token_infer_grad,
    OP_SIGNATURE(class_token_grad),
    .flags = OP_ROWS,
    .typed_in = 1u << CLASS_TOKEN_GRAD_DY,
    .typed_out = 1u << CLASS_TOKEN_GRAD_DX,
    .wide_out = 1u << CLASS_TOKEN_GRAD_DTOKEN | 1u << CLASS_TOKEN_GRAD_DPOSITION,
};
