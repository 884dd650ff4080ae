/* onnx_ops_norms - ONNX's norms.  A batch norm trains in training, whatever the file
 * says of its mode; its momentum is the part of the old statistics, which is 1 - PyTorch's. */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "import/onnx_impl.h"

/* ---- norms ---- */

static void norms_batch(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);

    for (int i = 1; i < 5; i++)
        if (onnx_value(o, x)->n_dims < 2 || onnx_value(o, onnx_in(o, i))->n_dims != 1 ||
            onnx_value(o, onnx_in(o, i))->dim[0] != onnx_value(o, x)->dim[1]) {
            onnx_fail(o, ERR_CONFIG, "its input %d has not one number for each channel", i);
            return;
        }
    onnx_buffer(o, onnx_in(o, 3));
    onnx_buffer(o, onnx_in(o, 4));
    onnx_put_value(o, "input", x);
    onnx_put_value(o, "weight", onnx_in(o, 1));
    onnx_put_value(o, "bias", onnx_in(o, 2));
    onnx_put_value(o, "running_mean", onnx_in(o, 3));
    onnx_put_value(o, "running_var", onnx_in(o, 4));
    onnx_put_flag(o, "training", 1);
    onnx_put_real(o, "momentum", 1 - onnx_real(o, "momentum", 0.9f));
    onnx_put_real(o, "eps", onnx_real(o, "epsilon", 1e-5f));
    onnx_out(o, 0, onnx_make_like(o, op->target, x));
}

/* The extents of x that are normalised, from `axis` on; their number. */
static int norms_extents(struct onnx *o, int x, int64_t *dim)
{
    const struct import_value v = *onnx_value(o, x);
    const int axis = onnx_axis(o, onnx_int(o, "axis", -1), v.n_dims);

    for (int d = axis; d < v.n_dims; d++)
        dim[d - axis] = v.dim[d];
    return v.n_dims - axis;
}

/* The mean and the reciprocal of the standard deviation over the last n dimensions, if they are
 * read. */
static void norms_statistics(struct onnx *o, int x, int n)
{
    const int n_dims = onnx_value(o, x)->n_dims;
    const unsigned dims = ((1u << n) - 1) << (n_dims - n);
    int mean, y;

    if (o->node->n_output < 2)
        return;
    mean = onnx_reduce(o, "mean.dim", x, dims, 1);
    onnx_out(o, 1, mean);
    if (o->node->n_output < 3 || !*o->node->output[2])
        return;
    y = onnx_unary(o, "square.default", onnx_pair(o, "sub.Tensor", x, mean));
    y = onnx_reduce(o, "mean.dim", y, dims, 1);
    y = onnx_affine(o, y, 1, onnx_real(o, "epsilon", 1e-5f));
    onnx_out(o, 2, onnx_unary(o, "rsqrt.default", y));
}

/* x with its last n dimensions as one. */
static int norms_flat(struct onnx *o, int x, int n)
{
    struct import_value v = *onnx_value(o, x);
    int64_t count = 1;

    for (int d = v.n_dims - n; d < v.n_dims; d++)
        count *= v.dim[d];
    v.dim[v.n_dims - n] = count;
    return onnx_reshape(o, x, v.dim, v.n_dims - n + 1);
}

static void norms_layer(struct onnx *o, const struct onnx_op *op)
{
    int x = onnx_in(o, 0), w = onnx_in(o, 1);
    const int b = onnx_in(o, 2);
    const struct import_value whole = *onnx_value(o, x);
    int64_t dim[IMPORT_MAX_DIMS];
    int n = norms_extents(o, x, dim), y;
    const int is_rms = !strcmp(op->name, "RMSNormalization");

    if (!onnx_failed(o) && (onnx_value(o, w)->n_dims != n ||
                            memcmp(onnx_value(o, w)->dim, dim, sizeof *dim * (size_t)n) != 0))
        onnx_fail(o, ERR_UNSUPPORTED, "its scale has another shape than what it normalises");
    if (onnx_failed(o))
        return;
    if (!is_rms)
        norms_statistics(o, x, n);
    if (is_rms && n > 1) {
        x = norms_flat(o, x, n);
        w = norms_flat(o, w, n);
        dim[0] = onnx_value(o, w)->dim[0];
        n = 1;
    }
    onnx_put_value(o, "input", x);
    onnx_put_ints(o, "normalized_shape", dim, n);
    onnx_put_value(o, "weight", w);
    if (!is_rms)
        onnx_put_value(o, "bias", b);
    onnx_put_real(o, "eps", onnx_real(o, "epsilon", 1e-5f));
    y = onnx_make_like(o, op->target, x);
    onnx_out(o, 0, onnx_reshape(o, y, whole.dim, whole.n_dims));
}

/* The scale or bias, of one number for each of n channels, or of `groups` groups of them (0: none).
 */
static int norms_channels(struct onnx *o, int i, int64_t n, int64_t groups)
{
    const int v = onnx_in(o, i);
    const struct import_value x = *onnx_value(o, v);
    int y = v;

    if (x.n_dims == 1 && x.dim[0] == n)
        return v;
    if (x.n_dims != 1 || groups < 1 || x.dim[0] != groups) {
        onnx_fail(o, ERR_CONFIG, "its input %d has %lld numbers, want one for each of %lld %s", i,
                  (long long)(x.n_dims == 1 ? x.dim[0] : 0), (long long)(groups ? groups : n),
                  groups ? "groups" : "channels");
        return v;
    }
    y = onnx_reshape(o, y, (int64_t[]){x.dim[0], 1}, 2);
    y = onnx_expand(o, y, (int64_t[]){x.dim[0], n / x.dim[0]}, 2);
    return onnx_reshape(o, y, &n, 1);
}

static void norms_group(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0);
    const struct import_value v = *onnx_value(o, x);
    const int64_t n = v.n_dims < 3 ? 0 : v.dim[1],
                  groups = op->since ? onnx_int(o, "num_groups", 0) : n,
                  per = op->since && o->opset < 21 ? groups : 0;
    int w, b;

    if (n < 1 || groups < 1 || n % groups != 0) {
        onnx_fail(o, ERR_CONFIG, "it has %lld groups for %lld channels", (long long)groups,
                  (long long)n);
        return;
    }
    w = norms_channels(o, 1, n, per);
    b = norms_channels(o, 2, n, per);
    onnx_put_value(o, "input", x);
    onnx_put_int(o, "num_groups", groups);
    onnx_put_value(o, "weight", w);
    onnx_put_value(o, "bias", b);
    onnx_put_real(o, "eps", onnx_real(o, "epsilon", 1e-5f));
    onnx_out(o, 0, onnx_make_like(o, op->target, x));
}

const struct onnx_op onnx_norms[] = {
    {"BatchNormalization", norms_batch, "batch_norm.default", 5, 0},
    {"LayerNormalization", norms_layer, "layer_norm.default", 2, 17},
    {"RMSNormalization", norms_layer, "rms_norm.default", 2, 23},
    {"GroupNormalization", norms_group, "group_norm.default", 3, 18},
    {"InstanceNormalization", norms_group, "group_norm.default", 3, 0},
    {0},
};
