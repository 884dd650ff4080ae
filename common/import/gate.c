/* gate - what hostile files must not reach, and what wrong builders must not pass on.
 *
 * Before a builder runs, its node must have the output that builders read types and extents from.
 * After it has run, each output must be what the file says that it was at export: its shape with
 * the batch of the export, and its type.  The graph value must have these extents, too, with the
 * batch of the graph.  An operator that is lowered wrongly is thus refused by its node's name. */
#include <string.h>

#include "base/util.h"
#include "import/lower_impl.h"

static int gate_starts(const char *target, const char *with)
{
    return !strncmp(target, with, strlen(with));
}

/* An operator in place gives all names of its first argument the new value: of the same shape. */
static void gate_in_place(struct lower *l)
{
    const int from = lower_value_of(l, "self", 0), to = l->node->out[0];
    const struct import_value *v = l->net->value;

    if (fold_is_in_place(l->node->target) && from != IMPORT_NO_VALUE &&
        (v[from].n_dims != v[to].n_dims ||
         memcmp(v[from].dim, v[to].dim, (size_t)v[to].n_dims * sizeof *v->dim) != 0))
        lower_fail(l, ERR_CORRUPT, "it changes %s in place, but its output %s has another shape",
                   v[from].name, v[to].name);
}

void lower_gate(struct lower *l)
{
    const struct import_node *n = l->node;

    if (gate_starts(n->target, "_assert") || gate_starts(n->target, "sym_constrain") ||
        lower_failed(l)) /* these have no output */
        return;
    if (n->n_out < 1 || n->out[0] == IMPORT_NO_VALUE)
        lower_fail(l, ERR_CORRUPT, "it has no output; the network is damaged: export it again");
    else if (l->net->value[n->out[0]].is_int && !gate_starts(n->target, "sym_") &&
             !gate_starts(n->target, "_operator."))
        lower_fail(l, ERR_CORRUPT, "its output %s is an integer, want a tensor",
                   l->net->value[n->out[0]].name);
    else
        gate_in_place(l);
}

/* ---- outputs ---- */

static void gate_fail_shape(struct lower *l, const struct lowered *x, const struct import_value *v)
{
    struct shape seen = {.n = x->n}, want = {.n = v->n_dims};
    char text[2][SHAPE_TEXT_LEN];

    for (int d = 0; d < x->n; d++)
        seen.dim[d] = extent_exported(l, x->dim[d]);
    memcpy(want.dim, v->dim, sizeof want.dim);
    lower_fail(l, ERR_UNSUPPORTED, "its output %s comes out as %s, but was %s at export", v->name,
               shape_text(&seen, text[0]), shape_text(&want, text[1]));
}

/* The extents of the graph value, in the order `at`, are those of x. */
static void gate_graph_value(struct lower *l, const struct lowered *x, const char *name)
{
    const struct value *v = &l->m->g->value[x->value];
    char text[SHAPE_TEXT_LEN];
    unsigned seen = 0;
    int fits = v->shape.n == x->n;

    for (int d = 0; d < x->n && fits; d++) {
        const int at = x->at[d];
        const int64_t want = x->repeats >> d & 1 ? 1 : extent_size(l, x->dim[d]);

        fits = at >= 0 && at < x->n && !(seen >> at & 1) && v->shape.dim[at] == want;
        seen |= fits ? 1u << at : 0;
    }
    if (!fits)
        lower_fail(l, ERR_UNSUPPORTED,
                   "its output %s is %s in the graph, which is not its shape in PyTorch", name,
                   shape_text(&v->shape, text));
}

/* Reals and booleans are F32; integers may be I32, or F32 where arithmetic made them. */
static void gate_type(struct lower *l, const struct lowered *x, const struct import_value *v)
{
    const enum dtype dtype = l->m->g->value[x->value].dtype;
    const int is_integer = v->type >= IMPORT_I64 && v->type <= IMPORT_U8;

    if (dtype != DTYPE_F32 && !(is_integer && dtype == DTYPE_I32))
        lower_fail(l, ERR_UNSUPPORTED, "its output %s comes out as %s, but was %s at export",
                   v->name, dtype_name(dtype), import_type_name(v->type));
}

static void gate_output(struct lower *l, int out)
{
    const struct lowered *x = &l->value[out];
    const struct import_value *v = &l->net->value[out];
    int fits = x->n == v->n_dims;

    if (x->kind == LOWERED_NONE || x->kind == LOWERED_NEXT || lower_failed(l))
        return; /* one that is not built: reading it fails, or a copy into its buffer takes it */
    if (v->is_int != (x->kind == LOWERED_INT)) {
        lower_fail(l, ERR_CORRUPT, "its output %s is %s, against what the file says", v->name,
                   v->is_int ? "a tensor" : "an integer");
        return;
    }
    if (v->is_int)
        return;
    for (int d = 0; d < x->n && fits; d++)
        fits = extent_exported(l, x->dim[d]) == v->dim[d];
    if (!fits)
        gate_fail_shape(l, x, v);
    if (x->kind != LOWERED_VALUE || lower_failed(l))
        return;
    gate_graph_value(l, x, v->name);
    gate_type(l, x, v);
}

void lower_net(struct lower *l)
{
    for (int i = 0; i < l->node->n_out && !lower_failed(l); i++)
        if (l->node->out[i] != IMPORT_NO_VALUE)
            gate_output(l, l->node->out[i]);
}

/* ---- operands ---- */

int lower_have_ranks(struct lower *l, const struct lowered *a, int n_a, const struct lowered *b,
                     int n_b)
{
    if (!lower_failed(l) && (a->n < 1 || b->n < 1 || (n_a && a->n != n_a) || (n_b && b->n != n_b)))
        lower_fail(l, ERR_CONFIG, "its operands have %d and %d dimensions, want %d and %d%s", a->n,
                   b->n, n_a ? n_a : 1, n_b ? n_b : 1, n_a ? "" : " or more");
    return !lower_failed(l);
}

unsigned lower_dims(struct lower *l, int place, int n)
{
    int64_t dim[SHAPE_MAX_DIMS];
    const int count = lower_ints(l, "dim", place, dim, SHAPE_MAX_DIMS);
    unsigned bits = 0;

    for (int i = 0; i < count; i++) {
        const int64_t d = dim[i] < 0 ? dim[i] + n : dim[i];

        if (d < 0 || d >= n)
            lower_fail(l, ERR_CONFIG, "dim is %lld of %d", (long long)dim[i], n);
        else
            bits |= 1u << d;
    }
    return count ? bits : (1u << n) - 1;
}

int lower_normalized(struct lower *l, const struct lowered *x, int64_t *n)
{
    int64_t shape[SHAPE_MAX_DIMS];
    const int k = lower_ints(l, "normalized_shape", 1, shape, SHAPE_MAX_DIMS);

    *n = 1;
    if (!lower_failed(l) && (k < 1 || k > x->n))
        lower_fail(l, ERR_CONFIG, "it normalises %d dimensions of %d", k, x->n);
    for (int d = 0; d < k && !lower_failed(l); d++) {
        const int64_t extent = extent_exported(l, x->dim[x->n - k + d]);

        if (extent != shape[d])
            lower_fail(l, ERR_CONFIG, "it normalises %lld elements of dimension %d, which has %lld",
                       (long long)shape[d], x->n - k + d, (long long)extent);
        *n *= extent;
    }
    return k;
}
