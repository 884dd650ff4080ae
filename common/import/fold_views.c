/* fold_views - constants in other shapes and orders, and parts of them: views of the same elements,
 * but for what PyTorch copies, too. */
#include <string.h>

#include "base/util.h"
#include "import/fold_impl.h"

/* ---- shapes ---- */

struct host_tensor fold_expand_to(struct fold *f, struct host_tensor t, int n, const int64_t *dim)
{
    struct host_tensor y = t;

    if (n < t.n_dims || n > IMPORT_MAX_DIMS) {
        fold_fail(f, "%d dimensions become %d", t.n_dims, n);
        return t;
    }
    y.n_dims = n;
    for (int d = 0; d < n; d++) {
        const int from = d - (n - t.n_dims);

        y.dim[d] = dim[d];
        y.stride[d] = 0;
        if (from < 0)
            continue;
        if (t.dim[from] == y.dim[d])
            y.stride[d] = t.stride[from];
        else if (t.dim[from] != 1)
            fold_fail(f, "extent %lld becomes %lld", (long long)t.dim[from], (long long)y.dim[d]);
    }
    return y;
}

int fold_meet(struct fold *f, const struct host_tensor *x, const struct host_tensor *y,
              int64_t *dim)
{
    const int n = x->n_dims > y->n_dims ? x->n_dims : y->n_dims;

    for (int d = 0; d < n; d++) {
        const int i = d - (n - x->n_dims), j = d - (n - y->n_dims);
        const int64_t a = i < 0 ? 1 : x->dim[i], b = j < 0 ? 1 : y->dim[j];

        dim[d] = a == 1 ? b : a;
        if (a != 1 && b != 1 && a != b)
            fold_fail(f, "extents %lld and %lld meet", (long long)a, (long long)b);
    }
    return n;
}

void fold_narrow(struct host_tensor *const *x, int n_x, int n, const int64_t *dim, int64_t *small)
{
    for (int d = 0; d < n; d++) {
        int repeats = dim[d] > 1;

        for (int i = 0; i < n_x; i++)
            repeats &= x[i]->stride[d] == 0;
        small[d] = repeats ? 1 : dim[d];
        for (int i = 0; i < n_x; i++)
            x[i]->dim[d] = small[d];
    }
}

void fold_widen(struct fold *f, const int64_t *dim)
{
    for (int d = 0; d < f->out.n_dims && f->rc == 0; d++) {
        if (f->out.dim[d] != dim[d])
            f->out.stride[d] = 0;
        f->out.dim[d] = dim[d];
    }
}

static void fold_expand(struct fold *f)
{
    const struct host_tensor x = fold_tensor(f, "self", 0);
    const struct import_value *says = fold_says(f);

    if (f->rc == 0)
        f->out = fold_expand_to(f, x, says->n_dims, says->dim);
}

/* The strides of x's elements in the shape `to`; 0: no strides reach them.  A run of dimensions
 * whose elements lie evenly may be cut in any way. */
static int fold_restride(const struct host_tensor *x, int n, const int64_t *to, int64_t *stride)
{
    int64_t run = x->n_dims ? x->stride[x->n_dims - 1] : 1, have = 1, want = 1;
    int v = n - 1;

    for (int d = x->n_dims - 1; d >= 0; d--) {
        have *= x->dim[d];
        if (d > 0 && (x->dim[d - 1] == 1 || x->stride[d - 1] == have * run))
            continue;
        for (; v >= 0 && (want < have || to[v] == 1); v--) {
            stride[v] = want * run;
            want *= to[v];
        }
        if (want != have)
            return 0;
        if (d > 0)
            run = x->stride[d - 1];
        have = want = 1;
    }
    for (; v >= 0; v--)
        stride[v] = 1;
    return 1;
}

static void fold_reshape(struct fold *f)
{
    const struct import_value *says = fold_says(f);
    struct host_tensor x = fold_tensor(f, "self", 0);
    int64_t stride[IMPORT_MAX_DIMS] = {0}, n = 1;

    for (int d = 0; d < says->n_dims; d++)
        n *= says->dim[d];
    if (f->rc == 0 && n != host_count(&x))
        fold_fail(f, "%lld elements become %lld", (long long)host_count(&x), (long long)n);
    if (f->rc < 0)
        return;
    if (n == 0 || !fold_restride(&x, says->n_dims, says->dim, stride)) {
        x = fold_copy(f, &x);
        if (!fold_restride(&x, says->n_dims, says->dim, stride) && n > 0)
            fold_fail(f, "its shape does not fit");
    }
    f->out = x;
    f->out.n_dims = says->n_dims;
    memcpy(f->out.dim, says->dim, sizeof f->out.dim);
    memcpy(f->out.stride, stride, sizeof f->out.stride);
}

static void fold_unsqueeze(struct fold *f)
{
    struct host_tensor x = fold_tensor(f, "self", 0);
    const int at = fold_dim(f, fold_int(f, "dim", 1, 0), x.n_dims + 1);

    if (x.n_dims == IMPORT_MAX_DIMS)
        fold_fail(f, "more than %d dimensions", IMPORT_MAX_DIMS);
    if (f->rc < 0)
        return;
    for (int d = x.n_dims++; d > at; d--) {
        x.dim[d] = x.dim[d - 1];
        x.stride[d] = x.stride[d - 1];
    }
    x.dim[at] = 1;
    x.stride[at] = at + 1 < x.n_dims ? x.dim[at + 1] * x.stride[at + 1] : 1;
    f->out = x;
}

static void fold_drop(struct host_tensor *x, int d)
{
    for (x->n_dims--; d < x->n_dims; d++) {
        x->dim[d] = x->dim[d + 1];
        x->stride[d] = x->stride[d + 1];
    }
}

/* kind 0: all dimensions of extent 1; else those of `dim` alone. */
static void fold_squeeze(struct fold *f)
{
    struct host_tensor x = fold_tensor(f, "self", 0);
    int64_t dims[IMPORT_MAX_DIMS];
    const int n = f->kind ? fold_ints(f, "dim", 1, dims) : 0;
    unsigned bits = f->kind ? 0 : ~0u;

    for (int i = 0; i < n; i++)
        bits |= 1u << fold_dim(f, dims[i], x.n_dims);
    for (int d = x.n_dims - 1; d >= 0 && f->rc == 0; d--)
        if ((bits >> d & 1) && x.dim[d] == 1)
            fold_drop(&x, d);
    f->out = x;
}

enum { ORDER_PERMUTE, ORDER_TRANSPOSE, ORDER_SWAP, ORDER_T };

static void fold_order(struct fold *f)
{
    const struct host_tensor x = fold_tensor(f, "self", 0);
    int64_t order[IMPORT_MAX_DIMS];
    unsigned seen = 0;
    int n = x.n_dims, a = n - 2, b = n - 1;

    if (f->kind == ORDER_PERMUTE)
        n = fold_ints(f, "dims", 1, order);
    else if (f->kind != ORDER_T) {
        a = fold_dim(f, fold_int(f, f->kind == ORDER_SWAP ? "axis0" : "dim0", 1, 0), n);
        b = fold_dim(f, fold_int(f, f->kind == ORDER_SWAP ? "axis1" : "dim1", 2, 0), n);
    }
    if (f->rc == 0 && n != x.n_dims)
        fold_fail(f, "%d dims for a tensor of %d", n, x.n_dims);
    f->out = x;
    for (int d = 0; d < n && f->rc == 0; d++) {
        const int from = f->kind == ORDER_PERMUTE ? fold_dim(f, order[d], n)
                         : n < 2                  ? d
                         : d == a                 ? b
                         : d == b                 ? a
                                                  : d;

        if (seen >> from & 1)
            fold_fail(f, "dims are no permutation");
        seen |= 1u << from;
        f->out.dim[d] = x.dim[from];
        f->out.stride[d] = x.stride[from];
    }
}

/* Grids of coordinates: tensor k of the list along dimension k; "xy" turns the first two. */
static void fold_meshgrid(struct fold *f)
{
    const struct host_tensor *from[IMPORT_MAX_DIMS];
    const int n = fold_list(f, "tensors", 0, from, IMPORT_MAX_DIMS), k = f->which;
    const struct import_arg *a = fold_arg(f, "indexing", 1);
    const struct import_value *says = fold_says(f);
    const int d = a && a->text && !strcmp(a->text, "xy") && k < 2 && n > 1 ? 1 - k : k;
    int64_t one[IMPORT_MAX_DIMS];
    struct host_tensor x;

    if (f->rc == 0 && (k >= n || !from[k] || from[k]->n_dims > 1 || says->n_dims != n))
        fold_fail(f, "a grid of %d tensors with %d dimensions, want as many", n, says->n_dims);
    if (f->rc < 0)
        return;
    x = *from[k];
    for (int e = 0; e < n; e++)
        one[e] = e == d ? host_count(&x) : 1;
    x.stride[d] = x.n_dims ? x.stride[0] : 0;
    for (int e = 0; e < n; e++)
        x.stride[e] = e == d ? x.stride[d] : 0;
    memcpy(x.dim, one, (size_t)n * sizeof *one);
    x.n_dims = n;
    f->out = fold_expand_to(f, x, n, says->dim);
}

/* ---- parts ---- */

/* Elements [start, stop) along dimension d. */
struct fold_range {
    int d;
    int64_t start, stop, step;
};

static void fold_cut(struct host_tensor *x, const struct fold_range *c)
{
    x->data = (char *)x->data + c->start * x->stride[c->d] * (int64_t)import_type_size(x->type);
    x->dim[c->d] = (c->stop - c->start) / c->step + ((c->stop - c->start) % c->step != 0);
    x->stride[c->d] *= c->step;
}

/* The slice that the arguments from `place` on name: dim, start, end and step. */
static struct fold_range fold_range_of(struct fold *f, const struct host_tensor *x, int place)
{
    struct fold_range c = {.d = fold_dim(f, fold_int(f, "dim", place, 0), x->n_dims),
                           .start = fold_int(f, "start", place + 1, 0),
                           .stop = fold_size(f, "end", place + 2, INT64_MAX),
                           .step = fold_int(f, "step", place + 3, 1)};

    if (c.step < 1 || x->n_dims == 0)
        fold_fail(f, "a step of %lld, or a part of a number", (long long)c.step);
    if (f->rc < 0)
        return c;
    import_slice_ends(x->dim[c.d], &c.start, &c.stop);
    if (c.start != 0 || c.stop != x->dim[c.d] || c.step != 1)
        fold_mixes(f, "self", 0, c.d);
    return c;
}

static void fold_slice(struct fold *f)
{
    struct host_tensor x = fold_tensor(f, "self", 0);
    const struct fold_range c = fold_range_of(f, &x, 1);

    if (f->rc < 0)
        return;
    fold_cut(&x, &c);
    f->out = x;
}

/* A copy of self with src in place of a slice. */
static void fold_slice_scatter(struct fold *f)
{
    const struct host_tensor from = fold_tensor(f, "self", 0);
    struct host_tensor src = fold_tensor(f, "src", 1), part;
    const struct fold_range c = fold_range_of(f, &from, 2);

    if (f->rc < 0)
        return;
    f->out = part = fold_copy(f, &from);
    if (f->rc < 0)
        return;
    fold_cut(&part, &c);
    src = fold_expand_to(f, src, part.n_dims, part.dim);
    if (f->rc == 0)
        fold_fill(&part, &src);
}

static void fold_select(struct fold *f)
{
    struct host_tensor x = fold_tensor(f, "self", 0);
    const int d = fold_dim(f, fold_int(f, "dim", 1, 0), x.n_dims);
    int64_t at;

    if (f->rc == 0 && x.n_dims == 0)
        fold_fail(f, "a part of a number");
    if (x.n_dims > 0 && x.stride[d] != 0)
        fold_mixes(f, "self", 0, d);
    if (f->rc < 0)
        return;
    at = fold_wrap_index(f, fold_int(f, "index", 2, 0), x.dim[d]);
    if (f->rc < 0)
        return;
    fold_cut(&x, &(struct fold_range){d, at, at + 1, 1});
    fold_drop(&x, d);
    f->out = x;
}

/* chunk and split (kind 0), unbind (kind 1): the export says each output's extent. */
static void fold_pieces(struct fold *f)
{
    struct host_tensor x = fold_tensor(f, "self", 0);
    const int d = fold_dim(f, fold_int(f, "dim", f->kind ? 1 : 2, 0), x.n_dims);
    int64_t start = 0, extent = 1;

    fold_mixes(f, "self", 0, d);
    for (int i = 0; i <= f->which && f->rc == 0; i++) {
        const int out = f->node->out[i];

        start += i > 0 ? extent : 0;
        if (f->kind)
            continue;
        if (out == IMPORT_NO_VALUE || d >= f->net->value[out].n_dims)
            fold_fail(f, "the extent of part %d is not known", i);
        else
            extent = f->net->value[out].dim[d];
    }
    if (f->rc == 0 && (x.n_dims == 0 || start + extent > x.dim[d]))
        fold_fail(f, "part %d ends behind dimension %d", f->which, d);
    if (f->rc < 0)
        return;
    fold_cut(&x, &(struct fold_range){d, start, start + extent, 1});
    if (f->kind)
        fold_drop(&x, d);
    f->out = x;
}

/* ---- copies ---- */

/* kind 1: stack, which adds a dimension. */
static void fold_cat(struct fold *f)
{
    enum { MOST = 4096 };
    const struct host_tensor **from = arena_alloc(f->a, MOST * sizeof *from);
    const int n = fold_list(f, "tensors", 0, from, MOST);
    int64_t dim[IMPORT_MAX_DIMS], at = 0, along = 0;
    int d, n_dims;

    if (f->rc == 0 && (n < 1 || !from[0] || from[0]->n_dims + f->kind > IMPORT_MAX_DIMS))
        fold_fail(f, "it joins no tensors, or too many dimensions");
    if (f->rc < 0)
        return;
    n_dims = from[0]->n_dims;
    d = fold_dim(f, fold_int(f, "dim", 1, 0), n_dims + f->kind);
    for (int i = 0; i < n && f->rc == 0; i++) {
        int same = from[i] && from[i]->n_dims == n_dims && from[i]->type == fold_type(f);

        for (int e = 0; same && e < n_dims; e++)
            same = (!f->kind && e == d) || from[i]->dim[e] == from[0]->dim[e];
        if (!same)
            fold_fail(f, "it joins tensors of different types or shapes");
        else
            along += f->kind ? 1 : from[i]->dim[d];
    }
    for (int e = 0; e < n_dims + f->kind && f->rc == 0; e++)
        dim[e] = e == d ? along : from[0]->dim[f->kind && e > d ? e - 1 : e];
    if (f->rc < 0 || (!f->kind && n_dims == 0) ||
        !fold_new(f, fold_type(f), n_dims + f->kind, dim)) {
        fold_fail(f, "it joins numbers");
        return;
    }
    for (int i = 0; i < n; i++) {
        struct host_tensor part = f->out;

        part.dim[d] = f->kind ? 1 : from[i]->dim[d];
        part.data = (char *)part.data + at * part.stride[d] * (int64_t)import_type_size(part.type);
        fold_fill(&part, from[i]);
        at += part.dim[d];
    }
}

/* Element i of the output from the place that `from` gives for its indices. */
static void fold_gather_by(struct fold *f, const struct host_tensor *x,
                           int64_t (*from)(const struct host_tensor *x, int d, int64_t k,
                                           int64_t by),
                           const int64_t *by)
{
    for (int64_t i = 0; i < host_count(&f->out); i++) {
        int64_t left = i, at = 0;

        for (int d = f->out.n_dims - 1; d >= 0; d--) {
            at += from(x, d, left % f->out.dim[d], by[d]) * x->stride[d];
            left /= f->out.dim[d];
        }
        fold_put(&f->out, i, fold_get(x, at), x->type);
    }
}

static int64_t from_repeat(const struct host_tensor *x, int d, int64_t k, int64_t by)
{
    (void)by;
    return k % x->dim[d];
}

static int64_t from_flip(const struct host_tensor *x, int d, int64_t k, int64_t by)
{
    return by ? x->dim[d] - 1 - k : k;
}

static int64_t from_roll(const struct host_tensor *x, int d, int64_t k, int64_t by)
{
    return ((k - by % x->dim[d]) % x->dim[d] + x->dim[d]) % x->dim[d];
}

static void fold_repeat(struct fold *f)
{
    struct host_tensor x = fold_tensor(f, "self", 0);
    int64_t times[IMPORT_MAX_DIMS], one[IMPORT_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    const int n = fold_ints(f, "repeats", 1, times);

    if (f->rc == 0 && n < x.n_dims)
        fold_fail(f, "%d repeats for %d dimensions", n, x.n_dims);
    for (int d = 0; f->rc == 0 && d < x.n_dims; d++)
        one[d + n - x.n_dims] = x.dim[d];
    if (f->rc < 0)
        return;
    x = fold_expand_to(f, x, n, one);
    for (int d = 0; d < n; d++) {
        if (times[d] < 0 || times[d] > FOLD_MAX_ELEMENTS || x.dim[d] > FOLD_MAX_ELEMENTS)
            fold_fail(f, "%lld repeats", (long long)times[d]);
        else
            times[d] *= x.dim[d];
    }
    if (f->rc == 0 && fold_new(f, x.type, n, times))
        fold_gather_by(f, &x, from_repeat, times);
}

static void fold_flip(struct fold *f)
{
    const struct host_tensor x = fold_tensor(f, "self", 0);
    int64_t dims[IMPORT_MAX_DIMS], by[IMPORT_MAX_DIMS] = {0};
    const int n = fold_ints(f, "dims", 1, dims);

    for (int i = 0; i < n && f->rc == 0; i++) {
        const int d = fold_dim(f, dims[i], x.n_dims);

        fold_mixes(f, "self", 0, d);
        by[d] = 1;
    }
    if (f->rc == 0 && fold_new(f, x.type, x.n_dims, x.dim))
        fold_gather_by(f, &x, from_flip, by);
}

static void fold_roll(struct fold *f)
{
    const struct host_tensor x = fold_tensor(f, "self", 0);
    int64_t dims[IMPORT_MAX_DIMS], shift[IMPORT_MAX_DIMS], by[IMPORT_MAX_DIMS] = {0};
    const int n = fold_ints(f, "shifts", 1, shift);

    if (fold_ints(f, "dims", 2, dims) != n)
        fold_fail(f, "as many dims as shifts are wanted");
    for (int i = 0; i < n && f->rc == 0; i++) {
        const int d = fold_dim(f, dims[i], x.n_dims);

        fold_mixes(f, "self", 0, d);
        by[d] += shift[i] % max_i64(x.dim[d], 1);
    }
    if (f->rc == 0 && fold_new(f, x.type, x.n_dims, x.dim))
        fold_gather_by(f, &x, from_roll, by);
}

const struct fold_row fold_views[] = {
    {"expand.default", fold_expand, 0},
    {"meshgrid.default", fold_meshgrid, 0},
    {"meshgrid.indexing", fold_meshgrid, 0},
    {"expand_as.default", fold_expand, 0},
    {"view.default", fold_reshape, 0},
    {"_unsafe_view.default", fold_reshape, 0},
    {"reshape.default", fold_reshape, 0},
    {"flatten.using_ints", fold_reshape, 0},
    {"unflatten.int", fold_reshape, 0},
    {"unsqueeze.default", fold_unsqueeze, 0},
    {"squeeze.default", fold_squeeze, 0},
    {"squeeze.dim", fold_squeeze, 1},
    {"squeeze.dims", fold_squeeze, 1},
    {"permute.default", fold_order, ORDER_PERMUTE},
    {"transpose.int", fold_order, ORDER_TRANSPOSE},
    {"swapaxes.default", fold_order, ORDER_SWAP},
    {"t.default", fold_order, ORDER_T},
    {"slice.Tensor", fold_slice, 0},
    {"slice_scatter.default", fold_slice_scatter, 0},
    {"select.int", fold_select, 0},
    {"chunk.default", fold_pieces, 0},
    {"split.Tensor", fold_pieces, 0},
    {"split_with_sizes.default", fold_pieces, 0},
    {"unbind.int", fold_pieces, 1},
    {"cat.default", fold_cat, 0},
    {"concat.default", fold_cat, 0},
    {"stack.default", fold_cat, 1},
    {"repeat.default", fold_repeat, 0},
    {"flip.default", fold_flip, 0},
    {"roll.default", fold_roll, 0},
    {0},
};
