/* elementwise - arithmetic element by element, with broadcasting: attr.elementwise.kind chooses the
 * formula from the table of ir/elementwise.h.
 *
 * elementwise       a [..], b? [..], c? [..] -> y [..].  Operands are broadcast as PyTorch does it:
 *                   dimensions are aligned at the last one; an extent of 1, or a missing one, is
 *                   repeated.  A kind takes as many operands as its row says.
 * elementwise_grad  a, b?, c?, dy -> da?, db?  of y's shape.  The sums over what was repeated are
 *                   nodes of their own (op/reduce.c). */
#include "op/compose.h"
#include "op/infer.h"

static const struct {
    const char *name;
    int n;
} kinds[] = {
#define X(kind, name, n, y, da, db) {name, n},
    ELEMENTWISE_LIST(X)
#undef X
};

static int elementwise_check_kind(const struct node *n, struct err *err)
{
    const int kind = (int)n->attr.elementwise.kind;
    int seen = 0;

    if (kind < 0 || kind >= EW_COUNT)
        return op_fail(n, err, "there is no kind %d", kind);
    for (int i = ELEMENTWISE_A; i <= ELEMENTWISE_C; i++)
        seen += op_has(n, i);
    if (seen != kinds[kind].n || !op_has(n, kinds[kind].n - 1))
        return op_fail(n, err, "%s takes its first %d operands, and no others", kinds[kind].name,
                       kinds[kind].n);
    return 0;
}

/* Broadcast x to *y, and *y to x. */
static int elementwise_broadcast(const struct node *n, const struct shape *x, struct shape *y,
                                 struct err *err)
{
    const struct shape *wide = x->n > y->n ? x : y, *other = x->n > y->n ? y : x;
    const int missing = wide->n - other->n;
    struct shape both = *wide;
    char text[2][SHAPE_TEXT_LEN];

    for (int d = missing; d < wide->n; d++) {
        const int64_t a = wide->dim[d], b = other->dim[d - missing];

        if (a != b && a != 1 && b != 1)
            return op_fail(n, err, "%s cannot be broadcast with %s", shape_text(x, text[0]),
                           shape_text(y, text[1]));
        both.dim[d] = a == 1 ? b : a;
    }
    *y = both;
    return 0;
}

static int shape_of_result(const struct graph *g, const struct node *n, struct shape *y,
                           struct err *err)
{
    int rc = elementwise_check_kind(n, err);

    *y = (struct shape){0};
    for (int i = ELEMENTWISE_A; rc == 0 && i <= ELEMENTWISE_C; i++)
        if (op_has(n, i) && (rc = op_want(g, n, i, DTYPE_F32, op_shape(g, n, i)->n, err)) == 0)
            rc = elementwise_broadcast(n, op_shape(g, n, i), y, err);
    return rc;
}

static int elementwise_infer(const struct graph *g, const struct node *n,
                             struct value out[NODE_MAX_OUT], struct err *err)
{
    struct shape y;
    int rc = shape_of_result(g, n, &y, err);

    if (rc == 0)
        op_out(out, ELEMENTWISE_Y, DTYPE_F32, y);
    return rc;
}

static int elementwise_infer_grad(const struct graph *g, const struct node *n,
                                  struct value out[NODE_MAX_OUT], struct err *err)
{
    struct shape y;
    int rc = shape_of_result(g, n, &y, err);

    if (rc < 0 || (rc = op_want_shape(g, n, ELEMENTWISE_GRAD_DY, y, err)) < 0)
        return rc;
    op_out(out, ELEMENTWISE_GRAD_DA, DTYPE_F32, y);
    if (op_has(n, ELEMENTWISE_GRAD_B))
        op_out(out, ELEMENTWISE_GRAD_DB, DTYPE_F32, y);
    return 0;
}

/* The gradients of a and b before the sums over what was repeated.  Those of a sum are dy. */
static int whole_grads(struct graph *g, const struct node *n, int dy, const int want[NODE_MAX_IN],
                       int whole[NODE_MAX_OUT], struct err *err)
{
    int in[] = {[ELEMENTWISE_GRAD_A] = n->in[ELEMENTWISE_A],
                [ELEMENTWISE_GRAD_B] = n->in[ELEMENTWISE_B],
                [ELEMENTWISE_GRAD_C] = n->in[ELEMENTWISE_C],
                [ELEMENTWISE_GRAD_DY] = dy};

    for (int i = 0; i < NODE_MAX_OUT; i++)
        whole[i] = NODE_NO_OUT;
    for (int i = ELEMENTWISE_A; i <= ELEMENTWISE_B; i++)
        if (want[i])
            whole[i] = n->attr.elementwise.kind == EW_ADD ? dy : NODE_NEW_OUT;
    if (n->attr.elementwise.kind == EW_ADD)
        return 0;
    return graph_node(g, OP_elementwise_grad, &n->attr, in, 4, whole, op_name(g, n, "grad"), err);
}

static int elementwise_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    struct compose c = {.g = g, .name = op_name(g, n, "grad"), .err = err};
    int whole[NODE_MAX_OUT], rc;

    if ((!want[ELEMENTWISE_A] && !want[ELEMENTWISE_B]) ||
        elementwise_is_flat(n->attr.elementwise.kind))
        return 0;
    rc = whole_grads(g, n, dout[ELEMENTWISE_Y], want, whole, err);
    if (rc < 0)
        return rc;
    for (int i = ELEMENTWISE_A; i <= ELEMENTWISE_B; i++)
        if (want[i])
            din[i] = compose_sum_to(&c, whole[i], *op_shape(g, n, i));
    return c.rc;
}

const struct op_def op_elementwise = {
    .infer = elementwise_infer,
    .grad = elementwise_backward,
    OP_SIGNATURE(elementwise),
    .flags = OP_ROWS | OP_CHEAP,
    .typed_in = 1u << ELEMENTWISE_A | 1u << ELEMENTWISE_B | 1u << ELEMENTWISE_C,
    .typed_out = 1u << ELEMENTWISE_Y,
};

const struct op_def op_elementwise_grad = {
    .infer = elementwise_infer_grad,
    OP_SIGNATURE(elementwise_grad),
    .flags = OP_ROWS,
    .typed_in = 1u << ELEMENTWISE_GRAD_A | 1u << ELEMENTWISE_GRAD_B | 1u << ELEMENTWISE_GRAD_C |
                1u << ELEMENTWISE_GRAD_DY,
    .typed_out = 1u << ELEMENTWISE_GRAD_DA | 1u << ELEMENTWISE_GRAD_DB,
};
