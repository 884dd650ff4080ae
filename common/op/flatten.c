/* flatten - an image as a row in PyTorch's order (channel, row, column): a transposition.
 *
 * flatten    x [N,H,W,C] -> y [N,C*H*W],  y[n, (c*H + h)*W + w] = x[n,h,w,c]
 * unflatten  y [N,C*H*W] -> x [N,H,W,C];  attr.flatten.image = {H,W,C} */
#include "op/infer.h"

static int flatten_infer(const struct graph *g, const struct node *n,
                         struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *x;
    int rc = op_want(g, n, FLATTEN_X, DTYPE_F32, 4, err);

    if (rc < 0)
        return rc;
    x = op_shape(g, n, FLATTEN_X);
    op_out(out, FLATTEN_Y, DTYPE_F32, SHAPE(x->dim[0], x->dim[3] * x->dim[1] * x->dim[2]));
    return 0;
}

static int infer_unflatten(const struct graph *g, const struct node *n,
                           struct value out[NODE_MAX_OUT], struct err *err)
{
    const int64_t *image = n->attr.flatten.image;
    int64_t batch;
    int rc = op_want(g, n, UNFLATTEN_Y, DTYPE_F32, 2, err);

    if (rc < 0)
        return rc;
    batch = op_shape(g, n, UNFLATTEN_Y)->dim[0];
    rc = op_want_shape(g, n, UNFLATTEN_Y, SHAPE(batch, image[0] * image[1] * image[2]), err);
    if (rc < 0)
        return rc;
    op_out(out, UNFLATTEN_X, DTYPE_F32, SHAPE(batch, image[0], image[1], image[2]));
    return 0;
}

static int flatten_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                            const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    union node_attr attr = {0};

    (void)want;
    for (int i = 0; i < 3; i++)
        attr.flatten.image[i] = op_shape(g, n, FLATTEN_X)->dim[1 + i];
    din[FLATTEN_X] = op_grad_out(g, n->in[FLATTEN_X]);
    return graph_node(g, OP_unflatten, &attr, dout, 1, &din[FLATTEN_X], op_name(g, n, "grad"), err);
}

static int grad_unflatten(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                          const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    (void)want;
    din[UNFLATTEN_Y] = op_grad_out(g, n->in[UNFLATTEN_Y]);
    return graph_node(g, OP_flatten, NULL, dout, 1, &din[UNFLATTEN_Y], op_name(g, n, "grad"), err);
}

const struct op_def op_flatten = {
    .infer = flatten_infer,
    .grad = flatten_backward,
    OP_SIGNATURE(flatten),
    .flags = OP_ROWS,
    .typed_in = 1u << FLATTEN_X,
    .typed_out = 1u << FLATTEN_Y,
};

const struct op_def op_unflatten = {
    .infer = infer_unflatten,
    .grad = grad_unflatten,
    OP_SIGNATURE(unflatten),
    .flags = OP_ROWS,
    .typed_in = 1u << UNFLATTEN_Y,
    .typed_out = 1u << UNFLATTEN_X,
};
