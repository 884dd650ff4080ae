/* reshape - the same elements in the same order under another shape, without a kernel or a copy.
 *
 * reshape  x -> y of attr.reshape.shape, of which one extent may be -1: as many as are left */
#include "op/infer.h"

/* The shape that attr asks for, with the number in place of a -1; as it is if there is none that
 * fits. */
static struct shape reshape_resolved(const struct node *n, int64_t n_elements)
{
    struct shape y = n->attr.reshape.shape;
    int64_t others = 1;
    int open = -1;

    for (int d = 0; d < y.n; d++)
        if (y.dim[d] == -1 && open < 0)
            open = d;
        else
            others *= y.dim[d];
    if (open >= 0 && others > 0 && n_elements % others == 0)
        y.dim[open] = n_elements / others;
    return y;
}

static int reshape_infer(const struct graph *g, const struct node *n,
                         struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct value *x = op_in(g, n, RESHAPE_X);
    const struct shape y = reshape_resolved(n, shape_elements(&x->shape));
    char text[2][SHAPE_TEXT_LEN];
    int is_open = 0;

    for (int d = 0; d < y.n; d++)
        is_open |= y.dim[d] < 0;
    if (is_open || shape_elements(&x->shape) != shape_elements(&y))
        return op_fail(n, err, "x is %s, want as many elements as %s",
                       shape_text(&x->shape, text[0]), shape_text(&y, text[1]));
    op_out(out, RESHAPE_Y, x->dtype, y);
    return 0;
}

static int reshape_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                            const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    union node_attr attr = {.reshape.shape = *op_shape(g, n, RESHAPE_X)};

    (void)want;
    din[RESHAPE_X] = NODE_NEW_OUT;
    return graph_node(g, OP_reshape, &attr, dout, 1, &din[RESHAPE_X], op_name(g, n, "grad"), err);
}

const struct op_def op_reshape = {
    .infer = reshape_infer,
    .grad = reshape_backward,
    OP_SIGNATURE(reshape),
    .flags = OP_ALIAS,
    .typed_in = 1u << RESHAPE_X,
    .typed_out = 1u << RESHAPE_Y,
};
