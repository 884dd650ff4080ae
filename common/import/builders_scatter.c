/* builders_scatter - elements that are put, or added, at places of another tensor: scatter,
 * scatter_add, index_add, index_put.
 *
 * Places of index_put are constants, or a mask says them.  A place that is computed is a flag for
 * each element of the dimension, so the cost is one product with that extent for each element.
 * Where places are equal PyTorch leaves open which element stays; here it is their mean. */
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

/* ---- index_put ---- */

/* The one index of the list, and its dimension; fails if it has others. */
static int put_one_index(struct lower *l, int *dim)
{
    const struct import_arg *a = lower_arg(l, "indices", 1);
    int v = IMPORT_NO_VALUE, n = 0;

    for (int d = 0; a && a->kind == IMPORT_VALUES && d < a->n; d++)
        if (a->values[d] != IMPORT_NO_VALUE) {
            v = a->values[d];
            *dim = d;
            n++;
        }
    if (n != 1)
        lower_fail(l, ERR_UNSUPPORTED,
                   "it writes by %d indices, want one: write part by part, or through a reshape",
                   n);
    return lower_failed(l) ? IMPORT_NO_VALUE : v;
}

/* Where the mask is true x becomes y, which is one number for each element of the mask. */
static void put_mask(struct lower *l, struct lowered x, struct lowered mask, struct lowered y,
                     int dim)
{
    for (int d = mask.n; d < x.n - dim && !lower_failed(l); d++)
        mask = lower_unsqueeze(l, mask, mask.n);
    if (!lower_failed(l) && (dim != 0 || y.n > 0))
        lower_fail(l, ERR_UNSUPPORTED,
                   "it writes %d dimensions of numbers where a mask is true, want one number: "
                   "torch.where takes more",
                   y.n);
    if (lower_failed(l))
        return;
    x = lower_spread(l, x);
    dim = lower_meet(l, (struct lowered *[]){&x, &mask, &y}, 3).n;
    if (!lower_failed(l) && dim == x.n)
        lower_set(l, 0, lower_with(x, compose_where(&l->c, mask.value, y.value, x.value)));
}

/* y as elements of x along dim, n of them. */
static struct lowered put_source(struct lower *l, const struct lowered *x, struct lowered y,
                                 int dim, int64_t n)
{
    y = lower_rank(l, lower_as_real(l, y), x->n);
    for (int d = 0; d < x->n && !lower_failed(l); d++) {
        const struct extent want = d == dim ? extent_of(n) : x->dim[d];

        if (extent_is_one(y.dim[d]) && !extent_is_one(want)) {
            y.dim[d] = want;
            y.repeats |= 1u << d;
        } else if (!extent_equal(y.dim[d], want)) {
            lower_fail(
                l, ERR_UNSUPPORTED, "it writes %lld elements of dimension %d where there are %lld",
                (long long)extent_exported(l, y.dim[d]), d, (long long)extent_exported(l, want));
        }
    }
    return lower_plain(l, y);
}

/* Each element of dimension dim is its own, or that of y which is written there last. */
static void put_places(struct lower *l, struct lowered x, const struct host_tensor *index,
                       struct lowered y, int dim)
{
    const int64_t n = extent_exported(l, x.dim[dim]), k = host_count(index);
    int64_t *at;

    lower_refuse_batch(l, &x, 1u << dim, "writes along");
    if (!lower_failed(l) && (index->n_dims != 1 || host_is_real(index->type)))
        lower_fail(l, ERR_UNSUPPORTED, "its index is %s of %d dimensions, want a list of integers",
                   import_type_name(index->type), index->n_dims);
    x = lower_plain(l, x);
    y = put_source(l, &x, y, dim, k);
    if (lower_failed(l) || !compose_has_room(&l->c, n, 1))
        return;
    at = arena_alloc(&l->arena, (size_t)n * sizeof *at + 1);
    for (int64_t i = 0; i < n; i++)
        at[i] = i;
    for (int64_t i = 0; i < k; i++) {
        const int64_t v = host_integer(index, i), to = v < 0 ? v + n : v;

        if (to < 0 || to >= n)
            lower_fail(l, ERR_CONFIG, "index %lld of an extent of %lld", (long long)v,
                       (long long)n);
        else
            at[to] = n + i;
    }
    if (lower_failed(l))
        return;
    x.value = compose_concat(&l->c, (const int[]){x.value, y.value}, 2, dim);
    lower_set(l, 0, lower_with(x, compose_select_many(&l->c, x.value, dim, at, n)));
}

static void builders_index_put(struct lower *l, int kind)
{
    struct lowered x = lower_real_value(l, lower_in(l, "self", 0)), index,
                   y = lower_in(l, "values", 2);
    int dim = 0;
    const int v = put_one_index(l, &dim);

    (void)kind;
    if (lower_int(l, "accumulate", 3, 0))
        lower_fail(l, ERR_UNSUPPORTED, "it adds up where it writes, want scatter_add");
    if (lower_failed(l))
        return;
    index = lower_at(l, v);
    if (lower_failed(l) || dim >= x.n) {
        lower_fail(l, ERR_CONFIG, "it has an index for dimension %d of %d", dim, x.n);
        return;
    }
    if (l->net->value[v].type == IMPORT_BOOL && index.n > 0)
        put_mask(l, x, index, lower_real_value(l, y), dim);
    else if (lower_host(&index))
        put_places(l, x, lower_host(&index), y, dim);
    else
        lower_fail(l, ERR_UNSUPPORTED,
                   "it writes by an index that is computed, want scatter, or a constant one");
}

/* index_fill, and index_copy (kind 1): elements of dimension dim at constant places. */
static void builders_index_fill(struct lower *l, int kind)
{
    const struct lowered x = lower_real_value(l, lower_in(l, "self", 0)),
                         index = lower_in(l, "index", 2);
    const int dim = lower_dim(l, "dim", 1, x.n, 0);
    struct lowered y = {.kind = LOWERED_VALUE};

    if (lower_failed(l))
        return;
    if (kind)
        y = lower_in(l, "source", 3);
    else
        y.value = compose_scalar(&l->c, lower_real(l, "value", 3, 0));
    if (!kind) /* of no dimension */
        y.value = compose_reshape(&l->c, y.value, (struct shape){0});
    if (lower_host(&index))
        put_places(l, x, lower_host(&index), y, dim);
    else
        lower_fail(l, ERR_UNSUPPORTED,
                   "it writes by an index that is computed, want scatter, or a constant one");
}

const struct import_builder import_scatter[] = {
    {"scatter.src", builders_scatter, SCATTER_SRC},
    {"scatter.value", builders_scatter, SCATTER_VALUE},
    {"scatter_.src", builders_scatter, SCATTER_SRC},
    {"scatter_.value", builders_scatter, SCATTER_VALUE},
    {"index_put.default", builders_index_put, 0},
    {"index_put_.default", builders_index_put, 0},
    {"index_fill.int_Scalar", builders_index_fill, 0},
    {"index_fill_.int_Scalar", builders_index_fill, 0},
    {"index_copy.default", builders_index_fill, 1},
    {"index_copy_.default", builders_index_fill, 1},
    {"scatter_add.default", builders_scatter, SCATTER_ADD},
    {"scatter_add_.default", builders_scatter, SCATTER_ADD},
    {0},
};
