/* builders_choose - the places of the largest elements of a dimension: argmax, topk, sort, one_hot.
 *
 * Places are counted in I32, since real numbers of half precision hold none above 256.  Of equal
 * elements the first one is chosen.  As in PyTorch a NaN is the largest number; but where the
 * smallest are put in order it comes first, and there last.  The values that topk and sort give
 * have their elements' gradient. */
#include <math.h>

#include "base/util.h"
#include "import/lower_impl.h"

enum {
    CHOOSE_MOST = 128,   /* elements that topk and sort take one after another */
    CHOOSE_PAIRS = 1024, /* whole numbers that are compared with each other */
    CHOOSE_LEAST = 1,    /* kind: the smallest elements are chosen */
};

/* The dimension that is chosen from: the last one of n elements of x. */
struct choose {
    struct lowered x;
    int dim;
    int64_t n;
};

static struct choose choose_begin(struct lower *l, struct lowered x, int dim)
{
    struct choose c = {.dim = dim, .n = x.n > 0 ? extent_exported(l, x.dim[dim]) : 1};

    lower_refuse_batch(l, &x, 1u << dim, "compares elements of");
    if (!lower_failed(l) && (x.n == 0 || c.n < 1 || c.n > INT32_MAX))
        lower_fail(l, ERR_UNSUPPORTED,
                   "it compares %lld elements of %d dimensions, want 1 or more of a dimension",
                   (long long)c.n, x.n);
    if (!lower_failed(l))
        c.x = lower_last(l, x, dim);
    return c;
}

/* 1 where x is as large as the largest of its row; flags `taken` are left out unless NO_VALUE. */
static int choose_top(struct lower *l, int x, int taken)
{
    struct compose *c = &l->c;
    const int last = lower_failed(l) ? 0 : l->m->g->value[x].shape.n - 1;
    int rest = x, most, top;

    if (taken != NO_VALUE)
        rest = compose_where(c, taken, compose_scalar(c, -INFINITY), x);
    most = compose_reduce(c, REDUCE_MAX, rest, 1u << last, 1);
    top = compose_elementwise(c, EW_EQ, rest, most);
    top = compose_elementwise(c, EW_OR, top, compose_elementwise(c, EW_NE, rest, rest));
    return taken == NO_VALUE
               ? top
               : compose_elementwise(c, EW_AND, top, compose_constants(c, EW_NOT, taken, 0, 0));
}

/* Likewise of whole numbers, each of which is compared with each. */
static int choose_top_whole(struct lower *l, const struct choose *of, int least)
{
    struct compose *c = &l->c;
    struct shape s = l->m->g->value[of->x.value].shape, row, column;
    int a, b, y;

    if (of->n > CHOOSE_PAIRS || s.n == SHAPE_MAX_DIMS) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "it compares %lld whole numbers of the samples, want %d at most; make them "
                   "real numbers first",
                   (long long)of->n, CHOOSE_PAIRS);
        return NO_VALUE;
    }
    row = column = s;
    row.n = column.n = s.n + 1;
    row.dim[s.n - 1] = column.dim[s.n] = 1;
    row.dim[s.n] = of->n;
    a = compose_reshape(c, of->x.value, row);
    b = compose_reshape(c, of->x.value, column);
    row.dim[s.n - 1] = of->n;
    a = compose_expand(c, a, row);
    b = compose_expand(c, b, row);
    y = compose_integers(c, INTEGERS_SUB, least ? b : a, least ? a : b, 0);
    y = compose_compare(c, EW_GT, y, 0); /* 1: the one of the row is larger */
    y = compose_reduce(c, REDUCE_MAX, y, 1u << s.n, 0);
    return compose_constants(c, EW_NOT, y, 0, 0);
}

/* The place of the first flag in each row, [..,1] of I32; *first: 1 there alone. */
static int choose_first(struct lower *l, int flags, int64_t n, int *first)
{
    struct compose *c = &l->c;
    const int last = lower_failed(l) ? 0 : l->m->g->value[flags].shape.n - 1;
    int count = compose_cast(c, flags, DTYPE_I32), before;

    count = compose_integers(c, INTEGERS_PREFIX, count, NO_VALUE, 0);
    *first = compose_elementwise(c, EW_AND, flags, compose_compare(c, EW_EQ, count, 1));
    before = compose_cast(c, compose_compare(c, EW_EQ, count, 0), DTYPE_I32);
    before = compose_integers(c, INTEGERS_PREFIX, before, NO_VALUE, 0);
    before = compose_slice(c, before, last, n - 1, n, 1);
    return compose_integers(c, INTEGERS_MIN, before, NO_VALUE, (int32_t)(n - 1));
}

/* Values one behind the other along the last dimension, in groups that a node can join. */
static int choose_join(struct compose *c, const int *id, int n)
{
    const int most = (n + NODE_MAX_IN - 1) / NODE_MAX_IN;
    int part[NODE_MAX_IN], k = 0;

    if (n == 1)
        return id[0];
    for (int i = 0; i < n; i += most)
        part[k++] = choose_join(c, id + i, most < n - i ? most : n - i);
    return compose_concat(c, part, k, -1);
}

/* Output i: `value`, which has n elements where the choice was made. */
static void choose_set(struct lower *l, int i, const struct choose *of, int value, int64_t n,
                       int keep)
{
    struct lowered y = lower_with(of->x, value);

    if (lower_failed(l))
        return;
    y.dim[of->dim] = extent_of(n);
    if (l->m->g->value[value].dtype == DTYPE_I32)
        y = lower_bounded(y, 0, of->n - 1);
    lower_set(l, i, keep ? y : lower_squeeze(l, y, 1u << of->dim));
}

/* ---- one element ---- */

static int choose_is_whole(const struct lower *l, const struct choose *of)
{
    return !lower_failed(l) && l->m->g->value[of->x.value].dtype == DTYPE_I32;
}

/* The place of the largest element, [..,1]. */
static int choose_one(struct lower *l, const struct choose *of, int least)
{
    int x, first;

    if (lower_failed(l))
        return NO_VALUE;
    if (choose_is_whole(l, of))
        return choose_first(l, choose_top_whole(l, of, least), of->n, &first);
    x = least ? compose_constants(&l->c, EW_NEG, of->x.value, 0, 0) : of->x.value;
    return choose_first(l, choose_top(l, x, NO_VALUE), of->n, &first);
}

void lower_set_place(struct lower *l, int i, struct lowered x, int dim, int least)
{
    const struct choose of = choose_begin(l, x, dim);

    choose_set(l, i, &of, choose_one(l, &of, least), 1, (int)lower_int(l, "keepdim", 2, 0));
}

static void builders_arg(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, "self", 0);

    if (!lower_failed(l) && !lower_arg(l, "dim", 1))
        lower_fail(l, ERR_UNSUPPORTED,
                   "it has no dim, and would choose among all samples; want a dim");
    if (!lower_failed(l))
        lower_set_place(l, 0, x, lower_dim(l, "dim", 1, x.n, 0), kind == CHOOSE_LEAST);
}

/* ---- several ---- */

/* The k first of the order: outputs out[0] of their values, if it is no -1, and out[1] of places.
 */
static void choose_order(struct lower *l, const struct choose *of, int64_t k, int least,
                         const int out[2])
{
    struct compose *c = &l->c;
    int value[CHOOSE_MOST], place[CHOOSE_MOST], taken = NO_VALUE, first, x;
    const int last = of->x.n - 1;

    if (k < 1 || k > CHOOSE_MOST || k > of->n)
        lower_fail(l, ERR_UNSUPPORTED,
                   "it takes %lld elements of %lld in their order, want 1 to %d of them",
                   (long long)k, (long long)of->n, CHOOSE_MOST);
    if (choose_is_whole(l, of))
        lower_fail(l, ERR_UNSUPPORTED,
                   "it orders whole numbers of the samples; make them real numbers first");
    if (lower_failed(l))
        return;
    x = least ? compose_constants(c, EW_NEG, of->x.value, 0, 0) : of->x.value;
    for (int i = 0; i < k && !lower_failed(l); i++) {
        place[i] = choose_first(l, choose_top(l, x, taken), of->n, &first);
        value[i] = compose_where(c, first, of->x.value, compose_scalar(c, 0));
        value[i] = compose_reduce(c, REDUCE_SUM, value[i], 1u << last, 1);
        taken = taken == NO_VALUE ? first : compose_elementwise(c, EW_OR, taken, first);
    }
    if (lower_failed(l))
        return;
    if (out[0] >= 0)
        choose_set(l, out[0], of, choose_join(c, value, (int)k), k, 1);
    choose_set(l, out[1], of, choose_join(c, place, (int)k), k, 1);
}

static void builders_topk(struct lower *l, int kind)
{
    const struct lowered x = lower_real_value(l, lower_in(l, "self", 0));
    const struct choose of = choose_begin(l, x, lower_dim(l, "dim", 2, x.n, -1));

    (void)kind;
    choose_order(l, &of, lower_int(l, "k", 1, 1), !lower_int(l, "largest", 3, 1),
                 (const int[]){0, 1});
}

enum { CHOOSE_SORT, CHOOSE_STABLE, CHOOSE_PLACES, CHOOSE_STABLE_PLACES };

/* sort, and argsort, which has places alone; dim stands behind `stable` where there is one. */
static void builders_sort(struct lower *l, int kind)
{
    const int at = kind == CHOOSE_STABLE || kind == CHOOSE_STABLE_PLACES ? 2 : 1;
    const struct lowered x = lower_real_value(l, lower_in(l, "self", 0));
    const struct choose of = choose_begin(l, x, lower_dim(l, "dim", at, x.n, -1));

    choose_order(l, &of, of.n, !lower_int(l, "descending", at + 1, 0),
                 kind >= CHOOSE_PLACES ? (const int[]){-1, 0} : (const int[]){0, 1});
}

/* ---- one_hot ---- */

static void builders_one_hot(struct lower *l, int kind)
{
    const struct import_value *to = &l->net->value[l->node->out[0]];
    struct lowered x = lower_whole(l, lower_in(l, "self", 0), IMPORT_I64), places, y;
    const int64_t n = to->n_dims > 0 ? to->dim[to->n_dims - 1] : 0;
    int32_t *at;

    (void)kind;
    if (!lower_failed(l) && (n < 1 || n > INT32_MAX || to->n_dims != x.n + 1))
        lower_fail(l, ERR_CONFIG, "it makes %lld classes, want 1 or more", (long long)n);
    if (lower_failed(l) || !compose_has_room(&l->c, n, 1))
        return;
    at = arena_alloc(&l->arena, (size_t)n * sizeof *at);
    for (int64_t i = 0; i < n; i++)
        at[i] = (int32_t)i;
    places = lower_plain_value(l, graph_const(l->m->g, DTYPE_I32, SHAPE(n), at, "classes"), 1,
                               (struct extent[]){extent_of(n)});
    x = lower_unsqueeze(l, x, x.n);
    y = lower_failed(l) ? x : lower_integers_of(l, INTEGERS_SUB, x, places);
    if (!lower_failed(l))
        lower_set(
            l, 0,
            lower_whole(l, lower_with(y, compose_compare(&l->c, EW_EQ, y.value, 0)), IMPORT_BOOL));
}

const struct import_builder import_choose[] = {
    {"argmax.default", builders_arg, 0},
    {"argmin.default", builders_arg, CHOOSE_LEAST},
    {"topk.default", builders_topk, 0},
    {"sort.default", builders_sort, CHOOSE_SORT},
    {"sort.stable", builders_sort, CHOOSE_STABLE},
    {"argsort.default", builders_sort, CHOOSE_PLACES},
    {"argsort.stable", builders_sort, CHOOSE_STABLE_PLACES},
    {"one_hot.default", builders_one_hot, 0},
    {0},
};
