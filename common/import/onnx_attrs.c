/* onnx_attrs - attributes of ONNX's nodes, and the shapes that many operators need.
 *
 * After a failure all functions give harmless values.
 */
#include <string.h>

#include "base/util.h"
#include "import/onnx_impl.h"

const Onnx__AttributeProto *onnx_attr(const struct onnx *o, const char *name)
{
    for (size_t i = 0; i < o->node->n_attribute; i++)
        if (o->node->attribute[i]->name && !strcmp(o->node->attribute[i]->name, name))
            return o->node->attribute[i];
    return NULL;
}

int64_t onnx_int(const struct onnx *o, const char *name, int64_t def)
{
    const Onnx__AttributeProto *a = onnx_attr(o, name);

    return a && a->has_i ? a->i : def;
}

double onnx_real(const struct onnx *o, const char *name, double def)
{
    const Onnx__AttributeProto *a = onnx_attr(o, name);

    return a && a->has_f ? (double)a->f : def;
}

const char *onnx_text(struct onnx *o, const char *name, const char *def)
{
    const Onnx__AttributeProto *a = onnx_attr(o, name);

    return a && a->has_s ? arena_printf(&o->memory, "%.*s", (int)min_i64((int64_t)a->s.len, 4096),
                                        (const char *)a->s.data)
                         : def;
}

int onnx_ints(struct onnx *o, const char *name, int64_t *to, int most)
{
    const Onnx__AttributeProto *a = onnx_attr(o, name);

    if (!a)
        return -1;
    if (a->n_ints > (size_t)most) {
        onnx_fail(o, ERR_UNSUPPORTED, "its %s has %zu numbers, want %d at most", name, a->n_ints,
                  most);
        return -1;
    }
    memcpy(to, a->ints, a->n_ints * sizeof *to);
    return (int)a->n_ints;
}

int onnx_ints_of(struct onnx *o, const char *name, int i, int64_t *to, int most)
{
    const int v = onnx_in(o, i);

    if (v == IMPORT_NO_VALUE)
        return onnx_ints(o, name, to, most);
    return onnx_host_ints(o, v, name, to, most);
}

int onnx_axis(struct onnx *o, int64_t axis, int n)
{
    const int64_t at = axis < 0 ? axis + n : axis;

    if (at >= 0 && at < n)
        return (int)at;
    onnx_fail(o, ERR_CONFIG, "axis is %lld, want a dimension of %d", (long long)axis, n);
    return 0;
}

unsigned onnx_axes(struct onnx *o, int i, int n, int *is_given)
{
    int64_t axis[IMPORT_MAX_DIMS];
    const int count = onnx_ints_of(o, "axes", i, axis, IMPORT_MAX_DIMS);
    unsigned bits = 0;

    *is_given = count > 0;
    for (int k = 0; k < count && !onnx_failed(o); k++)
        bits |= 1u << onnx_axis(o, axis[k], n);
    return count > 0 ? bits : (1u << n) - 1;
}

/* ---- shapes ---- */

int onnx_meet(struct onnx *o, int a, int b, int64_t *dim)
{
    const struct import_value x = *onnx_value(o, a), y = *onnx_value(o, b);
    const int n = x.n_dims > y.n_dims ? x.n_dims : y.n_dims;

    for (int d = 0; d < n; d++) {
        const int i = d - (n - x.n_dims), k = d - (n - y.n_dims);
        const int64_t p = i < 0 ? 1 : x.dim[i], q = k < 0 ? 1 : y.dim[k];

        dim[d] = p == 1 ? q : p;
        if (p != q && p != 1 && q != 1)
            onnx_fail(o, ERR_CONFIG, "extents %lld and %lld of %s and %s do not meet", (long long)p,
                      (long long)q, x.name, y.name);
    }
    return n;
}

static int shape_is(const struct import_value *x, const int64_t *dim, int n)
{
    return x->n_dims == n && !memcmp(x->dim, dim, (size_t)n * sizeof *dim);
}

int onnx_reshape(struct onnx *o, int x, const int64_t *dim, int n)
{
    const struct import_value v = *onnx_value(o, x);
    int64_t from = 1, to = 1;

    for (int d = 0; d < v.n_dims; d++)
        from *= v.dim[d];
    for (int d = 0; d < n; d++)
        to = dim[d] < 0 || (dim[d] > 0 && to > INT64_MAX / dim[d]) ? -1 : to * dim[d];
    if (from != to)
        onnx_fail(o, ERR_CONFIG, "it reshapes %lld elements to %lld", (long long)from,
                  (long long)to);
    if (onnx_failed(o) || shape_is(&v, dim, n))
        return x;
    onnx_put_value(o, "self", x);
    onnx_put_ints(o, "shape", dim, n);
    return onnx_make(o, "reshape.default", v.type, n, dim);
}

int onnx_expand(struct onnx *o, int x, const int64_t *dim, int n)
{
    const struct import_value v = *onnx_value(o, x);

    if (onnx_failed(o) || shape_is(&v, dim, n))
        return x;
    onnx_put_value(o, "self", x);
    onnx_put_ints(o, "size", dim, n);
    return onnx_make(o, "expand.default", v.type, n, dim);
}

int onnx_permute(struct onnx *o, int x, const int64_t *order)
{
    const struct import_value v = *onnx_value(o, x);
    int64_t dim[IMPORT_MAX_DIMS];
    unsigned seen = 0;
    int is_same = 1;

    for (int d = 0; d < v.n_dims; d++) {
        if (order[d] < 0 || order[d] >= v.n_dims || seen >> order[d] & 1) {
            onnx_fail(o, ERR_CONFIG, "perm is no order of %d dimensions", v.n_dims);
            return x;
        }
        seen |= 1u << order[d];
        dim[d] = v.dim[order[d]];
        is_same &= order[d] == d;
    }
    if (is_same)
        return x;
    onnx_put_value(o, "self", x);
    onnx_put_ints(o, "dims", order, v.n_dims);
    return onnx_make(o, "permute.default", v.type, v.n_dims, dim);
}

int onnx_slice(struct onnx *o, int x, int dim, int64_t start, int64_t stop, int64_t step)
{
    struct import_value v = *onnx_value(o, x);
    const int64_t n = v.dim[dim];

    start = max_i64(0, min_i64(start, n));
    stop = max_i64(start, min_i64(stop, n));
    if (onnx_failed(o) || (start == 0 && stop == n && step == 1))
        return x;
    onnx_put_value(o, "self", x);
    onnx_put_int(o, "dim", dim);
    onnx_put_int(o, "start", start);
    onnx_put_int(o, "end", stop);
    onnx_put_int(o, "step", step);
    v.dim[dim] = step > 0 && stop > start ? (stop - start - 1) / step + 1 : 0;
    return onnx_make(o, "slice.Tensor", v.type, v.n_dims, v.dim);
}

int onnx_binary(struct onnx *o, const char *target, int a, int b)
{
    int64_t dim[IMPORT_MAX_DIMS];
    const int n = onnx_meet(o, a, b, dim);

    onnx_put_value(o, "self", a);
    onnx_put_number_or_value(o, "other", b, a);
    return onnx_make(o, target, onnx_value(o, a)->type, n, dim);
}
