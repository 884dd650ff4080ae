/* op - the table of operators, and graph_node, which checks a new node against its operator's
 * signature and makes the values of its outputs. */
#include "op/op.h"

#include "base/util.h"
#include "op/infer.h"

static const struct op_def *const table[OP_COUNT] = {
#define X(name) [OP_##name] = &op_##name,
    OP_LIST(X)
#undef X
};

const struct op_def *op_get(int op)
{
    ASSERT(op >= 0 && op < OP_COUNT);
    return table[op];
}

enum dtype op_type(const struct graph *g, const struct node *n)
{
    const struct op_def *def = op_get(n->op);

    for (int i = 0; i < def->n_in; i++)
        if (def->typed_in >> i & 1 && op_has(n, i))
            return g->value[n->in[i]].dtype;
    for (int i = 0; i < def->n_out; i++)
        if (def->typed_out >> i & 1 && n->out[i] >= 0)
            return g->value[n->out[i]].dtype;
    for (int i = 0; i < def->n_in; i++)
        if (def->wide_in >> i & 1 && op_has(n, i))
            return g->value[n->in[i]].dtype;
    return DTYPE_F32;
}

/* Typed inputs must have the node's type, wide inputs that type or F32. */
static int check_types(const struct graph *g, const struct node *n, struct err *err)
{
    const struct op_def *def = op_get(n->op);
    const enum dtype type = op_type(g, n);

    for (int i = 0; i < def->n_in; i++) {
        enum dtype seen;

        if (!((def->typed_in | def->wide_in) >> i & 1) || !op_has(n, i))
            continue;
        seen = g->value[n->in[i]].dtype;
        if (seen != type && !(def->wide_in >> i & 1 && seen == DTYPE_F32))
            return op_fail(n, err, "%s is %s, want %s, as the others are", def->in_name[i],
                           dtype_name(seen), dtype_name(type));
    }
    return 0;
}

/* The bytes of a value can be counted, in whatever order its extents are multiplied. */
static int op_check_size(const struct node *n, const struct shape *s, struct err *err)
{
    const int64_t most = INT64_C(1) << 56;
    char text[SHAPE_TEXT_LEN];
    int64_t elements = 1;

    for (int d = 0; d < s->n; d++)
        if (s->dim[d] < 0 ||
            __builtin_mul_overflow(elements, s->dim[d] > 0 ? s->dim[d] : 1, &elements) ||
            elements > most)
            return op_fail(n, err, "its output is %s, which no memory holds", shape_text(s, text));
    return 0;
}

/* Check the node's inputs and ask its operator for the outputs.  An output that does not exist has
 * shape.n < 0. */
static int op_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                    struct err *err)
{
    const struct op_def *def = op_get(n->op);

    for (int i = 0; i < def->n_in; i++) {
        if (!op_has(n, i) && !(def->optional_in & 1u << i))
            return op_fail(n, err, "input %d (%s) is missing", i, def->in_name[i]);
        ASSERT(!op_has(n, i) || n->in[i] < g->n_values);
    }
    for (int i = 0; i < NODE_MAX_OUT; i++)
        out[i] = (struct value){.shape.n = -1};
    if (def->infer(g, n, out, err) < 0 || check_types(g, n, err) < 0)
        return err->code;
    for (int i = 0; i < def->n_out; i++)
        if (op_check_size(n, &out[i].shape, err) < 0)
            return err->code;
    for (int i = 0; i < def->n_out; i++)
        if (def->typed_out >> i & 1)
            out[i].dtype = op_type(g, n);
    return 0;
}

static int check_out(const struct graph *g, const struct node *n, int i, const struct value *want,
                     struct err *err)
{
    const struct op_def *def = op_get(n->op);
    const struct value *v = &g->value[n->out[i]];
    char seen[SHAPE_TEXT_LEN], wanted[SHAPE_TEXT_LEN];

    if (want->shape.n < 0)
        return op_fail(n, err, "output %s does not exist here", def->out_name[i]);
    if ((v->dtype == want->dtype || (def->wide_out >> i & 1 && v->dtype == op_type(g, n))) &&
        shape_equal(&v->shape, &want->shape))
        return 0;
    return op_fail(n, err, "output %s goes to %s, which is %s %s, want %s %s", def->out_name[i],
                   v->name, dtype_name(v->dtype), shape_text(&v->shape, seen),
                   dtype_name(want->dtype), shape_text(&want->shape, wanted));
}

/* Replace the request in n->out[i] (NODE_NEW_OUT, NODE_NO_OUT or an id) by the output's value. */
static int settle_out(struct graph *g, struct node *n, int i, const struct value *want,
                      struct err *err)
{
    const struct op_def *def = op_get(n->op);

    if (def->update[i])
        n->out[i] = n->in[def->update[i] - 1];
    else if (n->out[i] == NODE_NEW_OUT && want->shape.n >= 0)
        n->out[i] = graph_value(g, VALUE_TEMP, want->dtype, want->shape,
                                i ? arena_printf(&g->arena, "%s.out%d", n->name, i)
                                  : arena_printf(&g->arena, "%s.out", n->name));
    else if (n->out[i] < 0)
        n->out[i] = NO_VALUE;
    if (n->out[i] != NO_VALUE)
        return check_out(g, n, i, want, err);
    if (want->shape.n >= 0 && !(def->optional_out & 1u << i))
        return op_fail(n, err, "output %s is not optional", def->out_name[i]);
    return 0;
}

int graph_node(struct graph *g, enum op op, const union node_attr *attr, const int *in, int n_in,
               int *out, const char *name, struct err *err)
{
    const struct op_def *def = op_get(op);
    struct node n = {.op = op, .name = name, .n_in = def->n_in, .n_out = def->n_out};
    struct value want[NODE_MAX_OUT];
    int id, rc;

    ASSERT(n_in <= def->n_in);
    for (int i = 0; i < NODE_MAX_IN; i++)
        n.in[i] = i < n_in ? in[i] : NO_VALUE;
    for (int i = 0; i < NODE_MAX_OUT; i++)
        n.out[i] = i >= def->n_out ? NO_VALUE : out ? out[i] : NODE_NEW_OUT;
    if (attr)
        n.attr = *attr;
    rc = op_infer(g, &n, want, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < def->n_out; i++) {
        rc = settle_out(g, &n, i, &want[i], err);
        if (rc < 0)
            return rc;
    }
    id = graph_append(g, &n);
    for (int i = 0; i < def->n_out; i++) {
        if (out)
            out[i] = n.out[i];
        if (n.out[i] != NO_VALUE && !def->update[i])
            g->value[n.out[i]].producer = id;
    }
    return 0;
}

int graph_check_node(const struct graph *g, const struct node *n, struct err *err)
{
    struct value want[NODE_MAX_OUT];
    int rc = op_infer(g, n, want, err);

    for (int i = 0; rc == 0 && i < n->n_out; i++)
        if (n->out[i] != NO_VALUE)
            rc = check_out(g, n, i, &want[i], err);
    return rc;
}
