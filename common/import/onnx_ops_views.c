/* onnx_ops_views - ONNX's operators that compute nothing: other shapes, orders and parts.
 *
 * Shapes and indices that are inputs must be constants.
 */
#include <string.h>

#include "base/util.h"
#include "import/onnx_impl.h"

static void views_same(struct onnx *o, const struct onnx_op *op)
{
    (void)op;
    onnx_out(o, 0, onnx_in(o, 0));
}

static int64_t views_count(const struct import_value *v, int from, int to)
{
    int64_t n = 1;

    for (int d = from; d < to; d++)
        n *= v->dim[d];
    return n;
}

static void views_reshape(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0), allows_zero = onnx_int(o, "allowzero", 0) != 0;
    const struct import_value v = *onnx_value(o, x);
    int64_t dim[IMPORT_MAX_DIMS], rest = views_count(&v, 0, v.n_dims);
    const int n = onnx_host_ints(o, onnx_in(o, 1), "shape", dim, IMPORT_MAX_DIMS);
    int open = -1;

    (void)op;
    for (int d = 0; d < n && !onnx_failed(o); d++) {
        if (dim[d] == 0 && !allows_zero && d >= v.n_dims)
            onnx_fail(o, ERR_CONFIG, "its shape copies dimension %d of %d", d, v.n_dims);
        else if (dim[d] == 0 && !allows_zero)
            dim[d] = v.dim[d];
        if (dim[d] == -1 && open < 0)
            open = d;
        else if (dim[d] < 0)
            onnx_fail(o, ERR_CONFIG, "its shape has %lld in dimension %d", (long long)dim[d], d);
        else if (dim[d] > 0)
            rest /= dim[d];
    }
    if (open >= 0)
        dim[open] = rest;
    onnx_out(o, 0, onnx_reshape(o, x, dim, n));
}

static void views_flatten(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);
    const struct import_value v = *onnx_value(o, x);
    const int64_t given = onnx_int(o, "axis", 1);
    const int axis = given == v.n_dims ? v.n_dims : onnx_axis(o, given, v.n_dims);

    (void)op;
    onnx_out(o, 0,
             onnx_reshape(
                 o, x, (int64_t[]){views_count(&v, 0, axis), views_count(&v, axis, v.n_dims)}, 2));
}

static void views_transpose(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);
    const struct import_value v = *onnx_value(o, x);
    int64_t order[IMPORT_MAX_DIMS] = {0};
    const int n = onnx_ints(o, "perm", order, IMPORT_MAX_DIMS);

    for (int d = 0; d < v.n_dims && n < 0; d++)
        order[d] = v.n_dims - 1 - d;
    if (n >= 0 && n != v.n_dims)
        onnx_fail(o, ERR_CONFIG, "perm has %d numbers for %d dimensions", n, v.n_dims);
    if (onnx_failed(o))
        return;
    if (v.n_dims != 2 || order[0] != 1 || order[1] != 0) {
        onnx_out(o, 0, onnx_permute(o, x, order));
        return;
    }
    onnx_put_value(o, "self", x);
    onnx_put_int(o, "dim0", 0);
    onnx_put_int(o, "dim1", 1);
    onnx_out(o, 0, onnx_make(o, op->target, v.type, 2, (int64_t[]){v.dim[1], v.dim[0]}));
}

static void views_squeeze(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);
    const struct import_value *v = onnx_value(o, x);
    int64_t dim[IMPORT_MAX_DIMS] = {0};
    int is_given, n = 0;
    const unsigned dims = onnx_axes(o, 1, v->n_dims, &is_given);

    (void)op;
    for (int d = 0; d < v->n_dims; d++) {
        if (is_given && (dims >> d & 1) && v->dim[d] != 1)
            onnx_fail(o, ERR_CONFIG, "dimension %d has extent %lld, want 1", d,
                      (long long)v->dim[d]);
        if (!(dims >> d & 1) || v->dim[d] != 1)
            dim[n++] = v->dim[d];
    }
    onnx_out(o, 0, onnx_reshape(o, x, dim, n));
}

static void views_unsqueeze(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);
    const struct import_value v = *onnx_value(o, x);
    int64_t axis[IMPORT_MAX_DIMS] = {0}, dim[IMPORT_MAX_DIMS];
    const int k = onnx_ints_of(o, "axes", 1, axis, IMPORT_MAX_DIMS), n = v.n_dims + k;
    unsigned bits = 0;

    (void)op;
    if (k < 1 || n > IMPORT_MAX_DIMS) {
        onnx_fail(o, ERR_UNSUPPORTED, "it makes %d dimensions of %d, want %d at most", n, v.n_dims,
                  IMPORT_MAX_DIMS);
        return;
    }
    for (int i = 0; i < k; i++)
        bits |= 1u << onnx_axis(o, axis[i], n);
    for (int d = 0, from = 0; d < n; d++)
        dim[d] = bits >> d & 1 || from >= v.n_dims ? 1 : v.dim[from++];
    onnx_out(o, 0, onnx_reshape(o, x, dim, n));
}

static void views_expand(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);
    const struct import_value v = *onnx_value(o, x);
    int64_t want[IMPORT_MAX_DIMS], dim[IMPORT_MAX_DIMS];
    const int n_want = onnx_host_ints(o, onnx_in(o, 1), "shape", want, IMPORT_MAX_DIMS);
    const int n = n_want > v.n_dims ? n_want : v.n_dims;

    (void)op;
    for (int d = 0; d < n && !onnx_failed(o); d++) {
        const int i = d - (n - v.n_dims), k = d - (n - n_want);
        const int64_t p = i < 0 ? 1 : v.dim[i], q = k < 0 ? 1 : want[k];

        dim[d] = p == 1 ? q : p;
        if (p != q && p != 1 && q != 1)
            onnx_fail(o, ERR_CONFIG, "extents %lld and %lld do not meet", (long long)p,
                      (long long)q);
    }
    if (!onnx_failed(o))
        onnx_out(o, 0, onnx_expand(o, x, dim, n));
}

/* Each dimension becomes repeats x extent. */
static void views_tile(struct onnx *o, const struct onnx_op *op)
{
    int x = onnx_in(o, 0);
    int64_t times[IMPORT_MAX_DIMS];
    const int n = onnx_value(o, x)->n_dims,
              k = onnx_host_ints(o, onnx_in(o, 1), "repeats", times, IMPORT_MAX_DIMS);

    (void)op;
    if (k != n)
        onnx_fail(o, ERR_CONFIG, "it has %d repeats for %d dimensions", k, n);
    for (int d = 0; d < n && !onnx_failed(o); d++) {
        struct import_value v = *onnx_value(o, x);
        int64_t dim[IMPORT_MAX_DIMS];

        if (times[d] == 1)
            continue;
        if (n >= IMPORT_MAX_DIMS || times[d] < 0 ||
            times[d] > ONNX_MAX_ELEMENTS / max_i64(v.dim[d], 1)) {
            onnx_fail(o, ERR_UNSUPPORTED, "it repeats dimension %d of %d %lld times", d, n,
                      (long long)times[d]);
            return;
        }
        memcpy(dim, v.dim, sizeof dim);
        memmove(dim + d + 1, dim + d, sizeof *dim * (size_t)(n - d));
        dim[d] = 1;
        x = onnx_reshape(o, x, dim, n + 1);
        dim[d] = times[d];
        x = onnx_expand(o, x, dim, n + 1);
        v.dim[d] *= times[d];
        x = onnx_reshape(o, x, v.dim, n);
    }
    onnx_out(o, 0, x);
}

static void views_concat(struct onnx *o, const struct onnx_op *op)
{
    const int n = (int)o->node->n_input;
    int *const x = arena_alloc(&o->memory, sizeof *x * (size_t)n);
    struct import_value v = *onnx_value(o, onnx_in(o, 0));
    const int axis = onnx_axis(o, onnx_int(o, "axis", 0), v.n_dims);

    for (int i = 0; i < n; i++) {
        const struct import_value *w;

        x[i] = onnx_in(o, i);
        w = onnx_value(o, max_i64(x[i], 0));
        for (int d = 0; d < v.n_dims; d++)
            if (x[i] < 0 || w->n_dims != v.n_dims || (d != axis && w->dim[d] != v.dim[d])) {
                onnx_fail(o, ERR_CONFIG, "its tensors do not fit each other");
                return;
            }
        v.dim[axis] += i ? w->dim[axis] : 0;
    }
    onnx_put_values(o, "tensors", x, n);
    onnx_put_int(o, "dim", axis);
    onnx_out(o, 0, onnx_make(o, op->target, v.type, v.n_dims, v.dim));
}

static void views_split(struct onnx *o, const struct onnx_op *op)
{
    enum { MOST = 4096 };
    const int x = onnx_in(o, 0), n = (int)o->node->n_output;
    const struct import_value v = *onnx_value(o, x);
    const int axis = onnx_axis(o, onnx_int(o, "axis", 0), v.n_dims);
    int64_t *part = arena_alloc(&o->memory, sizeof *part * MOST), sum = 0;
    int *out = arena_alloc(&o->memory, sizeof *out * MOST);
    const int given = onnx_ints_of(o, "split", 1, part, MOST);
    const int64_t each = onnx_failed(o) ? 1 : (v.dim[axis] + n - 1) / n;

    if (n > MOST || (given > 0 && given != n))
        onnx_fail(o, ERR_CONFIG, "it has %d outputs for %d parts", n, given);
    for (int i = 0; i < n && !onnx_failed(o); i++) {
        if (given <= 0)
            part[i] = max_i64(0, min_i64(each, v.dim[axis] - sum));
        sum += part[i] < 0 || part[i] > v.dim[axis] ? v.dim[axis] + 1 : part[i];
    }
    if (!onnx_failed(o) && sum != v.dim[axis])
        onnx_fail(o, ERR_CONFIG, "its parts do not fill extent %lld", (long long)v.dim[axis]);
    if (onnx_failed(o))
        return;
    onnx_put_value(o, "self", x);
    onnx_put_ints(o, "split_sizes", part, n);
    onnx_put_int(o, "dim", axis);
    onnx_make_parts(o, op->target, x, axis, part, n, out);
    for (int i = 0; i < n; i++)
        onnx_out(o, i, out[i]);
}

/* The parts as a list, which SequenceAt alone reads; its name stands for the whole. */
static void views_sequence(struct onnx *o, const struct onnx_op *op)
{
    enum { MOST = 4096 };
    const int x = onnx_in(o, 0), given = onnx_in(o, 1);
    const struct import_value v = *onnx_value(o, x);
    const int axis = onnx_axis(o, onnx_int(o, "axis", 0), v.n_dims);
    int64_t *part = arena_alloc(&o->memory, sizeof *part * MOST), each = 1, sum = 0;
    int *out = arena_alloc(&o->memory, sizeof *out * MOST), n = 0;
    json_t *list;

    if (given != IMPORT_NO_VALUE)
        n = onnx_host_ints(o, given, "split", part, MOST);
    if (given == IMPORT_NO_VALUE || onnx_value(o, given)->n_dims == 0) {
        each = n > 0 ? part[0] : 1;
        n = each < 1 || onnx_failed(o) ? 0 : (int)min_i64(MOST, (v.dim[axis] + each - 1) / each);
        for (int i = 0; i < n; i++)
            part[i] = min_i64(each, v.dim[axis] - i * each);
    }
    for (int i = 0; i < n; i++)
        sum += part[i] < 0 || part[i] > v.dim[axis] ? v.dim[axis] + 1 : part[i];
    if (!onnx_failed(o) && (!onnx_int(o, "keepdims", 1) || n < 1 || sum != v.dim[axis]))
        onnx_fail(o, ERR_UNSUPPORTED, "want 1 to %d parts that fill extent %lld, with keepdims",
                  MOST, (long long)v.dim[axis]);
    if (onnx_failed(o))
        return;
    onnx_put_value(o, "self", x);
    onnx_put_ints(o, "split_sizes", part, n);
    onnx_put_int(o, "dim", axis);
    onnx_make_parts(o, op->target, x, axis, part, n, out);
    list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(out[i]));
    json_object_set_new(o->sequences, o->node->output[0], list);
    onnx_out(o, 0, x);
}

static void views_at(struct onnx *o, const struct onnx_op *op)
{
    json_t *list = json_object_get(o->sequences, o->node->input[0]);
    int64_t at = 0;

    (void)op;
    onnx_host_ints(o, onnx_in(o, 1), "position", &at, 1);
    at += at < 0 ? (int64_t)json_array_size(list) : 0;
    if (!list || at < 0 || at >= (int64_t)json_array_size(list))
        onnx_fail(o, ERR_UNSUPPORTED, "it takes value %lld of %zu, want one of SplitToSequence",
                  (long long)at, json_array_size(list));
    else
        onnx_out(o, 0, (int)json_integer_value(json_array_get(list, (size_t)at)));
}

/* Elements start, start + step, ... after stop, where step is negative. */
static int views_slice_back(struct onnx *o, int x, int d, const int64_t range[3])
{
    const int64_t extent = onnx_value(o, x)->dim[d], step = max_i64(range[2], -extent - 1);
    int64_t start = range[0], stop = range[1], n;

    start = min_i64(start < 0 ? max_i64(start, -extent - 1) + extent : start, extent - 1);
    stop = min_i64(stop < 0 ? max_i64(stop, -extent - 1) + extent : stop, extent - 1);
    n = start > stop ? (start - stop - 1) / -step + 1 : 0;
    if (n < 1 || start < 0) {
        onnx_fail(o, ERR_UNSUPPORTED, "it takes no elements of dimension %d", d);
        return x;
    }
    return onnx_pick(o, x, d, onnx_vector(o, n, start, step, IMPORT_I64));
}

static void views_slice(struct onnx *o, const struct onnx_op *op)
{
    int x = onnx_in(o, 0);
    const int n_dims = onnx_value(o, x)->n_dims;
    int64_t list[4][IMPORT_MAX_DIMS];
    int n = 0;

    (void)op;
    for (int i = 0; i < IMPORT_MAX_DIMS; i++) {
        list[2][i] = i;
        list[3][i] = 1;
    }
    for (int i = 0; i < 4 && !onnx_failed(o); i++) {
        const int v = onnx_in(o, 1 + i);
        const int k = v == IMPORT_NO_VALUE ? n
                                           : onnx_host_ints(o, v, "starts, ends, axes or steps",
                                                            list[i], IMPORT_MAX_DIMS);

        if (i == 0)
            n = k;
        if (k != n)
            onnx_fail(o, ERR_CONFIG, "it has %d starts and %d of another list", n, k);
    }
    for (int i = 0; i < n && !onnx_failed(o); i++) {
        const int d = onnx_axis(o, list[2][i], n_dims);
        const int64_t extent = onnx_value(o, x)->dim[d];
        int64_t start = list[0][i], stop = list[1][i];

        if (list[3][i] < 0) {
            x = views_slice_back(o, x, d, (int64_t[]){start, stop, list[3][i]});
            continue;
        }
        if (list[3][i] == 0)
            onnx_fail(o, ERR_CONFIG, "its step is 0");
        start = start < 0 ? max_i64(start, -extent) + extent : start;
        stop = stop < 0 ? max_i64(stop, -extent) + extent : stop;
        if (!onnx_failed(o))
            x = onnx_slice(o, x, d, start, stop, list[3][i]);
    }
    onnx_out(o, 0, x);
}

/* ---- elements by number ---- */

/* Constant indices, of which negative ones count from the end, as a vector of others. */
static int views_wrapped(struct onnx *o, const struct host_tensor *h, int64_t n, int64_t extent)
{
    int64_t *index =
        host_is_real(h->type) ? NULL : arena_alloc(&o->memory, sizeof *index * (size_t)n);

    if (!index)
        onnx_fail(o, ERR_CORRUPT, "its indices are real numbers, want integers");
    for (int64_t i = 0; i < n && !onnx_failed(o); i++) {
        index[i] = host_integer(h, i);
        if (index[i] < -extent || index[i] >= extent)
            onnx_fail(o, ERR_CONFIG, "index %lld of an extent of %lld", (long long)index[i],
                      (long long)extent);
        index[i] += index[i] < 0 ? extent : 0;
    }
    return onnx_failed(o) ? 0 : onnx_constant(o, IMPORT_I64, 1, &n, index);
}

/* The elements of x that the vector `index` names along `axis`; a computed one may be negative. */
static int views_pick(struct onnx *o, int x, int axis, int index, int is_constant)
{
    struct import_value v = *onnx_value(o, x);
    int all[IMPORT_MAX_DIMS];

    v.dim[axis] = onnx_value(o, index)->dim[0];
    onnx_put_value(o, "self", x);
    if (is_constant) {
        onnx_put_int(o, "dim", axis);
        onnx_put_value(o, "index", index);
        return onnx_make(o, "index_select.default", v.type, v.n_dims, v.dim);
    }
    for (int d = 0; d < axis; d++)
        all[d] = IMPORT_NO_VALUE;
    all[axis] = index;
    onnx_put_values(o, "indices", all, axis + 1);
    return onnx_make(o, "index.Tensor", v.type, v.n_dims, v.dim);
}

static void views_gather(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0), index = onnx_in(o, 1);
    const struct import_value v = *onnx_value(o, x), k = *onnx_value(o, index);
    const int axis = onnx_axis(o, onnx_int(o, "axis", 0), v.n_dims);
    const struct host_tensor *h = onnx_host(o, index);
    const int is_table = axis == 0 && v.n_dims == 2 && !h && host_is_real(v.type);
    struct import_value y = {.type = v.type};
    int64_t count;
    int z = index;

    (void)op;
    if (onnx_failed(o) || v.n_dims + k.n_dims - 1 > IMPORT_MAX_DIMS) {
        onnx_fail(o, ERR_UNSUPPORTED, "its output has more than %d dimensions", IMPORT_MAX_DIMS);
        return;
    }
    for (int d = 0; d < v.n_dims; d++)
        if (d != axis)
            y.dim[y.n_dims++] = v.dim[d];
        else
            for (int e = 0; e < k.n_dims; e++)
                y.dim[y.n_dims++] = k.dim[e];
    if (h && k.n_dims == 0) {
        onnx_put_value(o, "self", x);
        onnx_put_int(o, "dim", axis);
        onnx_put_int(o, "index", host_integer(h, 0));
        onnx_out(o, 0, onnx_make(o, "select.int", v.type, y.n_dims, y.dim));
        return;
    }
    if (is_table) {
        onnx_put_value(o, "weight", x);
        onnx_put_value(o, "indices", index);
        onnx_out(o, 0, onnx_make(o, "embedding.default", v.type, y.n_dims, y.dim));
        return;
    }
    count = views_count(&k, 0, k.n_dims);
    if (h)
        z = views_wrapped(o, h, count, v.dim[axis]);
    z = onnx_reshape(o, z, &count, 1);
    onnx_out(o, 0, onnx_reshape(o, views_pick(o, x, axis, z, h != NULL), y.dim, y.n_dims));
}

static void views_gather_elements(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);
    int index = onnx_in(o, 1);
    const struct import_value v = *onnx_value(o, x), k = *onnx_value(o, index);
    const int axis = onnx_axis(o, onnx_int(o, "axis", 0), v.n_dims);
    const struct host_tensor *h = onnx_host(o, index);

    if (h && !onnx_failed(o)) /* negative ones count from the end */
        index = onnx_reshape(o, views_wrapped(o, h, views_count(&k, 0, k.n_dims), v.dim[axis]),
                             k.dim, k.n_dims);
    onnx_put_value(o, "self", x);
    onnx_put_int(o, "dim", axis);
    onnx_put_value(o, "index", index);
    onnx_out(o, 0, onnx_make(o, op->target, v.type, k.n_dims, k.dim));
}

/* ---- pads, triangles, blocks, sizes ---- */

static void views_pad_by_copies(struct onnx *o, int x, int64_t pad[2][IMPORT_MAX_DIMS],
                                const char *mode)
{
    if (strcmp(mode, "reflect") != 0 && strcmp(mode, "edge") != 0 && strcmp(mode, "wrap") != 0)
        onnx_fail(o, ERR_UNSUPPORTED, "its mode is %.40s, want constant, reflect, edge or wrap",
                  mode);
    for (int d = 0; d < onnx_value(o, x)->n_dims; d++)
        x = onnx_pad_by_copies(o, x, d, (int64_t[]){pad[0][d], pad[1][d]}, mode);
    onnx_out(o, 0, x);
}

static void views_pad(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0), value = onnx_in(o, 2);
    struct import_value v = *onnx_value(o, x);
    int64_t pads[2 * IMPORT_MAX_DIMS], turned[2 * IMPORT_MAX_DIMS], axis[IMPORT_MAX_DIMS],
        whole[2][IMPORT_MAX_DIMS] = {{0}};
    const int n = onnx_host_ints(o, onnx_in(o, 1), "pads", pads, 2 * IMPORT_MAX_DIMS);
    const int n_axes = onnx_in(o, 3) == IMPORT_NO_VALUE
                           ? -1
                           : onnx_host_ints(o, onnx_in(o, 3), "axes", axis, IMPORT_MAX_DIMS);
    const int k = n_axes < 0 ? v.n_dims : n_axes;
    const struct host_tensor *h = onnx_host(o, value);
    const char *mode = onnx_text(o, "mode", "constant");

    if (value >= 0 && !h)
        onnx_fail(o, ERR_UNSUPPORTED, "it pads with a number that is no constant");
    if (n != 2 * k)
        onnx_fail(o, ERR_CONFIG, "it has %d pads for %d dimensions", n, k);
    for (int i = 0; i < k && !onnx_failed(o); i++) {
        const int d = n_axes < 0 ? i : onnx_axis(o, axis[i], v.n_dims);

        whole[0][d] = pads[i];
        whole[1][d] = pads[k + i];
    }
    for (int d = 0; d < v.n_dims; d++) {
        turned[2 * (v.n_dims - 1 - d)] = whole[0][d];
        turned[2 * (v.n_dims - 1 - d) + 1] = whole[1][d];
        if (whole[0][d] < -INT32_MAX || whole[0][d] > INT32_MAX || whole[1][d] < -INT32_MAX ||
            whole[1][d] > INT32_MAX)
            onnx_fail(o, ERR_CONFIG, "its pads are beyond 31 bits");
        else
            v.dim[d] += whole[0][d] + whole[1][d];
    }
    if (!onnx_failed(o) && strcmp(mode, "constant") != 0)
        views_pad_by_copies(o, x, whole, mode);
    if (onnx_failed(o) || strcmp(mode, "constant") != 0)
        return;
    onnx_put_value(o, "self", x);
    onnx_put_ints(o, "pad", turned, 2 * v.n_dims);
    onnx_put_real(o, "value", h && host_count(h) == 1 ? host_element(h, 0) : 0);
    onnx_out(o, 0, onnx_make(o, op->target, v.type, v.n_dims, v.dim));
}

static void views_trilu(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0), upper = onnx_int(o, "upper", 1) != 0;
    int64_t k = 0;

    (void)op;
    if (onnx_in(o, 1) != IMPORT_NO_VALUE)
        onnx_host_ints(o, onnx_in(o, 1), "diagonal", &k, 1);
    onnx_put_value(o, "self", x);
    onnx_put_int(o, "diagonal", k);
    onnx_out(o, 0, onnx_make_like(o, upper ? "triu.default" : "tril.default", x));
}

/* Blocks of channels become blocks of places, or the other way round. */
static void views_blocks(struct onnx *o, const struct onnx_op *op)
{
    int x = onnx_in(o, 0);
    const struct import_value v = *onnx_value(o, x);
    const int64_t b = onnx_int(o, "blocksize", 0), N = v.dim[0], C = v.dim[1], H = v.dim[2],
                  W = v.dim[3];
    const int is_depth = !strcmp(op->name, "DepthToSpace"),
              is_crd = !strcmp(onnx_text(o, "mode", "DCR"), "CRD");

    if (v.n_dims != 4 || b < 1 || b > INT16_MAX ||
        (is_depth ? C % (b * b) != 0 : H < b || W < b || H % b != 0 || W % b != 0)) {
        onnx_fail(o, ERR_CONFIG, "blocks of %lld do not fit its input", (long long)b);
        return;
    }
    if (!is_depth) {
        x = onnx_reshape(o, x, (int64_t[]){N, C, H / b, b, W / b, b}, 6);
        x = onnx_permute(o, x, (int64_t[]){0, 3, 5, 1, 2, 4});
        x = onnx_reshape(o, x, (int64_t[]){N, C * b * b, H / b, W / b}, 4);
    } else {
        x = is_crd ? onnx_reshape(o, x, (int64_t[]){N, C / (b * b), b, b, H, W}, 6)
                   : onnx_reshape(o, x, (int64_t[]){N, b, b, C / (b * b), H, W}, 6);
        x = onnx_permute(o, x,
                         is_crd ? (int64_t[]){0, 1, 4, 2, 5, 3} : (int64_t[]){0, 3, 4, 1, 5, 2});
        x = onnx_reshape(o, x, (int64_t[]){N, C / (b * b), H * b, W * b}, 4);
    }
    onnx_out(o, 0, x);
}

const struct onnx_op onnx_views[] = {
    {"Identity", views_same, NULL, 1, 0},
    {"Reshape", views_reshape, NULL, 2, 0},
    {"Flatten", views_flatten, NULL, 1, 0},
    {"Transpose", views_transpose, "transpose.int", 1, 0},
    {"Squeeze", views_squeeze, NULL, 1, 0},
    {"Unsqueeze", views_unsqueeze, NULL, 1, 0},
    {"Expand", views_expand, NULL, 2, 0},
    {"Tile", views_tile, NULL, 2, 0},
    {"Concat", views_concat, "cat.default", 1, 0},
    {"Split", views_split, "split_with_sizes.default", 1, 0},
    {"SplitToSequence", views_sequence, "split_with_sizes.default", 1, 0},
    {"SequenceAt", views_at, NULL, 2, 0},
    {"Slice", views_slice, NULL, 3, 0},
    {"Gather", views_gather, NULL, 2, 0},
    {"GatherElements", views_gather_elements, "gather.default", 2, 0},
    {"Pad", views_pad, "constant_pad_nd.default", 2, 0},
    {"Trilu", views_trilu, NULL, 1, 14},
    {"DepthToSpace", views_blocks, NULL, 1, 0},
    {"SpaceToDepth", views_blocks, NULL, 1, 0},
    {0},
};
