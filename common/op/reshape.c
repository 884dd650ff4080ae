/* reshape - the same elements in the same order under another shape, without a kernel or a copy.
 *
 * reshape  x -> y of attr.reshape.shape */
#include "op/infer.h"

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    const struct value *x = op_in(g, n, RESHAPE_X);
    const struct shape *y = &n->attr.reshape.shape;
    char text[2][SHAPE_TEXT_LEN];

    if (shape_elements(&x->shape) != shape_elements(y))
        return op_fail(n, err, "x is %s, want as many elements as %s",
                       shape_text(&x->shape, text[0]), shape_text(y, text[1]));
    op_out(out, RESHAPE_Y, x->dtype, *y);
    return 0;
}

static int grad(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    union node_attr attr = {.reshape.shape = *op_shape(g, n, RESHAPE_X)};

    (void)want;
    din[RESHAPE_X] = NODE_NEW_OUT;
    return graph_node(g, OP_reshape, &attr, dout, 1, &din[RESHAPE_X], op_name(g, n, "grad"), err);
}

const struct op_def op_reshape = {
    .infer = infer,
    .grad = grad,
    OP_SIGNATURE(reshape),
    .flags = OP_ALIAS,
    .typed_in = 1u << RESHAPE_X,
    .typed_out = 1u << RESHAPE_Y,
};
