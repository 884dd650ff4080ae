/* builders_scatter - elements that are put, or added, at places of another tensor: scatter,
 * scatter_add, index_add, index_put.
 *
 * A place that is computed is a flag for each element of the dimension, so the cost is one product
 * with that extent for each element.  Where places are equal PyTorch leaves open which element
 * stays; here it is their mean. */
#include <string.h>

#include "base/util.h"
#include "import/lower_impl.h"

enum { SCATTER_SRC, SCATTER_VALUE, SCATTER_ADD };

/* Fails unless the index is one of x without dimension dim, in the same samples. */
static void scatter_check(struct lower *l, const struct lowered *x, const struct lowered *index,
                          const struct lowered *src, int dim)
{
    int fits = !lower_failed(l) && x->n == index->n && x->n > 0 && x->n < SHAPE_MAX_DIMS;

    for (int d = 0; fits && d < x->n; d++)
        fits = (d == dim || extent_equal(x->dim[d], index->dim[d])) &&
               (!src || extent_equal(src->dim[d], index->dim[d]));
    if (!fits)
        lower_fail(l, ERR_UNSUPPORTED,
                   "its tensor has %d dimensions and its index %d, want as many, of the same "
                   "extents but for dimension %d, and as many elements to put there",
                   x->n, index->n, dim);
}

/* Flags [..,K,n] for the index [..,K], both along the last dimension. */
static int scatter_flags(struct lower *l, struct lowered index, int64_t n)
{
    struct lowered places = {0}, y;
    int32_t *at;

    if (lower_failed(l) || !compose_has_room(&l->c, n, 1))
        return NO_VALUE;
    at = arena_alloc(&l->arena, (size_t)n * sizeof *at + 1);
    for (int64_t i = 0; i < n; i++)
        at[i] = (int32_t)i;
    places = lower_plain_value(l, graph_const(l->m->g, DTYPE_I32, SHAPE(n), at, "places"), 1,
                               (struct extent[]){extent_of(n)});
    index = lower_unsqueeze(l, index, index.n);
    y = lower_failed(l) ? index : lower_integers_of(l, INTEGERS_SUB, index, places);
    return lower_failed(l) ? NO_VALUE : compose_compare(&l->c, EW_EQ, y.value, 0);
}

/* x, index and src with dimension `dim` as the last one, in one order. */
static struct lowered scatter_turned(struct lower *l, struct lowered x, int dim)
{
    int order[SHAPE_MAX_DIMS], n = 0;

    for (int d = 0; d < x.n; d++)
        if (d != dim)
            order[n++] = d;
    order[n] = dim;
    return lower_plain(l, lower_permute(x, order));
}

static void builders_scatter(struct lower *l, int kind)
{
    struct lowered x = lower_plain(l, lower_in(l, "self", 0)), src = {0},
                   index = lower_whole(l, lower_in(l, "index", 2), IMPORT_I64);
    const int dim = lower_dim(l, "dim", 1, x.n, 0);
    const double value = lower_real(l, "value", 3, 0);
    struct compose *c = &l->c;
    int order[SHAPE_MAX_DIMS], flags, sum, count, y;

    if (kind != SCATTER_VALUE)
        src = lower_plain(l, lower_in(l, "src", 3));
    index = lower_plain(l, index);
    scatter_check(l, &x, &index, kind == SCATTER_VALUE ? NULL : &src, dim);
    lower_refuse_batch(l, &x, 1u << dim, "puts elements along");
    if (lower_failed(l))
        return;
    x = scatter_turned(l, x, dim);
    index = scatter_turned(l, index, dim);
    flags = scatter_flags(l, index, extent_exported(l, x.dim[x.n - 1]));
    if (lower_failed(l))
        return;
    if (kind == SCATTER_VALUE) {
        sum = compose_scalar(c, value);
    } else {
        src = lower_unsqueeze(l, scatter_turned(l, src, dim), x.n);
        sum = lower_failed(l) ? NO_VALUE : compose_where(c, flags, src.value, compose_scalar(c, 0));
        sum = compose_reduce(c, REDUCE_SUM, sum, 1u << (x.n - 1), 0);
    }
    if (kind == SCATTER_ADD) {
        y = compose_elementwise(c, EW_ADD, x.value, sum);
    } else {
        count = compose_reduce(c, REDUCE_SUM, flags, 1u << (x.n - 1), 0);
        if (kind == SCATTER_SRC)
            sum = compose_elementwise(c, EW_DIV, sum,
                                      compose_constants(c, EW_CLIP, count, 1, 0x1p24F));
        y = compose_where(c, count, sum, x.value);
    }
    if (lower_failed(l))
        return;
    for (int d = 0; d < x.n; d++)
        order[d] = d < dim ? d : d == dim ? x.n - 1 : d - 1;
    lower_set(l, 0, lower_permute(lower_plain_value(l, y, x.n, x.dim), order));
}

const struct import_builder import_scatter[] = {
    {"scatter.src", builders_scatter, SCATTER_SRC},
    {"scatter.value", builders_scatter, SCATTER_VALUE},
    {"scatter_.src", builders_scatter, SCATTER_SRC},
    {"scatter_.value", builders_scatter, SCATTER_VALUE},
    {"scatter_add.default", builders_scatter, SCATTER_ADD},
    {"scatter_add_.default", builders_scatter, SCATTER_ADD},
    {0},
};
