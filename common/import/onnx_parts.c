/* onnx_parts - formulas that several operators of ONNX are made of, as nodes of PyTorch.
 *
 * After a failure all functions give harmless values. */
#include <string.h>

#include "base/util.h"
#include "import/onnx_impl.h"

int onnx_affine(struct onnx *o, int x, double a, double b)
{
    if (a != 1) {
        onnx_put_value(o, "self", x);
        onnx_put_real(o, "other", a);
        x = onnx_make_like(o, "mul.Tensor", x);
    }
    if (b != 0) {
        onnx_put_value(o, "self", x);
        onnx_put_real(o, "other", b);
        x = onnx_make_like(o, "add.Tensor", x);
    }
    return x;
}

int onnx_cast(struct onnx *o, int x, enum import_type to)
{
    const struct import_value v = *onnx_value(o, x);

    if (v.type == to)
        return x;
    onnx_put_value(o, "self", x);
    onnx_put_type(o, "dtype", to);
    return onnx_make(o, "to.dtype", to, v.n_dims, v.dim);
}

int onnx_reduce(struct onnx *o, const char *target, int x, unsigned dims, int keep)
{
    const struct import_value v = *onnx_value(o, x);
    int64_t dim[IMPORT_MAX_DIMS], which[IMPORT_MAX_DIMS];
    int n = 0, n_which = 0;

    for (int d = 0; d < v.n_dims; d++) {
        if (dims >> d & 1)
            which[n_which++] = d;
        if (keep || !(dims >> d & 1))
            dim[n++] = dims >> d & 1 ? 1 : v.dim[d];
    }
    onnx_put_value(o, "self", x);
    if (strstr(target, "norm"))
        onnx_put_real(o, "ord", strstr(target, "norm1") ? 1 : 2);
    if (n_which > 0)
        onnx_put_ints(o, "dim", which, n_which);
    onnx_put_flag(o, "keepdim", keep);
    return onnx_make(o, strstr(target, "norm") ? "linalg_vector_norm.default" : target, v.type, n,
                     dim);
}

int onnx_unary(struct onnx *o, const char *target, int x)
{
    onnx_put_value(o, "self", x);
    return onnx_make_like(o, target, x);
}

int onnx_pair(struct onnx *o, const char *target, int a, int b)
{
    int64_t dim[IMPORT_MAX_DIMS];
    const int n = onnx_meet(o, a, b, dim);

    onnx_put_value(o, "self", a);
    onnx_put_value(o, "other", b);
    return onnx_make(o, target, onnx_value(o, a)->type, n, dim);
}

int onnx_vector(struct onnx *o, int64_t n, int64_t from, int64_t step, enum import_type type)
{
    int64_t *whole;
    float *real;

    if (onnx_failed(o) || onnx_count(o, n, IMPORT_I64) < 0)
        return 0;
    whole = arena_alloc(&o->memory, sizeof *whole * ((size_t)n + 1));
    real = arena_alloc(&o->memory, sizeof *real * ((size_t)n + 1));
    for (int64_t i = 0; i < n; i++) {
        whole[i] = from + i * step;
        real[i] = (float)whole[i];
    }
    return onnx_constant(o, type, 1, &n, type == IMPORT_F32 ? (void *)real : whole);
}

int onnx_pick(struct onnx *o, int x, int dim, int index)
{
    struct import_value v = *onnx_value(o, x);

    v.dim[dim] = onnx_value(o, index)->dim[0];
    onnx_put_value(o, "self", x);
    onnx_put_int(o, "dim", dim);
    onnx_put_value(o, "index", index);
    return onnx_make(o, "index_select.default", v.type, v.n_dims, v.dim);
}

int onnx_flip(struct onnx *o, int x, int dim)
{
    const int64_t n = onnx_value(o, x)->dim[dim];

    return onnx_failed(o) || n < 2 ? x
                                   : onnx_pick(o, x, dim, onnx_vector(o, n, n - 1, -1, IMPORT_I64));
}

int onnx_join(struct onnx *o, int dim, const int *x, int n)
{
    struct import_value v = *onnx_value(o, x[0]);

    for (int i = 1; i < n; i++)
        v.dim[dim] += onnx_value(o, x[i])->dim[dim];
    onnx_put_values(o, "tensors", x, n);
    onnx_put_int(o, "dim", dim);
    return onnx_make(o, "cat.default", v.type, v.n_dims, v.dim);
}

int onnx_matmul(struct onnx *o, int a, int b)
{
    struct import_value v = *onnx_value(o, a);
    const struct import_value *w = onnx_value(o, b);

    if (onnx_failed(o))
        return a;
    v.dim[v.n_dims - 1] = w->dim[w->n_dims - 1];
    onnx_put_value(o, "self", a);
    onnx_put_value(o, "other", b);
    return onnx_make(o, "matmul.default", v.type, v.n_dims, v.dim);
}
