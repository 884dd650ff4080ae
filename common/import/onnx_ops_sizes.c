/* onnx_ops_sizes - ONNX's constants, shapes as numbers, and ranges.
 *
 * All of them are known while the file is read, so none becomes a node.
 */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "import/onnx_impl.h"

enum { ONNX_MAX_RANGE = 1 << 20 };

static void sizes_shape(struct onnx *o, const struct onnx_op *op)
{
    const struct import_value v = *onnx_value(o, onnx_in(o, 0));
    int64_t start = onnx_int(o, "start", 0), stop = onnx_int(o, "end", v.n_dims), n;

    (void)op;
    import_slice_ends(v.n_dims, &start, &stop);
    n = stop - start;
    onnx_out(o, 0, onnx_constant(o, IMPORT_I64, 1, &n, v.dim + start));
}

static void sizes_count(struct onnx *o, const struct onnx_op *op)
{
    const struct import_value v = *onnx_value(o, onnx_in(o, 0));
    int64_t n = 1;

    (void)op;
    for (int d = 0; d < v.n_dims; d++)
        n *= v.dim[d];
    onnx_out(o, 0, onnx_constant(o, IMPORT_I64, 0, NULL, &n));
}

/* A tensor in an attribute, as a constant. */
static int sizes_tensor(struct onnx *o, const Onnx__TensorProto *t)
{
    struct import_value like;
    int64_t n;
    void *to;

    if (onnx_tensor_shape(t, &like, &n, o->err) < 0) {
        o->rc = err_wrap(o->err, "node %s", o->node->name ? o->node->name : "");
        return 0;
    }
    if (n > FOLD_MAX_ELEMENTS) {
        onnx_fail(o, ERR_UNSUPPORTED, "it has %lld elements, want %d at most", (long long)n,
                  FOLD_MAX_ELEMENTS);
        return 0;
    }
    to = arena_alloc(&o->memory, (size_t)n * import_type_size(like.type) + 1);
    if (onnx_tensor_read(o->file->path, t, 0, n, to, o->err) < 0) {
        o->rc = o->err->code;
        return 0;
    }
    return onnx_constant(o, like.type, like.n_dims, like.dim, to);
}

static void sizes_constant(struct onnx *o, const struct onnx_op *op)
{
    const Onnx__AttributeProto *a = o->node->n_attribute == 1 ? o->node->attribute[0] : NULL;
    int64_t n = a ? (int64_t)(a->n_ints ? a->n_ints : a->n_floats) : 0;

    (void)op;
    if (!a || !a->name)
        onnx_fail(o, ERR_CORRUPT, "it has %zu attributes, want one", o->node->n_attribute);
    else if (!strcmp(a->name, "value") && a->t)
        onnx_out(o, 0, sizes_tensor(o, a->t));
    else if (!strcmp(a->name, "value_int"))
        onnx_out(o, 0, onnx_constant(o, IMPORT_I64, 0, NULL, &a->i));
    else if (!strcmp(a->name, "value_float"))
        onnx_out(o, 0, onnx_constant(o, IMPORT_F32, 0, NULL, &a->f));
    else if (!strcmp(a->name, "value_ints"))
        onnx_out(o, 0, onnx_constant(o, IMPORT_I64, 1, &n, n ? a->ints : &n));
    else if (!strcmp(a->name, "value_floats"))
        onnx_out(o, 0, onnx_constant(o, IMPORT_F32, 1, &n, n ? (void *)a->floats : &n));
    else
        onnx_fail(o, ERR_UNSUPPORTED, "its %.40s is no tensor of numbers", a->name);
}

static void sizes_filled(struct onnx *o, const struct onnx_op *op)
{
    static const int64_t ones[IMPORT_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    const Onnx__AttributeProto *a = onnx_attr(o, "value");
    int64_t dim[IMPORT_MAX_DIMS];
    const int n = onnx_host_ints(o, onnx_in(o, 0), "shape", dim, IMPORT_MAX_DIMS);
    const float zero = 0;
    int x;

    (void)op;
    if (onnx_failed(o))
        return;
    x = a && a->t ? sizes_tensor(o, a->t) : onnx_constant(o, IMPORT_F32, 0, NULL, &zero);
    onnx_out(o, 0, onnx_expand(o, onnx_reshape(o, x, ones, n), dim, n));
}

/* start, start + step, ... before limit. */
static void sizes_sequence(struct onnx *o, const struct onnx_op *op)
{
    const struct host_tensor *h[3];
    const enum import_type type = onnx_value(o, onnx_in(o, 0))->type;
    double v[3], count;
    int64_t n;
    struct host_tensor to = {.type = type};

    (void)op;
    for (int i = 0; i < 3; i++) {
        h[i] = onnx_host(o, onnx_in(o, i));
        if (!h[i] || host_count(h[i]) != 1) {
            onnx_fail(o, ERR_UNSUPPORTED, "its start, limit or step is no constant number");
            return;
        }
        v[i] = host_element(h[i], 0);
    }
    count = v[2] != 0 ? ceil((v[1] - v[0]) / v[2]) : -1;
    if (!(count <= ONNX_MAX_RANGE) || v[2] == 0 ||
        (type != IMPORT_I64 && type != IMPORT_I32 && type != IMPORT_F32 && type != IMPORT_F64)) {
        onnx_fail(o, ERR_UNSUPPORTED, "it has %g numbers of type %s, want %d at most", count,
                  import_type_name(type), ONNX_MAX_RANGE);
        return;
    }
    n = count > 0 ? (int64_t)count : 0;
    to.data = arena_alloc(&o->memory, (size_t)n * 8 + 1);
    for (int64_t i = 0; i < n; i++) {
        const double x = v[0] + (double)i * v[2];

        switch (type) {
        case IMPORT_I64:
            ((int64_t *)to.data)[i] = (int64_t)x;
            break;
        case IMPORT_I32:
            ((int32_t *)to.data)[i] = (int32_t)x;
            break;
        case IMPORT_F32:
            ((float *)to.data)[i] = (float)x;
            break;
        default:
            ((double *)to.data)[i] = x;
        }
    }
    onnx_out(o, 0, onnx_constant(o, type, 1, &n, to.data));
}

const struct onnx_op onnx_sizes[] = {
    {"Shape", sizes_shape, NULL, 1, 0},       {"Size", sizes_count, NULL, 1, 0},
    {"Constant", sizes_constant, NULL, 0, 0}, {"ConstantOfShape", sizes_filled, NULL, 1, 0},
    {"Range", sizes_sequence, NULL, 3, 0},    {0},
};
