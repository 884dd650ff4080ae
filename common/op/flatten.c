/* flatten - an image as a row in PyTorch's order (channel, row, column): a transposition.
 *
 * flatten    in: 0 x [N,H,W,C]     out: 0 y [N,C*H*W],  y[n, (c*H + h)*W + w] = x[n,h,w,c]
 * unflatten  in: 0 y [N,C*H*W]     out: 0 x [N,H,W,C];  attr.flatten.image = {H,W,C} */
#include "op/infer.h"

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    const struct shape *x;
    int rc = op_want(g, n, 0, DTYPE_F32, 4, err);

    if (rc < 0)
        return rc;
    x = op_shape(g, n, 0);
    op_out(out, 0, DTYPE_F32, SHAPE(x->dim[0], x->dim[3] * x->dim[1] * x->dim[2]));
    return 0;
}

static int infer_unflatten(const struct graph *g, const struct node *n,
                           struct value out[NODE_MAX_OUT], struct err *err)
{
    const int64_t *image = n->attr.flatten.image;
    int64_t batch;
    int rc = op_want(g, n, 0, DTYPE_F32, 2, err);

    if (rc < 0)
        return rc;
    batch = op_shape(g, n, 0)->dim[0];
    if ((rc = op_want_shape(g, n, 0, SHAPE(batch, image[0] * image[1] * image[2]), err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F32, SHAPE(batch, image[0], image[1], image[2]));
    return 0;
}

static int grad(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    union node_attr attr = {0};

    (void)want;
    for (int i = 0; i < 3; i++)
        attr.flatten.image[i] = op_shape(g, n, 0)->dim[1 + i];
    din[0] = op_grad_out(g, n->in[0]);
    return graph_node(g, OP_unflatten, &attr, dout, 1, &din[0], op_name(g, n, "grad"), err);
}

static int grad_unflatten(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                          const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    (void)want;
    din[0] = op_grad_out(g, n->in[0]);
    return graph_node(g, OP_flatten, NULL, dout, 1, &din[0], op_name(g, n, "grad"), err);
}

const struct op_def op_flatten = {
    .name = "flatten",
    .n_in = 1,
    .n_out = 1,
    .flags = OP_ROWS,
    .typed_in = 1 << 0,
    .typed_out = 1 << 0,
    .in_name = {"x"},
    .out_name = {"y"},
    .infer = infer,
    .grad = grad,
};

const struct op_def op_unflatten = {
    .name = "unflatten",
    .n_in = 1,
    .n_out = 1,
    .flags = OP_ROWS,
    .typed_in = 1 << 0,
    .typed_out = 1 << 0,
    .in_name = {"y"},
    .out_name = {"x"},
    .infer = infer_unflatten,
    .grad = grad_unflatten,
};
