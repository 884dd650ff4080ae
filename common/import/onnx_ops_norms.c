/* onnx_ops_norms - ONNX's norms and attention.  A batch norm trains in training, whatever the file
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

static void norms_layer(struct onnx *o, const struct onnx_op *op)
{
    const int x = onnx_in(o, 0), w = onnx_in(o, 1), b = onnx_in(o, 2);
    int64_t dim[IMPORT_MAX_DIMS];
    const int n = norms_extents(o, x, dim), is_rms = !strcmp(op->name, "RMSNormalization");

    if (!onnx_failed(o) && (onnx_value(o, w)->n_dims != n ||
                            memcmp(onnx_value(o, w)->dim, dim, sizeof *dim * (size_t)n) != 0))
        onnx_fail(o, ERR_UNSUPPORTED, "its scale has another shape than what it normalises");
    if (o->node->n_output > 1 && *o->node->output[1])
        onnx_fail(o, ERR_UNSUPPORTED, "its second output is not supported");
    onnx_put_value(o, "input", x);
    onnx_put_ints(o, "normalized_shape", dim, n);
    onnx_put_value(o, "weight", w);
    if (!is_rms)
        onnx_put_value(o, "bias", b);
    onnx_put_real(o, "eps", onnx_real(o, "epsilon", 1e-5f));
    onnx_out(o, 0, onnx_make_like(o, op->target, x));
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

/* ---- attention ---- */

/* [N,T,H D] -> [N,H,T,D]. */
static int norms_heads(struct onnx *o, int x, int64_t heads)
{
    const struct import_value v = *onnx_value(o, x);

    if (v.n_dims == 4)
        return x;
    if (v.n_dims != 3 || heads < 1 || v.dim[2] % heads != 0) {
        onnx_fail(o, ERR_CONFIG, "it has %lld heads for a tensor of %d dimensions",
                  (long long)heads, v.n_dims);
        return x;
    }
    x = onnx_reshape(o, x, (int64_t[]){v.dim[0], v.dim[1], heads, v.dim[2] / heads}, 4);
    return onnx_permute(o, x, (int64_t[]){0, 2, 1, 3});
}

/* Keys or values of fewer heads, each for a group of queries. */
static int norms_repeat_heads(struct onnx *o, int x, int64_t heads)
{
    const struct import_value v = *onnx_value(o, x);

    if (v.dim[1] == heads || onnx_failed(o))
        return x;
    if (v.dim[1] < 1 || heads % v.dim[1] != 0) {
        onnx_fail(o, ERR_CONFIG, "it has %lld heads of queries for %lld of keys", (long long)heads,
                  (long long)v.dim[1]);
        return x;
    }
    x = onnx_reshape(o, x, (int64_t[]){v.dim[0], v.dim[1], 1, v.dim[2], v.dim[3]}, 5);
    x = onnx_expand(o, x, (int64_t[]){v.dim[0], v.dim[1], heads / v.dim[1], v.dim[2], v.dim[3]}, 5);
    return onnx_reshape(o, x, (int64_t[]){v.dim[0], heads, v.dim[2], v.dim[3]}, 4);
}

static void norms_attention(struct onnx *o, const struct onnx_op *op)
{
    const int lines = onnx_value(o, onnx_in(o, 0))->n_dims == 3;
    int q = norms_heads(o, onnx_in(o, 0), onnx_int(o, "q_num_heads", 0));
    int k = norms_heads(o, onnx_in(o, 1), onnx_int(o, "kv_num_heads", 0));
    int v = norms_heads(o, onnx_in(o, 2), onnx_int(o, "kv_num_heads", 0));
    struct import_value x;
    int y;

    for (int i = 4; i < (int)o->node->n_input; i++)
        if (*o->node->input[i])
            onnx_fail(o, ERR_UNSUPPORTED, "its past keys and values are not supported");
    for (int i = 1; i < (int)o->node->n_output; i++)
        if (*o->node->output[i])
            onnx_fail(o, ERR_UNSUPPORTED, "its outputs but for the first are not supported");
    if (onnx_real(o, "softcap", 0) != 0)
        onnx_fail(o, ERR_UNSUPPORTED, "its softcap is %g, want 0", onnx_real(o, "softcap", 0));
    if (onnx_failed(o))
        return;
    k = norms_repeat_heads(o, k, onnx_value(o, q)->dim[1]);
    v = norms_repeat_heads(o, v, onnx_value(o, q)->dim[1]);
    x = *onnx_value(o, q);
    x.dim[3] = onnx_value(o, v)->dim[3];
    onnx_put_value(o, "query", q);
    onnx_put_value(o, "key", k);
    onnx_put_value(o, "value", v);
    onnx_put_value(o, "attn_mask", onnx_in(o, 3));
    onnx_put_real(o, "dropout_p", 0);
    onnx_put_flag(o, "is_causal", onnx_int(o, "is_causal", 0) != 0);
    if (onnx_real(o, "scale", 0) != 0)
        onnx_put_real(o, "scale", onnx_real(o, "scale", 0));
    y = onnx_make(o, op->target, x.type, 4, x.dim);
    if (lines) {
        y = onnx_permute(o, y, (int64_t[]){0, 2, 1, 3});
        y = onnx_reshape(o, y, (int64_t[]){x.dim[0], x.dim[2], x.dim[1] * x.dim[3]}, 3);
    }
    onnx_out(o, 0, y);
}

const struct onnx_op onnx_norms[] = {
    {"BatchNormalization", norms_batch, "batch_norm.default", 5, 0},
    {"LayerNormalization", norms_layer, "layer_norm.default", 2, 17},
    {"RMSNormalization", norms_layer, "rms_norm.default", 2, 23},
    {"GroupNormalization", norms_group, "group_norm.default", 3, 18},
    {"InstanceNormalization", norms_group, "group_norm.default", 3, 0},
    {"Attention", norms_attention, "scaled_dot_product_attention.default", 3, 23},
    {0},
};
