/* fold_parts - elements of constants that are picked by indices, and sums over dimensions.  Reals
 * are summed in double. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/fold_impl.h"

/* ---- along a dimension ---- */

/* 1: x and y may be joined along dimension d. */
static int fold_joins(const struct host_tensor *x, const struct host_tensor *y, int d)
{
    int same = x->n_dims == y->n_dims && x->type == y->type;

    for (int e = 0; same && e < x->n_dims; e++)
        same = e == d || x->dim[e] == y->dim[e];
    return same;
}

/* x with the tensors `prepend` before and `append` behind it, along dimension d. */
static struct host_tensor fold_longer(struct fold *f, const struct host_tensor *x, int d)
{
    static const char *const name[3] = {"prepend", "", "append"};
    const struct host_tensor kept = f->out;
    struct host_tensor part[3], y = *x;
    int64_t dim[IMPORT_MAX_DIMS], at = 0;

    y.dim[d] = 0;
    for (int i = 0; i < 3 && f->rc == 0; i++) {
        part[i] = *x;
        if (i != 1 && fold_arg(f, name[i], 3 + i / 2))
            part[i] = fold_tensor(f, name[i], 3 + i / 2);
        else if (i != 1)
            part[i].dim[d] = 0; /* it is absent */
        if (!fold_joins(x, &part[i], d))
            fold_fail(f, "its tensors differ in type or shape");
        y.dim[d] += part[i].dim[d];
    }
    memcpy(dim, y.dim, sizeof dim);
    for (int e = 0; e < x->n_dims && f->rc == 0; e++)
        if (e != d && dim[e] > 1 && part[0].stride[e] + part[1].stride[e] + part[2].stride[e] == 0)
            y.dim[e] = part[0].dim[e] = part[1].dim[e] = part[2].dim[e] = 1;
    if (f->rc < 0 || y.dim[d] == x->dim[d] || !fold_new(f, x->type, y.n_dims, y.dim))
        return *x;
    y = f->out;
    for (int i = 0; i < 3; i++) {
        struct host_tensor to = y;

        to.dim[d] = part[i].dim[d];
        to.data = (char *)y.data + at * y.stride[d] * (int64_t)import_type_size(y.type);
        fold_fill(&to, &part[i]);
        at += to.dim[d];
    }
    fold_widen(f, dim);
    y = f->out;
    f->out = kept;
    return y;
}

/* kind 0: the running sum along dim; 1: the differences of neighbours. */
static void fold_along(struct fold *f)
{
    struct host_tensor x = fold_tensor(f, "self", 0);
    const int d = fold_dim(f, fold_int(f, "dim", f->kind ? 2 : 1, -1), x.n_dims);
    const int is_real = host_is_real(fold_type(f));
    int64_t dim[IMPORT_MAX_DIMS], small[IMPORT_MAX_DIMS];
    struct host_tensor s;

    if (fold_int(f, "n", 99, 1) != 1 || x.n_dims == 0 || (host_is_real(x.type) && !is_real) ||
        (f->kind && (x.type == IMPORT_BOOL || x.type != fold_type(f))))
        fold_fail(f, "other than one sum, or difference of numbers");
    fold_mixes(f, "self", 0, d);
    if (f->kind && f->rc == 0)
        x = fold_longer(f, &x, d);
    if (f->rc < 0)
        return;
    memcpy(dim, x.dim, sizeof dim);
    dim[d] = f->kind ? max_i64(x.dim[d] - 1, 0) : x.dim[d];
    s = x;
    s.stride[d] = 1; /* it is needed whole */
    fold_narrow((struct host_tensor *[]){&s}, 1, x.n_dims, dim, small);
    s.stride[d] = x.stride[d];
    if (!fold_new(f, fold_type(f), s.n_dims, small))
        return;
    for (int64_t i = 0; i < host_count(&f->out); i++) {
        const int64_t at = fold_place(&s, i), k = i / f->out.stride[d] % s.dim[d];
        struct fold_num v = fold_get(&x, at + (f->kind ? x.stride[d] : 0)), w = {0, 0};

        if (f->kind)
            w = fold_get(&x, at);
        else if (k)
            w = fold_get(&f->out, i - f->out.stride[d]);
        v.i = (int64_t)(f->kind ? (uint64_t)v.i - (uint64_t)w.i : (uint64_t)v.i + (uint64_t)w.i);
        v.f = f->kind ? v.f - w.f : v.f + w.f;
        fold_put(&f->out, i, v, is_real ? IMPORT_F64 : IMPORT_I64);
    }
    fold_widen(f, dim);
}

enum { SUM, MEAN, PRODUCT, LARGEST, SMALLEST, ANY, ALL };

static void fold_reduce_step(struct fold_num *to, struct fold_num v, int kind, int is_first)
{
    if (is_first && kind != ANY && kind != ALL) {
        *to = v;
        return;
    }
    switch (kind) {
    case SUM:
    case MEAN:
        to->i = (int64_t)((uint64_t)to->i + (uint64_t)v.i);
        to->f += v.f;
        return;
    case PRODUCT:
        to->i = (int64_t)((uint64_t)to->i * (uint64_t)v.i);
        to->f *= v.f;
        return;
    case LARGEST:
        to->i = max_i64(to->i, v.i);
        to->f = isnan(to->f) || to->f > v.f ? to->f : v.f;
        return;
    case SMALLEST:
        to->i = min_i64(to->i, v.i);
        to->f = isnan(to->f) || to->f < v.f ? to->f : v.f;
        return;
    default:
        to->i = kind == ANY ? (!is_first && to->i) || v.f != 0 : (is_first || to->i) && v.f != 0;
        to->f = (double)to->i;
    }
}

/* Sums and their like over the dimensions of `dim`, or all. */
static void fold_reduce(struct fold *f)
{
    const struct host_tensor x = fold_tensor(f, "self", 0);
    const struct import_value *says = fold_says(f);
    const struct import_arg *a = fold_arg(f, "dim", 1);
    int64_t dims[IMPORT_MAX_DIMS], kept[IMPORT_MAX_DIMS], moved[IMPORT_MAX_DIMS];
    const int n = a && a->n > 0 ? fold_ints(f, "dim", 1, dims) : 0;
    struct host_tensor outer = x, inner = x;
    int64_t count;
    unsigned bits = n ? 0 : ~0u;

    for (int i = 0; i < n; i++)
        bits |= 1u << fold_dim(f, dims[i], x.n_dims);
    outer.n_dims = inner.n_dims = 0;
    for (int d = 0; d < x.n_dims && f->rc == 0; d++) {
        struct host_tensor *to = bits >> d & 1 ? &inner : &outer;

        if (to == &inner)
            fold_mixes(f, "self", 0, d);
        to->stride[to->n_dims] = x.stride[d];
        to->dim[to->n_dims++] = x.dim[d];
        kept[d] = to == &inner ? 1 : x.dim[d];
    }
    if (f->rc < 0)
        return;
    count = host_count(&inner);
    memcpy(moved, outer.dim, sizeof moved);
    if (count == 0 || (f->kind == MEAN && !host_is_real(says->type)))
        fold_fail(f, "it reduces no elements, or gives the mean of integers");
    if (f->kind <= PRODUCT && host_is_real(x.type) && !host_is_real(says->type))
        fold_fail(f, "it sums real numbers as integers");
    if (!fold_new(f, says->type, fold_int(f, "keepdim", 2, 0) ? x.n_dims : outer.n_dims,
                  fold_int(f, "keepdim", 2, 0) ? kept : moved))
        return;
    for (int64_t i = 0; i < host_count(&outer); i++) {
        struct fold_num r = {0, 0};

        for (int64_t k = 0; k < count; k++)
            fold_reduce_step(&r, fold_get(&x, fold_place(&outer, i) + fold_place(&inner, k)),
                             f->kind, k == 0);
        if (f->kind == MEAN)
            r.f /= (double)count;
        fold_put(&f->out, i, r, host_is_real(says->type) ? IMPORT_F64 : IMPORT_I64);
    }
}

/* Products of matrices, summed in double. */
static void fold_matmul(struct fold *f)
{
    struct host_tensor x = fold_tensor(f, "self", 0),
                       y = fold_tensor(f, f->kind ? "mat2" : "other", 1);
    int64_t dim[IMPORT_MAX_DIMS];
    int n;

    if (f->rc == 0 && (x.n_dims < 2 || y.n_dims < 2 || !host_is_real(x.type) || x.type != y.type ||
                       x.dim[x.n_dims - 1] != y.dim[y.n_dims - 2]))
        fold_fail(f, "a product of other than matrices of real numbers");
    if (f->rc < 0)
        return;
    fold_mixes(f, "self", 0, x.n_dims - 1);
    {
        struct host_tensor lead_x = x, lead_y = y;
        const int64_t rows = x.dim[x.n_dims - 2], sums = x.dim[x.n_dims - 1],
                      cols = y.dim[y.n_dims - 1];

        lead_x.n_dims -= 2;
        lead_y.n_dims -= 2;
        n = fold_meet(f, &lead_x, &lead_y, dim) + 2;
        dim[n - 2] = rows;
        dim[n - 1] = sums;
        x = fold_expand_to(f, x, n, dim);
        dim[n - 2] = sums;
        dim[n - 1] = cols;
        y = fold_expand_to(f, y, n, dim);
        dim[n - 2] = rows;
    }
    if (f->rc < 0 || !fold_new(f, x.type, n, dim))
        return;
    if (x.dim[n - 1] > 0 && host_count(&f->out) > ((int64_t)1 << 32) / x.dim[n - 1]) {
        fold_fail(f, "a product of more than 2^32 steps");
        return;
    }
    for (int64_t i = 0; i < host_count(&f->out); i++) {
        const int64_t cols = dim[n - 1], rows = dim[n - 2], sums = x.dim[n - 1];
        struct fold_num r = {0, 0};

        for (int64_t k = 0; k < sums; k++)
            r.f += fold_element(&x, i / cols * sums + k).f *
                   fold_element(&y, (i / cols / rows * sums + k) * cols + i % cols).f;
        fold_put(&f->out, i, r, IMPORT_F64);
    }
}

/* ---- indices ---- */

struct pick {
    struct host_tensor by[IMPORT_MAX_DIMS]; /* integers, of one shape */
    int dim[IMPORT_MAX_DIMS];               /* the dimension that by[] picks of */
    int n, first;                           /* where the shape of by[] stands in the result */
    int64_t met[IMPORT_MAX_DIMS];
    int n_met;
};

/* The indices at which a mask is 1, one tensor for each of its dimensions. */
static void pick_mask(struct fold *f, struct pick *p, const struct host_tensor *mask, int d)
{
    const struct host_tensor kept = f->out;
    int64_t n = 0, k = 0;

    for (int64_t i = 0; i < host_count(mask); i++)
        n += fold_element(mask, i).i;
    for (int e = 0; e < mask->n_dims && f->rc == 0; e++) {
        int64_t inner = 1;

        for (int g = e + 1; g < mask->n_dims; g++)
            inner *= mask->dim[g];
        if (!fold_new(f, IMPORT_I64, 1, &n))
            break;
        k = 0;
        for (int64_t i = 0; i < host_count(mask); i++)
            if (fold_element(mask, i).i)
                fold_put(&f->out, k++, (struct fold_num){.i = i / inner % mask->dim[e]},
                         IMPORT_I64);
        p->dim[p->n] = d + e;
        p->by[p->n++] = f->out;
    }
    f->out = kept;
}

/* Reads the list of indices, masks among them, for x. */
static void pick_read(struct fold *f, struct pick *p, const struct host_tensor *x)
{
    const struct host_tensor *from[IMPORT_MAX_DIMS];
    const int n = fold_list(f, "indices", 1, from, IMPORT_MAX_DIMS);
    struct host_tensor met = {.n_dims = 0};
    int d = 0;

    for (int i = 0; i < n && f->rc == 0; i++) {
        const int is_mask = from[i] && (from[i]->type == IMPORT_BOOL || from[i]->type == IMPORT_U8);
        const int takes = is_mask ? from[i]->n_dims : 1;

        if (d + takes > x->n_dims || (from[i] && host_is_real(from[i]->type)) ||
            (is_mask && takes == 0)) {
            fold_fail(f, "index %d does not fit %d dimensions", i, x->n_dims);
            return;
        }
        for (int e = 0; is_mask && e < takes; e++)
            if (from[i]->dim[e] != x->dim[d + e])
                fold_fail(f, "a mask of %lld for an extent of %lld", (long long)from[i]->dim[e],
                          (long long)x->dim[d + e]);
        if (from[i] && x->stride[d] != 0) /* else all of them are equal, for any batch */
            fold_mixes(f, "self", 0, d);
        if (is_mask) {
            pick_mask(f, p, from[i], d);
        } else if (from[i]) {
            p->dim[p->n] = d;
            p->by[p->n++] = *from[i];
        }
        d += takes;
    }
    if (f->rc == 0 && p->n == 0)
        fold_fail(f, "no index");
    for (int b = 0; b < p->n && f->rc == 0; b++) {
        int64_t dim[IMPORT_MAX_DIMS];

        met.n_dims = fold_meet(f, &met, &p->by[b], dim);
        memcpy(met.dim, dim, sizeof dim);
    }
    p->n_met = met.n_dims;
    memcpy(p->met, met.dim, sizeof met.dim);
    for (int b = 0; b < p->n && f->rc == 0; b++) {
        const int64_t extent = x->dim[p->dim[b]];

        for (int64_t i = 0; i < host_count(&p->by[b]) && f->rc == 0; i++)
            fold_wrap_index(f, fold_element(&p->by[b], i).i, extent);
        p->by[b] = fold_expand_to(f, p->by[b], p->n_met, p->met);
        if (x->stride[p->dim[b]] == 0) /* whichever it picks is the same */
            memset(p->by[b].stride, 0, sizeof p->by[b].stride);
    }
    p->first = p->n ? p->dim[0] : 0;
    for (int b = 1; b < p->n; b++) /* no neighbours: PyTorch puts them in front */
        if (p->dim[b] != p->dim[b - 1] + 1)
            p->first = 0;
}

/* The dimensions of x that no index picks of, in order. */
static int pick_rest(const struct pick *p, const struct host_tensor *x, int *rest)
{
    int n = 0;

    for (int d = 0; d < x->n_dims; d++) {
        int picked = 0;

        for (int b = 0; b < p->n; b++)
            picked |= p->dim[b] == d;
        if (!picked)
            rest[n++] = d;
    }
    return n;
}

/* Elements of x, in the shape of the output, whose dimensions at `first` and behind are those of
 * the indices. */
static void pick_elements(struct fold *f, const struct pick *p, const struct host_tensor *x,
                          const int *rest)
{
    const int64_t count = host_count(&f->out);
    struct host_tensor base = f->out, by[IMPORT_MAX_DIMS];

    for (int b = 0; b < p->n; b++) {
        by[b] = f->out;
        by[b].type = p->by[b].type;
        by[b].data = p->by[b].data;
    }
    for (int d = 0; d < base.n_dims; d++) {
        const int is_met = d >= p->first && d < p->first + p->n_met;

        base.stride[d] = is_met ? 0 : x->stride[rest[d < p->first ? d : d - p->n_met]];
        for (int b = 0; b < p->n; b++)
            by[b].stride[d] = is_met ? p->by[b].stride[d - p->first] : 0;
    }
    for (int64_t i = 0; i < count && f->rc == 0; i += FOLD_RUN) {
        const int m = (int)min_i64(count - i, FOLD_RUN);
        struct fold_num v[FOLD_RUN];
        int64_t at[FOLD_RUN];

        fold_places(&base, i, m, at);
        for (int b = 0; b < p->n; b++) {
            const int d = p->dim[b];

            fold_read(&by[b], i, m, v);
            for (int k = 0; k < m; k++)
                at[k] += fold_wrap_index(f, v[k].i, x->dim[d]) * x->stride[d];
        }
        if (f->rc < 0)
            return;
        fold_load(x, at, m, v);
        fold_write(&f->out, i, m, v, x->type);
    }
}

static void fold_index(struct fold *f)
{
    const struct host_tensor x = fold_tensor(f, "self", 0);
    int64_t dim[IMPORT_MAX_DIMS], small[IMPORT_MAX_DIMS], met[IMPORT_MAX_DIMS];
    struct host_tensor *by[IMPORT_MAX_DIMS];
    struct pick p = {.n = 0};
    int rest[IMPORT_MAX_DIMS], n_rest, n;

    pick_read(f, &p, &x);
    if (f->rc < 0)
        return;
    n_rest = pick_rest(&p, &x, rest);
    n = n_rest + p.n_met;
    if (n > IMPORT_MAX_DIMS) {
        fold_fail(f, "more than %d dimensions", IMPORT_MAX_DIMS);
        return;
    }
    for (int b = 0; b < p.n; b++)
        by[b] = &p.by[b];
    memcpy(met, p.met, sizeof met);
    fold_narrow(by, p.n, p.n_met, met, p.met);
    for (int d = 0; d < n; d++) {
        const int at = d - p.first, is_met = at >= 0 && at < p.n_met;
        const int from = is_met ? 0 : rest[d < p.first ? d : d - p.n_met];

        dim[d] = is_met ? met[at] : x.dim[from];
        small[d] = is_met ? p.met[at] : x.stride[from] == 0 && dim[d] > 1 ? 1 : dim[d];
    }
    if (!fold_new(f, x.type, n, small))
        return;
    pick_elements(f, &p, &x, rest);
    fold_widen(f, dim);
}

/* The elements of the dimensions behind d, if they lie one after another; else 0. */
static int64_t fold_dense_behind(const struct host_tensor *x, int d)
{
    int64_t n = 1;

    for (int e = x->n_dims - 1; e > d; e--) {
        if (x->stride[e] != n && x->dim[e] > 1)
            return 0;
        n *= x->dim[e];
    }
    return n;
}

/* index_select of whole lines of `line` elements, which lie one after another in x. */
static void fold_pick_lines(struct fold *f, const struct host_tensor *x,
                            const struct host_tensor *index, int d, int64_t line)
{
    const size_t size = import_type_size(x->type), n_bytes = (size_t)line * size;
    const int64_t n = f->out.dim[d], n_lines = host_count(&f->out) / line;
    int64_t *from = xmalloc(((size_t)n + 1) * sizeof *from);
    char *to = (char *)f->out.data;

    for (int64_t j = 0; j < n; j++)
        from[j] = fold_wrap_index(f, fold_element(index, j).i, x->dim[d]) * x->stride[d];
    for (int64_t i = 0; i < n_lines && f->rc == 0; i++, to += n_bytes) {
        int64_t left = i / n, at = from[i % n];

        for (int e = d - 1; e >= 0; e--) {
            at += left % x->dim[e] * x->stride[e];
            left /= x->dim[e];
        }
        memcpy(to, (const char *)x->data + (size_t)at * size, n_bytes);
    }
    free(from);
}

/* index_select (kind 0): one list for dimension `dim`; gather (kind 1): one index for each element
 * of the result. */
static void fold_pick_along(struct fold *f)
{
    const struct host_tensor x = fold_tensor(f, "self", 0), index = fold_tensor(f, "index", 2);
    const int d = fold_dim(f, fold_int(f, "dim", 1, 0), x.n_dims);
    int64_t dim[IMPORT_MAX_DIMS];
    int fits;

    fold_mixes(f, "self", 0, d);
    if (f->rc < 0)
        return;
    fits = x.n_dims > 0 && !host_is_real(index.type) &&
           (f->kind ? index.n_dims == x.n_dims : index.n_dims < 2);
    for (int e = 0; e < x.n_dims && fits; e++) {
        dim[e] = f->kind ? index.dim[e] : e == d ? host_count(&index) : x.dim[e];
        fits = e == d || dim[e] <= x.dim[e];
    }
    if (!fits)
        fold_fail(f, "its index does not fit");
    if (f->rc < 0 || !fold_new(f, x.type, x.n_dims, dim))
        return;
    if (!f->kind && host_count(&f->out) > 0 && fold_dense_behind(&x, d) > 0) {
        fold_pick_lines(f, &x, &index, d, fold_dense_behind(&x, d));
        return;
    }
    for (int64_t i = 0; i < host_count(&f->out) && f->rc == 0; i++) {
        int64_t left = i, at = 0;

        for (int e = x.n_dims - 1; e >= 0; e--) {
            const int64_t j = left % dim[e];

            left /= dim[e];
            at += x.stride[e] *
                  (e == d ? fold_wrap_index(f, fold_element(&index, f->kind ? i : j).i, x.dim[d])
                          : j);
        }
        if (f->rc == 0)
            fold_put(&f->out, i, fold_get(&x, at), x.type);
    }
}

const struct fold_row fold_parts[] = {
    {"cumsum.default", fold_along, 0},       {"diff.default", fold_along, 1},
    {"sum.default", fold_reduce, SUM},       {"sum.dim_IntList", fold_reduce, SUM},
    {"mean.default", fold_reduce, MEAN},     {"mean.dim", fold_reduce, MEAN},
    {"prod.default", fold_reduce, PRODUCT},  {"amax.default", fold_reduce, LARGEST},
    {"amin.default", fold_reduce, SMALLEST}, {"max.default", fold_reduce, LARGEST},
    {"min.default", fold_reduce, SMALLEST},  {"any.default", fold_reduce, ANY},
    {"any.dim", fold_reduce, ANY},           {"all.default", fold_reduce, ALL},
    {"all.dim", fold_reduce, ALL},           {"matmul.default", fold_matmul, 0},
    {"mm.default", fold_matmul, 1},          {"bmm.default", fold_matmul, 1},
    {"index.Tensor", fold_index, 0},         {"index_select.default", fold_pick_along, 0},
    {"gather.default", fold_pick_along, 1},  {0},
};
