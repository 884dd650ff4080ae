/* fold_made - constants that are made: ranges, tensors of one number, casts, copies, and what
 * operators in place write. */
#include <math.h>
#include <stdlib.h>

#include "base/util.h"
#include "import/fold_impl.h"

/* A range whose ends are no integers. */
static void fold_range_of_reals(struct fold *f)
{
    const double start = f->kind ? fold_real(f, "start", 0, 0) : 0;
    const double end = fold_real(f, "end", f->kind ? 1 : 0, 0);
    const double step = f->kind == 2 ? fold_real(f, "step", 2, 1) : 1;
    int64_t n;

    if (!(fabs((end - start) / step) <= FOLD_MAX_ELEMENTS))
        fold_fail(f, "a range from %g to %g by %g", start, end, step);
    if (f->rc < 0)
        return;
    n = max_i64((int64_t)ceil((end - start) / step), 0);
    if (fold_new(f, fold_type(f), 1, &n))
        for (int64_t i = 0; i < n; i++)
            fold_put(&f->out, i, (struct fold_num){.f = start + (double)i * step}, IMPORT_F64);
}

/* kind 0: end; 1: start and end; 2: and step. */
static void fold_arange(struct fold *f)
{
    int64_t start, end, step, n;

    for (int i = 0; i < f->node->n_args; i++)
        if (f->node->arg[i].kind == IMPORT_REAL) {
            fold_range_of_reals(f);
            return;
        }
    start = f->kind ? fold_int(f, "start", 0, 0) : 0;
    end = fold_size(f, "end", f->kind ? 1 : 0, 0);
    step = f->kind == 2 ? fold_int(f, "step", 2, 1) : 1;
    if (step == 0 || start < -INT32_MAX || start > INT32_MAX || end < -INT32_MAX ||
        end > INT32_MAX || step < -INT32_MAX || step > INT32_MAX)
        fold_fail(f, "a range to %lld by %lld", (long long)end, (long long)step);
    if (f->rc < 0)
        return;
    n = step > 0 ? (end - start + step - 1) / step : (start - end - step - 1) / -step;
    n = max_i64(n, 0);
    if (fold_new(f, fold_type(f), 1, &n))
        for (int64_t i = 0; i < n; i++)
            fold_put(&f->out, i, (struct fold_num){.i = start + i * step}, IMPORT_I64);
}

enum { FILL_0, FILL_1, FILL_VALUE };

/* A tensor of the shape and type that the export says: one number. */
static void fold_filled(struct fold *f)
{
    const struct import_value *says = fold_says(f);
    const char *name = fold_arg(f, "fill_value", 99) ? "fill_value"
                       : fold_arg(f, "s", 99)        ? "s"
                                                     : "value";
    struct host_tensor v = {.type = IMPORT_I64};
    struct fold_num number = {.i = f->kind};
    struct fold_num run[FOLD_RUN];
    int is_scalar;
    int64_t n;

    if (f->kind == FILL_VALUE) {
        v = fold_in(f, name, 99, &is_scalar);
        if (f->rc == 0 && host_count(&v) != 1)
            fold_fail(f, "its %s is more than one number", name);
        number = f->rc == 0 ? fold_element(&v, 0) : number;
    }
    for (int k = 0; k < FOLD_RUN; k++)
        run[k] = number;
    if (!fold_new(f, says->type, says->n_dims, says->dim))
        return;
    n = host_count(&f->out);
    for (int64_t i = 0; i < n; i += FOLD_RUN)
        fold_write(&f->out, i, (int)min_i64(n - i, FOLD_RUN), run, v.type);
}

/* fill_, zero_, copy_: what is written; fold_node writes it. */
static void fold_source(struct fold *f)
{
    int is_scalar;

    if (f->kind == FILL_0)
        fold_new(f, IMPORT_I64, 0, NULL);
    else
        f->out = fold_in(f, f->kind == FILL_1 ? "src" : "value", 1, &is_scalar);
}

enum { SAME_ALIAS, SAME_CAST, SAME_CAST_COPY, SAME_DENSE, SAME_COPY };

static int fold_is_dense(const struct host_tensor *t)
{
    int64_t n = 1;

    for (int d = t->n_dims - 1; d >= 0; d--) {
        if (t->dim[d] != 1 && t->stride[d] != n)
            return 0;
        n *= t->dim[d];
    }
    return 1;
}

static void fold_same(struct fold *f)
{
    struct host_tensor x = fold_tensor(f, "self", 0);
    const struct host_tensor whole = x;
    int64_t small[IMPORT_MAX_DIMS];

    if (f->rc < 0)
        return;
    f->out = x;
    if (f->kind == SAME_CAST_COPY ||
        (f->kind == SAME_CAST && (x.type != fold_type(f) || fold_int(f, "copy", 99, 0)))) {
        fold_narrow((struct host_tensor *[]){&x}, 1, x.n_dims, whole.dim, small);
        if (fold_new(f, fold_type(f), x.n_dims, small))
            fold_fill(&f->out, &x);
        fold_widen(f, whole.dim);
    } else if (f->kind == SAME_COPY || (f->kind == SAME_DENSE && !fold_is_dense(&x))) {
        f->out = fold_copy(f, &x);
    }
}

/* A part of a matrix: kind 0 the lower triangle, kind 1 the upper one. */
static void fold_triangle(struct fold *f)
{
    const struct host_tensor x = fold_tensor(f, "self", 0);
    const int64_t diagonal = fold_int(f, "diagonal", 1, 0);
    struct fold_num v[FOLD_RUN];
    int64_t n, cols;

    if (f->rc == 0 && x.n_dims < 2)
        fold_fail(f, "a triangle of %d dimensions", x.n_dims);
    if (f->rc < 0 || !fold_new(f, x.type, x.n_dims, x.dim))
        return;
    n = host_count(&x);
    cols = x.dim[x.n_dims - 1];
    for (int64_t i = 0, m; i < n; i += m) {
        m = fold_read(&x, i, n - i, v);
        for (int k = 0; k < m; k++) {
            const int64_t row = (i + k) / cols % x.dim[x.n_dims - 2], above = (i + k) % cols - row;

            if (f->kind ? above < diagonal : above > diagonal)
                v[k] = (struct fold_num){0, 0};
        }
        fold_write(&f->out, i, (int)m, v, x.type);
    }
}

/* As many numbers as `steps`, from start to end. */
static void fold_linspace(struct fold *f)
{
    const double start = fold_real(f, "start", 0, 0), end = fold_real(f, "end", 1, 0);
    const int64_t n = fold_int(f, "steps", 2, 0);
    const double step = n > 1 ? (end - start) / (double)(n - 1) : 0;

    if (n < 0 || !host_is_real(fold_type(f)))
        fold_fail(f, "%lld numbers of type %s from %g to %g, want 0 or more floats", (long long)n,
                  import_type_name(fold_type(f)), start, end);
    if (f->rc < 0 || !fold_new(f, fold_type(f), 1, &n))
        return;
    for (int64_t i = 0; i < n; i++)
        fold_put(&f->out, i,
                 (struct fold_num){.f = i < n / 2 ? start + step * (double)i
                                                  : end - step * (double)(n - 1 - i)},
                 IMPORT_F64);
}

static void fold_eye(struct fold *f)
{
    const struct import_value *says = fold_says(f);

    if (says->n_dims != 2)
        fold_fail(f, "an identity of %d dimensions", says->n_dims);
    else if (fold_new(f, says->type, 2, says->dim))
        for (int64_t i = 0; i < min_i64(says->dim[0], says->dim[1]); i++)
            fold_put(&f->out, i * (says->dim[1] + 1), (struct fold_num){.i = 1}, IMPORT_I64);
}

const struct fold_row fold_made[] = {
    {"arange.default", fold_arange, 0},
    {"arange.start", fold_arange, 1},
    {"arange.start_step", fold_arange, 2},
    {"linspace.default", fold_linspace, 0},
    {"zeros.default", fold_filled, FILL_0},
    {"empty_like.default", fold_filled, FILL_0},
    {"new_empty.default", fold_filled, FILL_0},
    {"ones.default", fold_filled, FILL_1},
    {"full.default", fold_filled, FILL_VALUE},
    {"new_zeros.default", fold_filled, FILL_0},
    {"new_ones.default", fold_filled, FILL_1},
    {"new_full.default", fold_filled, FILL_VALUE},
    {"zeros_like.default", fold_filled, FILL_0},
    {"ones_like.default", fold_filled, FILL_1},
    {"full_like.default", fold_filled, FILL_VALUE},
    {"scalar_tensor.default", fold_filled, FILL_VALUE},
    {"eye.default", fold_eye, 0},
    {"eye.m", fold_eye, 0},
    {"tril.default", fold_triangle, 0},
    {"triu.default", fold_triangle, 1},
    {"zero.default", fold_source, FILL_0},
    {"copy.default", fold_source, FILL_1},
    {"fill.Scalar", fold_source, FILL_VALUE},
    {"fill.Tensor", fold_source, FILL_VALUE},
    {"alias.default", fold_same, SAME_ALIAS},
    {"detach.default", fold_same, SAME_ALIAS},
    {"to.dtype", fold_same, SAME_CAST},
    {"to.dtype_layout", fold_same, SAME_CAST},
    {"to.device", fold_same, SAME_CAST},
    {"to.other", fold_same, SAME_CAST},
    {"type_as.default", fold_same, SAME_CAST},
    {"_to_copy.default", fold_same, SAME_CAST_COPY},
    {"contiguous.default", fold_same, SAME_DENSE},
    {"clone.default", fold_same, SAME_COPY},
    {"lift_fresh_copy.default", fold_same, SAME_COPY},
    {0},
};
