/* compose_fused - one node for a formula that a sum or a product ends: rotary positions and gates.
 *
 * The nodes of the formula stay; those that nobody reads are dropped later (program/prune.c). */
#include <string.h>

#include "op/compose.h"

int compose_rotary(struct compose *c, int x, int cos, int sin, int64_t inner, int pairs)
{
    const union node_attr attr = {.rotary = {.inner = inner, .pairs = pairs}};

    return compose_append(c, OP_rotary, &attr, (const int[]){x, cos, sin}, 3);
}

static const struct shape *fused_shape(const struct compose *c, int v)
{
    return &c->g->value[v].shape;
}

/* The node of this operator that made v; NULL: v was made otherwise, or no gradient goes back. */
static const struct node *fused_maker(const struct compose *c, int v, enum op op)
{
    const int k = c->g->value[v].is_detached ? -1 : c->g->value[v].producer;

    return k >= 0 && c->g->node[k].op == (int)op ? &c->g->node[k] : NULL;
}

static const struct node *fused_elementwise(const struct compose *c, int v, enum elementwise kind)
{
    const struct node *n = fused_maker(c, v, OP_elementwise);

    return n && n->attr.elementwise.kind == kind ? n : NULL;
}

/* ---- gates ---- */

int compose_gate(struct compose *c, int gate, int x)
{
    const union node_attr attr = {.elementwise.kind = EW_SILU_MUL};
    const struct node *silu = fused_maker(c, gate, OP_activation);

    if (!silu || silu->attr.act.kind != ACT_SILU ||
        !shape_equal(fused_shape(c, gate), fused_shape(c, x)))
        return NO_VALUE;
    return compose_append(c, OP_elementwise, &attr, (const int[]){silu->in[ACTIVATION_X], x}, 2);
}

/* ---- rotary positions ---- */

/* A number of x times one of the table: x of the shape of the product, the table a constant. */
struct turned {
    int x, table;
};

/* The constant of real numbers that v is, or is a view of; NULL: it is none. */
static const struct value *fused_constant(const struct compose *c, int v)
{
    const struct node *view = fused_maker(c, v, OP_reshape);
    const struct value *table = &c->g->value[view ? view->in[RESHAPE_X] : v];

    return table->role == VALUE_CONST && table->dtype == DTYPE_F32 ? table : NULL;
}

/* v = x * table, in either order.  0: it is not. */
static int fused_turned(const struct compose *c, int v, struct turned *t)
{
    const struct node *n = fused_elementwise(c, v, EW_MUL);

    for (int i = ELEMENTWISE_A; n && i <= ELEMENTWISE_B; i++) {
        *t = (struct turned){n->in[i], n->in[1 - i]};
        if (fused_constant(c, t->table) && shape_equal(fused_shape(c, t->x), fused_shape(c, v)))
            return 1;
    }
    return 0;
}

/* The x whose elements start, start + step .. before stop of the last dimension v is. */
static int fused_part(const struct compose *c, int v, int64_t start, int64_t stop, int64_t step)
{
    const struct node *n = fused_maker(c, v, OP_slice);
    const struct shape *x = n ? fused_shape(c, n->in[SLICE_X]) : NULL;
    const int64_t last = n ? n->attr.slice.stop : 0;

    if (!n || n->attr.slice.dim != x->n - 1 || n->attr.slice.start != start ||
        n->attr.slice.step != step || (step == 1 ? last != stop : last < stop - step + 1))
        return NO_VALUE;
    return n->in[SLICE_X];
}

/* 1: v = (-b, a), where (a, b) are the halves of x, or its pairs. */
static int fused_is_other(const struct compose *c, int v, int x, int *pairs)
{
    const struct shape *s = fused_shape(c, x);
    const struct node *n = fused_maker(c, v, OP_concat), *view, *minus;
    const int64_t width = s->n ? s->dim[s->n - 1] : 0;
    int a, b;

    *pairs = !n;
    view = n ? NULL : fused_maker(c, v, OP_reshape);
    n = view ? fused_maker(c, view->in[RESHAPE_X], OP_concat) : n;
    if (!n || width % 2 || n->in[CONCAT_X1] == NO_VALUE ||
        (n->n_in > 2 && n->in[CONCAT_X2] != NO_VALUE) ||
        n->attr.concat.dim != fused_shape(c, n->out[CONCAT_Y])->n - 1)
        return 0;
    a = n->in[CONCAT_X1];
    b = n->in[CONCAT_X0];
    for (int i = 0; *pairs && i < 2; i++) { /* [..,R/2] as [..,R/2,1] */
        int *part = i ? &b : &a;

        if (fused_shape(c, *part)->dim[fused_shape(c, *part)->n - 1] != 1 ||
            !(view = fused_maker(c, *part, OP_reshape)))
            return 0;
        *part = view->in[RESHAPE_X];
    }
    minus = fused_elementwise(c, b, EW_NEG);
    if (!minus)
        return 0;
    b = minus->in[ELEMENTWISE_A];
    return *pairs ? fused_part(c, a, 0, width - 1, 2) == x && fused_part(c, b, 1, width, 2) == x
                  : fused_part(c, a, 0, width / 2, 1) == x &&
                        fused_part(c, b, width / 2, width, 1) == x;
}

/* The rows of x that one row of the table [..1,T,1..,R] turns; with T 1 any number of them will do.
 * 0: the table has another form. */
static int64_t fused_inner(const struct compose *c, int x, int table)
{
    const struct shape *s = fused_shape(c, x), *t = fused_shape(c, table);
    const int missing = s->n - t->n;
    int64_t inner = 1;
    int places = -1;

    if (t->n < 2 || missing < 0 || t->dim[t->n - 1] != s->dim[s->n - 1])
        return 0;
    for (int d = t->n - 2; d >= 0; d--) {
        if (t->dim[d] == 1 && places < 0)
            inner *= s->dim[missing + d];
        else if (t->dim[d] != 1 && (places >= 0 || t->dim[d] != s->dim[missing + d]))
            return 0;
        else if (t->dim[d] != 1)
            places = d;
    }
    return inner;
}

/* The table as a constant [T,R] of its own, which stays F32 in every precision; that of the rotary
 * node before this one, if it has the same numbers. */
static int fused_table(struct compose *c, int v, int64_t width, int operand)
{
    const struct value *from = fused_constant(c, v);
    const struct shape shape = SHAPE(shape_elements(&from->shape) / width, width);
    int k = c->g->n_nodes - 1;

    while (k >= 0 && c->g->node[k].op != OP_rotary)
        k--;
    if (k >= 0) {
        const int same = c->g->node[k].in[operand];
        const struct value *t = &c->g->value[same];

        if (t->role == VALUE_CONST && shape_equal(&t->shape, &shape) &&
            !memcmp(t->content, from->content, sizeof(float) * (size_t)shape_elements(&shape)))
            return same;
    }
    return compose_has_room(c, shape.dim[0], width) ? compose_const(c, shape, from->content)
                                                    : NO_VALUE;
}

int compose_turn(struct compose *c, int a, int b)
{
    struct turned at, other;
    int64_t inner, width;
    int pairs, cos, sin;

    if (!fused_turned(c, a, &at) || !fused_turned(c, b, &other) ||
        !fused_is_other(c, other.x, at.x, &pairs) || !(inner = fused_inner(c, at.x, at.table)) ||
        inner != fused_inner(c, at.x, other.table) ||
        shape_elements(fused_shape(c, at.table)) != shape_elements(fused_shape(c, other.table)))
        return NO_VALUE;
    width = fused_shape(c, at.x)->dim[fused_shape(c, at.x)->n - 1];
    cos = fused_table(c, at.table, width, ROTARY_COS);
    sin = fused_table(c, other.table, width, ROTARY_SIN);
    return compose_rotary(c, at.x, cos, sin, inner, pairs);
}
