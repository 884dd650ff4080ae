/* builders_index - elements by number: one index that may be computed, several constant ones, and
 * gather. */
#include "import/lower_impl.h"

/* Whole numbers are gathered as real ones: fails unless they are constants that every precision
 * has. */
static void index_check_whole(struct lower *l, const struct lowered *x)
{
    enum { MOST = 256 };
    const struct host_tensor *t = lower_host(x);
    const int64_t n = t ? host_count(t) : 0;
    int fits = t != NULL;

    for (int64_t i = 0; i < n && fits; i++)
        fits = host_integer(t, i) >= -MOST && host_integer(t, i) <= MOST;
    if (!fits)
        lower_fail(l, ERR_UNSUPPORTED,
                   "it picks whole numbers by an index that is computed, want constants from "
                   "%d to %d",
                   -MOST, MOST);
}

/* x with one index, `from`, whose dimensions stand where dimension `at` stood. */
static void builders_index_one(struct lower *l, struct lowered x, int at, int from)
{
    const int is_whole = lower_is_whole(l->net->value[l->node->out[0]].type);
    struct lowered index, y;
    struct extent dim[SHAPE_MAX_DIMS];
    int order[SHAPE_MAX_DIMS], n = 0;

    if (x.dim[at].is_batch) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "it picks elements of dimension %d, the batch: samples would depend on each "
                   "other",
                   at);
        return;
    }
    if (is_whole)
        index_check_whole(l, &x);
    if (lower_failed(l))
        return;
    for (int d = 0; d < x.n; d++)
        order[d] = d == 0 ? at : d <= at ? d - 1 : d;
    x = lower_plain(l, lower_permute(x, order));
    index = lower_at(l, from);
    if (!lower_failed(l) && index.kind == LOWERED_VALUE && l->net->value[from].type == IMPORT_BOOL)
        lower_fail(l, ERR_UNSUPPORTED, "its mask is no constant: the result has no fixed shape");
    index = lower_plain(l, lower_pick_value(l, index, extent_exported(l, x.dim[0])));
    if (!lower_failed(l) && index.n + x.n - 1 > SHAPE_MAX_DIMS)
        lower_fail(l, ERR_UNSUPPORTED,
                   "it makes more than %d dimensions: join some of them by a reshape before",
                   SHAPE_MAX_DIMS);
    if (lower_failed(l))
        return;
    for (int d = 0; d < index.n; d++)
        dim[n++] = index.dim[d];
    for (int d = 1; d < x.n; d++)
        dim[n++] = x.dim[d];
    y = lower_plain_value(l, compose_lookup(&l->c, x.value, index.value, -1), n, dim);
    for (int d = 0; d < n; d++)
        order[d] = d < at ? index.n + d : d < at + index.n ? d - at : d;
    if (lower_failed(l))
        return;
    y = lower_permute(y, order);
    lower_set(l, 0, is_whole ? lower_whole(l, y, IMPORT_I64) : y);
}

/* An index of several that is a constant: the dimension of the result along which its elements
 * differ, and these. */
struct index_line {
    int along; /* -1: it is one element */
    int64_t n, *at;
};

/* The constant as elements of an extent, along dimension `along` of `rank`. */
static struct index_line index_line_of(struct lower *l, const struct host_tensor *t, int rank,
                                       int64_t extent)
{
    struct index_line y = {.along = -1, .n = 1};

    for (int d = 0; d < t->n_dims; d++) {
        if (t->dim[d] == 1)
            continue;
        if (y.along >= 0)
            lower_fail(l, ERR_UNSUPPORTED,
                       "it has several indices, of which one differs along two dimensions");
        y.along = rank - t->n_dims + d;
        y.n = t->dim[d];
    }
    if (lower_failed(l) || !compose_has_room(&l->c, y.n, 1))
        return y;
    y.at = arena_alloc(&l->arena, (size_t)y.n * sizeof *y.at + 1);
    for (int64_t i = 0; i < y.n && !lower_failed(l); i++) {
        const int64_t v = host_integer(t, i);

        y.at[i] = v < 0 ? v + extent : v;
        if (y.at[i] < 0 || y.at[i] >= extent)
            lower_fail(l, ERR_CONFIG, "index %lld of an extent of %lld", (long long)v,
                       (long long)extent);
    }
    return y;
}

/* x with the elements of the line along dimension dim; along the batch all of them, in order. */
static struct lowered index_take(struct lower *l, struct lowered x, int dim,
                                 const struct index_line *line)
{
    int is_all = line->n == extent_exported(l, x.dim[dim]);

    for (int64_t i = 0; i < line->n && is_all; i++)
        is_all = line->at[i] == i;
    if (is_all)
        return x;
    if (x.dim[dim].is_batch) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "it picks elements of dimension %d, the batch: samples would depend on each "
                   "other",
                   dim);
        return x;
    }
    x.value = compose_select_many(&l->c, x.value, x.at[dim], line->at, line->n);
    x.dim[dim] = extent_of(line->n);
    return x;
}

/* The dimensions first .. first + n of x, the ones that the lines picked, as `rank` dimensions in
 * the places of the lines. */
static struct lowered index_place(struct lower *l, struct lowered x, int first, int n,
                                  const struct index_line *line, int rank)
{
    int order[SHAPE_MAX_DIMS], of[SHAPE_MAX_DIMS], n_of = 0, at = 0;

    for (int d = 0; d < rank; d++) {
        of[d] = -1;
        for (int k = 0; k < n; k++)
            if (line[k].along == d && of[d] >= 0)
                lower_fail(l, ERR_UNSUPPORTED,
                           "it has several indices, of which two differ along dimension %d", d);
            else if (line[k].along == d)
                of[d] = k;
    }
    for (int d = 0; d < x.n; d++)
        if (d < first || d >= first + n)
            order[at++] = d;
        else if (d == first)
            for (int r = 0; r < rank + n; r++)
                if (r < rank ? of[r] >= 0 : line[r - rank].along < 0)
                    order[at++] = first + (r < rank ? of[r] : r - rank);
    if (lower_failed(l))
        return x;
    for (int d = 0; d < rank; d++)
        n_of += of[d] >= 0;
    x = lower_permute(x, order);
    x = lower_squeeze(l, x, ((1u << (n - n_of)) - 1) << (first + n_of));
    for (int d = 0; d < rank && !lower_failed(l); d++)
        if (of[d] < 0)
            x = lower_unsqueeze(l, x, first + d);
    return x;
}

/* x with n constant indices, for its dimensions first .. first + n, each of which differs along a
 * dimension of its own: masks are read so, [samples, 1, 1, 1] and [1, 1, 1, keys]. */
static void builders_index_grid(struct lower *l, struct lowered x, int first, int n,
                                const int *from)
{
    struct index_line line[SHAPE_MAX_DIMS];
    int rank = 0;

    for (int k = 0; k < n && !lower_failed(l); k++) {
        const struct lowered index = lower_at(l, from[k]);
        const struct host_tensor *t = lower_host(&index);

        if (!lower_failed(l) && (!t || host_is_real(t->type) || t->type == IMPORT_BOOL))
            lower_fail(l, ERR_UNSUPPORTED,
                       "it has several indices, of which number %d is no constant of integers", k);
        else if (!lower_failed(l) && t->n_dims > rank)
            rank = t->n_dims;
    }
    if (!lower_failed(l) && rank + x.n - n > SHAPE_MAX_DIMS)
        lower_fail(l, ERR_UNSUPPORTED,
                   "it makes more than %d dimensions: join some of them by a reshape before",
                   SHAPE_MAX_DIMS);
    x = lower_spread(l, x);
    for (int k = 0; k < n && !lower_failed(l); k++) {
        const struct lowered index = lower_at(l, from[k]);

        line[k] = index_line_of(l, lower_host(&index), rank, extent_exported(l, x.dim[first + k]));
        if (!lower_failed(l))
            x = index_take(l, x, first + k, &line[k]);
    }
    if (!lower_failed(l))
        x = index_place(l, x, first, n, line, rank);
    if (!lower_failed(l))
        lower_set(l, 0, x);
}

/* 1: a constant that counts the samples: x[torch.arange(N), ..]. */
static int index_counts_samples(struct lower *l, const struct lowered *x, int from)
{
    const struct lowered index = lower_at(l, from);
    const struct host_tensor *t = lower_host(&index);
    int counts = t && x->dim[0].is_batch && x->dim[0].outer * x->dim[0].inner == 1 &&
                 t->n_dims == 1 && t->dim[0] == l->batch && lower_is_whole(t->type);

    for (int64_t i = 0; counts && i < t->dim[0]; i++)
        counts = host_integer(t, i) == i;
    return counts;
}

/* Of each sample of x [N,T,..] the row whose number is computed: [N,..]. */
static void builders_index_sample(struct lower *l, struct lowered x, int from)
{
    struct compose *c = &l->c;
    struct lowered index = lower_at(l, from);
    struct shape s, row;
    int hot, y;

    x = lower_plain(l, x);
    if (x.dim[1].is_batch || lower_is_whole(l->net->value[l->node->out[0]].type))
        lower_fail(l, ERR_UNSUPPORTED,
                   "it picks whole numbers, or rows of the batch, for each sample; want real "
                   "numbers");
    if (!lower_failed(l))
        index = lower_plain(l, lower_pick_value(l, index, extent_exported(l, x.dim[1])));
    if (!lower_failed(l) && (index.n != 1 || !extent_equal(index.dim[0], x.dim[0])))
        lower_fail(l, ERR_UNSUPPORTED,
                   "it picks a row of each sample by an index of %d dimensions, want one number "
                   "for each sample",
                   index.n);
    if (lower_failed(l))
        return;
    s = row = l->m->g->value[x.value].shape;
    for (int d = 2; d < s.n; d++)
        row.dim[d] = 1;
    hot = compose_reshape(c, compose_one_hot(c, index.value, s.dim[1]), row);
    y = compose_where(c, hot, x.value, compose_scalar(c, 0));
    y = compose_reduce(c, REDUCE_SUM, y, 2, 0);
    for (int d = 1; d < x.n - 1; d++)
        x.dim[d] = x.dim[d + 1];
    if (!lower_failed(l))
        lower_set(l, 0, lower_plain_value(l, y, x.n - 1, x.dim));
}

static void builders_index(struct lower *l, int kind)
{
    const struct import_arg *a = lower_arg(l, "indices", 1);
    const struct lowered x = lower_real_value(l, lower_in(l, "self", 0));
    int from[SHAPE_MAX_DIMS], first = 0, n = 0, last = 0;

    (void)kind;
    if (lower_failed(l))
        return;
    for (int d = 0; a && a->kind == IMPORT_VALUES && d < a->n && d < x.n; d++)
        if (a->values[d] != IMPORT_NO_VALUE) {
            first = n ? first : d;
            last = d;
            from[n++] = a->values[d];
        }
    if (n == 0 || a->n > x.n || last != first + n - 1)
        lower_fail(l, ERR_UNSUPPORTED, "want indices for dimensions that stand side by side");
    else if (n == 1)
        builders_index_one(l, x, first, from[0]);
    else if (n == 2 && first == 0 && x.n > 1 && index_counts_samples(l, &x, from[0]) &&
             !l->host[from[1]])
        builders_index_sample(l, x, from[1]);
    else
        builders_index_grid(l, x, first, n, from);
}

static void builders_gather(struct lower *l, int kind)
{
    const struct lowered from = lower_in(l, "self", 0);
    const int is_whole = lower_is_whole(l->net->value[l->node->out[0]].type);
    struct lowered x = lower_plain(l, from), y, index = lower_in(l, "index", 2);
    const int dim = lower_dim(l, "dim", 1, x.n, 0);

    (void)kind;
    if (!lower_failed(l))
        lower_check_index(l, &index, extent_exported(l, x.dim[dim]));
    index = lower_plain(l, lower_index_value(l, index));
    if (!lower_failed(l) && index.n != x.n)
        lower_fail(l, ERR_UNSUPPORTED, "its index has %d dimensions, want %d", index.n, x.n);
    lower_refuse_batch(l, &x, 1u << dim, "takes elements of");
    for (int d = 0; d < x.n && !lower_failed(l); d++)
        if (d != dim && (x.dim[d].is_batch != index.dim[d].is_batch ||
                         (x.dim[d].is_batch && (x.dim[d].outer != index.dim[d].outer ||
                                                x.dim[d].inner != index.dim[d].inner))))
            lower_fail(l, ERR_UNSUPPORTED,
                       "dimension %d is the batch in one of its tensors, and not in its index, or "
                       "the other way round: the network depends on the batch of its export, %lld",
                       d, (long long)l->batch);
    if (!lower_failed(l) && is_whole)
        index_check_whole(l, &from);
    if (lower_failed(l))
        return;
    y = lower_plain_value(l, compose_gather(&l->c, x.value, dim, index.value), x.n, index.dim);
    lower_set(l, 0, is_whole ? lower_whole(l, y, IMPORT_I64) : y);
}

const struct import_builder import_index[] = {
    {"index.Tensor", builders_index, -1},
    {"gather.default", builders_gather, -1},
    {0},
};
