/* builders_products - products that PyTorch has as one operator: outer and bilinear ones.
 *
 * Products of matrices stand in builders_linear.c, sums of products by letters in
 * builders_einsum.c. */
#include "import/lower_impl.h"

/* a [N], b [M] -> [N,M] */
static void builders_outer(struct lower *l, int kind)
{
    struct lowered a = lower_in(l, "self", 0), b = lower_in(l, "vec2", 1);

    (void)kind;
    if (!lower_have_ranks(l, &a, 1, &b, 1))
        return;
    a = lower_unsqueeze(l, a, 1);
    b = lower_unsqueeze(l, b, 0);
    if (!lower_failed(l))
        lower_set(l, 0, lower_binary(l, EW_MUL, a, b));
}

/* Fails unless a [..,I], b [..,J] and w [K,I,J] fit. */
static void bilinear_check(struct lower *l, const struct lowered *a, const struct lowered *b,
                           const struct lowered *w)
{
    int fits = !lower_failed(l) && a->n > 0 && a->n == b->n && w->n == 3;

    for (int d = 0; fits && d < a->n - 1; d++)
        fits = extent_equal(a->dim[d], b->dim[d]);
    fits = fits && extent_equal(w->dim[1], a->dim[a->n - 1]) &&
           extent_equal(w->dim[2], b->dim[b->n - 1]);
    if (!fits)
        lower_fail(l, ERR_CONFIG,
                   "its tensors of %d and %d dimensions and its weight of %d do not fit, want "
                   "[..,I], [..,J] and [K,I,J]; export it again",
                   a->n, b->n, w->n);
    lower_refuse_batch(l, a, 1u << (a->n > 0 ? a->n - 1 : 0), "sums over");
    lower_refuse_batch(l, w, ~0u, "has weights with");
}

/* y[..,k] = sum of a[..,i] w[k,i,j] b[..,j]: the products with a are rows of K * J. */
static void builders_bilinear(struct lower *l, int kind)
{
    struct lowered a = lower_plain(l, lower_in(l, "input1", 0)),
                   b = lower_plain(l, lower_in(l, "input2", 1)),
                   w = lower_plain(l, lower_in(l, "weight", 2)), bias = lower_in(l, "bias", 3);
    struct compose *c = &l->c;
    struct shape s, k;
    int64_t rows;
    int y;

    (void)kind;
    bilinear_check(l, &a, &b, &w);
    if (lower_failed(l))
        return;
    k = l->m->g->value[w.value].shape;
    s = l->m->g->value[a.value].shape;
    rows = 1;
    for (int d = 0; d < s.n - 1; d++)
        rows *= s.dim[d];
    y = compose_reshape(c, compose_permute(c, w.value, (const int[]){0, 2, 1}),
                        SHAPE(k.dim[0] * k.dim[2], k.dim[1]));
    y = compose_matmul(c, compose_reshape(c, a.value, SHAPE(rows, k.dim[1])), y, 0, 1);
    y = compose_reshape(c, y, SHAPE(rows, k.dim[0], k.dim[2]));
    y = compose_elementwise(c, EW_MUL, y, compose_reshape(c, b.value, SHAPE(rows, 1, k.dim[2])));
    y = compose_reduce(c, REDUCE_SUM, y, 1u << 2, 0);
    s.dim[s.n - 1] = k.dim[0];
    y = compose_reshape(c, y, s);
    a.dim[a.n - 1] = extent_of(k.dim[0]);
    if (lower_failed(l))
        return;
    a = lower_plain_value(l, y, a.n, a.dim);
    lower_set(l, 0, bias.kind == LOWERED_NONE ? a : lower_binary(l, EW_ADD, a, bias));
}

const struct import_builder import_products[] = {
    {"outer.default", builders_outer, 0},
    {"ger.default", builders_outer, 0},
    {"bilinear.default", builders_bilinear, 0},
    {0},
};
