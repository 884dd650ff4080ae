/* recognise - products and sums that end a formula which is one operator here: an RMS norm written
 * out, its weight, the gelus, and silu; the rows of tokens plus those of their positions.
 *
 * The nodes of the formula stay; those that nobody reads are dropped later (program/prune.c). */
#include <math.h>
#include <string.h>

#include "import/lower_impl.h"

static const struct node *recognise_node(const struct lower *l, int value, enum op op)
{
    const int k = value == NO_VALUE || l->m->g->value[value].is_detached
                      ? -1
                      : l->m->g->value[value].producer;

    return k >= 0 && l->m->g->node[k].op == (int)op ? &l->m->g->node[k] : NULL;
}

/* The operand of an elementwise function, which is `value`; NO_VALUE: it is another one. */
static int recognise_under(const struct lower *l, int value, enum elementwise kind, float *p,
                           float *q)
{
    const struct node *n = recognise_node(l, value, OP_elementwise);

    if (!n || n->attr.elementwise.kind != kind)
        return NO_VALUE;
    *p = n->attr.elementwise.p;
    *q = n->attr.elementwise.q;
    return n->in[0];
}

/* The x of p x + q. */
static int recognise_affine(const struct lower *l, int value, double p, double q)
{
    float seen[2] = {0};
    const int x = recognise_under(l, value, EW_AFFINE, &seen[0], &seen[1]);

    return fabs((double)seen[0] - p) <= 1e-6 * fabs(p) &&
                   fabs((double)seen[1] - q) <= 1e-6 * fabs(q)
               ? x
               : NO_VALUE;
}

static int recognise_is_last(const struct lowered *x)
{
    return x->kind == LOWERED_VALUE && !x->repeats && x->n > 0 && x->at[x->n - 1] == x->n - 1;
}

/* 1: both have their dimensions in one order, so equal graph values are equal tensors. */
static int recognise_are_alike(const struct lowered *a, const struct lowered *b)
{
    return a->kind == LOWERED_VALUE && b->kind == LOWERED_VALUE && a->n == b->n &&
           !memcmp(a->at, b->at, (size_t)a->n * sizeof *a->at);
}

/* x * rsqrt(mean(x^2) + eps) over the last dimension. */
static int recognise_rms(struct lower *l, const struct lowered *x, const struct lowered *r,
                         struct lowered *y)
{
    float p = 0, eps = 0, none;
    const struct node *mean;
    int sum;

    if (!recognise_is_last(x) || !recognise_are_alike(x, r))
        return 0;
    sum = recognise_under(l, r->value, EW_RSQRT, &none, &none);
    mean = recognise_node(l, recognise_under(l, sum, EW_AFFINE, &p, &eps), OP_reduce);
    if (!mean || p != 1 || eps < 0 || mean->attr.reduce.kind != REDUCE_MEAN ||
        mean->attr.reduce.axes != 1u << (x->n - 1) || !mean->attr.reduce.keep ||
        recognise_under(l, mean->in[0], EW_SQUARE, &none, &none) != x->value)
        return 0;
    *y = lower_with(*x, compose_rms_norm(&l->c, x->value, NO_VALUE, (double)eps, 0));
    return 1;
}

/* An RMS norm times its weight [C], or times 1 + weight. */
static int recognise_rms_weight(struct lower *l, const struct lowered *x, const struct lowered *w,
                                struct lowered *y)
{
    const struct node *norm =
        recognise_is_last(x) ? recognise_node(l, x->value, OP_rms_norm) : NULL;
    int weight = NO_VALUE;

    if (!norm || norm->in[RMS_NORM_WEIGHT] != NO_VALUE || w->kind != LOWERED_VALUE || w->n != 1 ||
        w->repeats || l->m->g->value[w->value].shape.dim[0] != extent_size(l, x->dim[x->n - 1]))
        return 0;
    weight = recognise_affine(l, w->value, 1, 1);
    *y = lower_with(*x, compose_rms_norm(&l->c, norm->in[RMS_NORM_X],
                                         weight == NO_VALUE ? w->value : weight,
                                         (double)norm->attr.norm.eps, weight != NO_VALUE));
    return 1;
}

/* The x of x + 0.044715 x^3. */
static int recognise_cubic(const struct lower *l, int value)
{
    const struct node *sum = recognise_node(l, value, OP_add);

    for (int i = 0; sum && i < 2; i++) {
        float p = 0, none;
        const int cube = recognise_affine(l, sum->in[1 - i], 0.044715, 0);

        if (recognise_under(l, cube, EW_POWER, &p, &none) == sum->in[i] && p == 3)
            return sum->in[i];
    }
    return NO_VALUE;
}

/* x / 2 times 1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)), or times 1 + erf(x / sqrt(2)). */
static int recognise_gelu(struct lower *l, const struct lowered *half, const struct lowered *gate,
                          struct lowered *y)
{
    float none;
    int x, inner;
    const struct node *tanh;

    if (!recognise_are_alike(half, gate))
        return 0;
    x = recognise_affine(l, half->value, 0.5, 0);
    inner = recognise_affine(l, gate->value, 1, 1);
    if (x == NO_VALUE || inner == NO_VALUE)
        return 0;
    tanh = recognise_node(l, inner, OP_activation);
    if (tanh && tanh->attr.act.kind == ACT_TANH &&
        recognise_cubic(l, recognise_affine(l, tanh->in[0], sqrt(2 / M_PI), 0)) == x) {
        *y = lower_with(*half, compose_activation(&l->c, ACT_GELU_TANH, x));
        return 1;
    }
    if (recognise_affine(l, recognise_under(l, inner, EW_ERF, &none, &none), sqrt(0.5), 0) != x)
        return 0;
    *y = lower_with(*half, compose_activation(&l->c, ACT_GELU, x));
    return 1;
}

/* x sigmoid(x) */
static int recognise_silu(struct lower *l, const struct lowered *x, const struct lowered *gate,
                          struct lowered *y)
{
    const struct node *n =
        recognise_are_alike(x, gate) ? recognise_node(l, gate->value, OP_activation) : NULL;

    if (!n || n->attr.act.kind != ACT_SIGMOID || n->in[0] != x->value || x->repeats)
        return 0;
    *y = lower_with(*x, compose_activation(&l->c, ACT_SILU, x->value));
    return 1;
}

int lower_recognise(struct lower *l, const struct lowered *a, const struct lowered *b,
                    struct lowered *y)
{
    static int (*const form[])(struct lower *, const struct lowered *, const struct lowered *,
                               struct lowered *) = {recognise_rms, recognise_rms_weight,
                                                    recognise_gelu, recognise_silu};

    for (size_t i = 0; i < sizeof form / sizeof *form; i++)
        if (form[i](l, a, b, y) || form[i](l, b, a, y))
            return 1;
    return 0;
}

/* ---- sums ---- */

/* The embedding whose rows x is, all of its dimensions in order: [..,T,C]. */
static const struct node *recognise_lookup(const struct lower *l, const struct lowered *x)
{
    const struct node *view, *n;

    if (x->kind != LOWERED_VALUE || x->n < 2 || x->at[x->n - 1] != x->n - 1 ||
        x->at[x->n - 2] != x->n - 2 || x->repeats >> (x->n - 2))
        return NULL;
    view = recognise_node(l, x->value, OP_reshape);
    n = recognise_node(l, view ? view->in[0] : x->value, OP_embedding);
    return n && n->in[EMBEDDING_POSITION] == NO_VALUE ? n : NULL;
}

/* 1: the constant `index` is 0, 1, ... n - 1. */
static int recognise_counts(const struct lower *l, int index, int64_t n)
{
    const struct value *v = &l->m->g->value[index];
    const int32_t *element = v->content;

    if (v->role != VALUE_CONST || v->dtype != DTYPE_I32 || shape_elements(&v->shape) != n)
        return 0;
    for (int64_t i = 0; i < n; i++)
        if (element[i] != i)
            return 0;
    return 1;
}

/* 1: p is [T,C], or [1,T,C], of the graph and of the file, neither of them the batch. */
static int recognise_is_along(const struct lower *l, const struct lowered *p, int64_t length,
                              int64_t width)
{
    const struct shape *s = &l->m->g->value[p->value].shape;

    if (s->n != p->n || p->dim[p->n - 2].is_batch || p->dim[p->n - 1].is_batch)
        return 0;
    for (int d = 0; d < s->n - 2; d++)
        if (s->dim[d] != 1)
            return 0;
    return s->dim[s->n - 2] == length && s->dim[s->n - 1] == width &&
           extent_exported(l, p->dim[p->n - 2]) == length;
}

/* Rows of tokens [N,T,C] plus the first T rows of another table, in each of packed documents. */
static int recognise_positions(struct lower *l, const struct lowered *x, const struct lowered *p,
                               struct lowered *y)
{
    const struct node *of = recognise_lookup(l, x), *at = recognise_lookup(l, p);
    const struct graph *g = l->m->g;
    const struct shape *s = of && at ? &g->value[x->value].shape : NULL;
    const struct shape *t = s ? &g->value[of->in[EMBEDDING_TOKENS]].shape : NULL;
    struct shape to;
    int in[4], rows;

    if (!s || x->repeats || p->n > x->n || s->n != x->n || at->attr.embedding.padding ||
        g->value[of->in[EMBEDDING_TOKENS]].role == VALUE_CONST || x->dim[x->n - 2].is_batch ||
        !recognise_is_along(l, p, s->dim[s->n - 2], s->dim[s->n - 1]) || t->n != s->n - 1 ||
        t->dim[t->n - 1] != s->dim[s->n - 2] ||
        !recognise_counts(l, at->in[EMBEDDING_TOKENS], s->dim[s->n - 2]))
        return 0;
    to = *s; /* new values move the graph's */
    in[EMBEDDING_TABLE] = of->in[EMBEDDING_TABLE];
    in[EMBEDDING_TOKENS] = of->in[EMBEDDING_TOKENS];
    in[EMBEDDING_POSITION] = at->in[EMBEDDING_TABLE];
    in[EMBEDDING_STARTS] = net_starts(l->m);
    rows = compose_append(&l->c, OP_embedding, &of->attr, in, 4);
    *y = lower_with(*x, compose_reshape(&l->c, rows, to));
    return 1;
}

int lower_recognise_sum(struct lower *l, const struct lowered *a, const struct lowered *b,
                        struct lowered *y)
{
    return recognise_positions(l, a, b, y) || recognise_positions(l, b, a, y);
}
