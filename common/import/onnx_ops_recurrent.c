/* onnx_ops_recurrent - ONNX's LSTM, GRU and RNN of one layer, as PyTorch's.
 *
 * The gates stand in another order; weights and biases of both directions are one tensor each.
 * Layers that PyTorch has not are those of onnx_ops_unrolled.c. */
#include <string.h>

#include "base/util.h"
#include "import/onnx_unrolled.h"

struct cells_kind {
    const char *name, *target, *activations; /* those of one direction */
    int gates;
    int gate[4]; /* PyTorch's gate g is ONNX's gate[g] */
};

static const struct cells_kind cells_kinds[] = {
    {"LSTM", "lstm.input", "Sigmoid Tanh Tanh", 4, {0, 2, 3, 1}},
    {"GRU", "gru.input", "Sigmoid Tanh", 3, {1, 0, 2}},
    {"RNN", "rnn_tanh.input", "Tanh", 1, {0}},
    {"RNN", "rnn_relu.input", "Relu", 1, {0}},
    {0},
};

/* 1: the attribute names these activations for each direction, or is left out. */
static int cells_has(struct onnx *o, const char *activations, int n_dirs)
{
    const Onnx__AttributeProto *a = onnx_attr(o, "activations");
    const char *at = activations;

    if (!a || a->n_strings == 0)
        return strcmp(activations, "Relu") != 0;
    for (size_t i = 0; i < a->n_strings; i++) {
        const size_t n = strcspn(at, " ");

        if (a->strings[i].len != n || memcmp(a->strings[i].data, at, n) != 0)
            return 0;
        at += n + (at[n] == ' ');
        at = *at ? at : activations;
    }
    return at == activations && (int)a->n_strings % n_dirs == 0;
}

static const struct cells_kind *cells_find(struct onnx *o, const char *name, int n_dirs)
{
    for (const struct cells_kind *k = cells_kinds; k->name; k++)
        if (!strcmp(k->name, name) && cells_has(o, k->activations, n_dirs))
            return k;
    onnx_fail(
        o, ERR_UNSUPPORTED,
        "it has other activations than PyTorch's: want Sigmoid and Tanh, of RNN Tanh or Relu");
    return cells_kinds;
}

/* Refuse what PyTorch's layers do not have. */
static void cells_refuse(struct onnx *o, int64_t steps)
{
    const int lengths = onnx_in(o, 4);
    const struct host_tensor *h = lengths == IMPORT_NO_VALUE ? NULL : onnx_host(o, lengths);

    if (onnx_attr(o, "clip"))
        onnx_fail(o, ERR_UNSUPPORTED, "it has a clip, which is not supported");
    if (onnx_int(o, "input_forget", 0))
        onnx_fail(o, ERR_UNSUPPORTED, "it has input_forget, which is not supported");
    if (lengths != IMPORT_NO_VALUE && !h)
        onnx_fail(o, ERR_UNSUPPORTED, "its sequence_lens depend on the data");
    for (int64_t i = 0; h && i < host_count(h); i++)
        if (host_integer(h, i) != steps)
            onnx_fail(o, ERR_UNSUPPORTED, "its sequence_lens has %lld, want all %lld steps",
                      (long long)host_integer(h, i), (long long)steps);
}

/* The rows of x, PyTorch's gates in their order. */
static int cells_gates(struct onnx *o, const struct cells_kind *k, int x)
{
    const int64_t rows = onnx_value(o, x)->dim[0] / k->gates;
    int part[4];

    for (int g = 0; g < k->gates; g++)
        part[g] = onnx_slice(o, x, 0, k->gate[g] * rows, (k->gate[g] + 1) * rows, 1);
    return k->gates == 1 ? part[0] : onnx_join(o, 0, part, k->gates);
}

/* Direction d of tensor x, without that dimension. */
static int cells_direction(struct onnx *o, int x, int d)
{
    const int y = onnx_slice(o, x, 0, d, d + 1, 1);
    const struct import_value v = *onnx_value(o, y);

    return onnx_reshape(o, y, v.dim + 1, v.n_dims - 1);
}

/* The parameters in PyTorch's order, 4 or 2 for each direction; their number. */
static int cells_params(struct onnx *o, const struct cells_kind *k, int n_dirs, int *param)
{
    const int bias = onnx_in(o, 3);
    int n = 0;

    for (int d = 0; d < n_dirs; d++) {
        for (int i = 1; i < 3; i++)
            param[n++] = cells_gates(o, k, cells_direction(o, onnx_in(o, i), d));
        if (bias != IMPORT_NO_VALUE) {
            const int b = cells_direction(o, bias, d);
            const int64_t half = onnx_value(o, b)->dim[0] / 2;

            param[n++] = cells_gates(o, k, onnx_slice(o, b, 0, 0, half, 1));
            param[n++] = cells_gates(o, k, onnx_slice(o, b, 0, half, 2 * half, 1));
        }
    }
    return n;
}

/* The first state, input i, as [directions,N,H]; zeros if it is left out. */
static int cells_state(struct onnx *o, int i, const int64_t *dim, int batch_first)
{
    const int v = onnx_in(o, i);
    const float zero = 0;
    struct import_value s;

    if (v == IMPORT_NO_VALUE)
        return onnx_expand(
            o,
            onnx_reshape(o, onnx_constant(o, IMPORT_F32, 0, NULL, &zero), (int64_t[]){1, 1, 1}, 3),
            dim, 3);
    s = *onnx_value(o, v);
    if (s.n_dims != 3 || s.dim[batch_first] != dim[0] || s.dim[!batch_first] != dim[1] ||
        s.dim[2] != dim[2]) {
        onnx_fail(o, ERR_CONFIG,
                  "its first state, input %d, does not fit %lld directions, a batch of %lld and a "
                  "state of %lld",
                  i, (long long)dim[0], (long long)dim[1], (long long)dim[2]);
        return v;
    }
    return batch_first ? onnx_permute(o, v, (int64_t[]){1, 0, 2}) : v;
}

/* Extents of inputs and weights: 0 if they fit. */
static int cells_check(struct onnx *o, const struct cells_kind *k, int n_dirs, int64_t H)
{
    const struct import_value x = *onnx_value(o, onnx_in(o, 0)), w = *onnx_value(o, onnx_in(o, 1)),
                              r = *onnx_value(o, onnx_in(o, 2));
    const int b = onnx_in(o, 3);

    if (x.n_dims != 3 || w.n_dims != 3 || r.n_dims != 3 || w.dim[0] != n_dirs ||
        r.dim[0] != n_dirs || H < 1 || r.dim[2] != H || w.dim[1] != k->gates * H ||
        w.dim[2] != x.dim[2] || r.dim[1] != k->gates * H ||
        (b >= 0 && (onnx_value(o, b)->n_dims != 2 || onnx_value(o, b)->dim[0] != n_dirs ||
                    onnx_value(o, b)->dim[1] != 2 * k->gates * H)))
        onnx_fail(o, ERR_CONFIG,
                  "its weights do not fit %d directions, %lld inputs and a state of "
                  "%lld",
                  n_dirs, (long long)(x.n_dims == 3 ? x.dim[2] : 0), (long long)H);
    return o->rc;
}

/* The node with its arguments; out[] are y [T,N,directions H] and the last states. */
static void cells_node(struct onnx *o, const struct cells_kind *k, int x, int n_dirs,
                       int batch_first, int *out)
{
    const struct import_value v = *onnx_value(o, x);
    const int64_t H = onnx_value(o, onnx_in(o, 2))->dim[2];
    const int64_t state[3] = {n_dirs, v.dim[1], H};
    const int is_lstm = !strcmp(k->name, "LSTM");
    int param[8], hx[2];
    const int n = cells_params(o, k, n_dirs, param);

    hx[0] = cells_state(o, 5, state, batch_first);
    hx[1] = is_lstm ? cells_state(o, 6, state, batch_first) : hx[0];
    onnx_put_value(o, "input", x);
    if (is_lstm)
        onnx_put_values(o, "hx", hx, 2);
    else
        onnx_put_value(o, "hx", hx[0]);
    onnx_put_values(o, "params", param, n);
    onnx_put_flag(o, "has_biases", onnx_in(o, 3) != IMPORT_NO_VALUE);
    onnx_put_int(o, "num_layers", 1);
    onnx_put_real(o, "dropout", 0);
    onnx_put_flag(o, "train", 0);
    onnx_put_flag(o, "bidirectional", n_dirs == 2);
    onnx_put_flag(o, "batch_first", 0);
    onnx_make_several(o, k->target, v.type, is_lstm ? 3 : 2,
                      (const int64_t[][3]){{v.dim[0], v.dim[1], n_dirs * H},
                                           {n_dirs, v.dim[1], H},
                                           {n_dirs, v.dim[1], H}},
                      out);
}

/* 1: the layer is none of PyTorch's. */
static int cells_is_foreign(struct onnx *o, const struct cells_kind *k)
{
    return (k->gates == 3 && !onnx_int(o, "linear_before_reset", 0)) ||
           (k->gates == 4 && onnx_in(o, 7) != IMPORT_NO_VALUE);
}

/* Fails if an LSTM has peepholes of another shape. */
static void cells_check_peepholes(struct onnx *o, const struct cells_kind *k, int n_dirs, int64_t H)
{
    const int p = k->gates == 4 ? onnx_in(o, 7) : IMPORT_NO_VALUE;
    const struct import_value *v = p == IMPORT_NO_VALUE ? NULL : onnx_value(o, p);

    if (v && (v->n_dims != 2 || v->dim[0] != n_dirs || v->dim[1] != 3 * H))
        onnx_fail(o, ERR_CONFIG,
                  "its peepholes, input 7, do not fit %d directions and a state of "
                  "%lld: want [%d,%lld]",
                  n_dirs, (long long)H, n_dirs, (long long)(3 * H));
}

static void cells_unroll(struct onnx *o, const struct cells_kind *k, int x, int n_dirs, int is_back,
                         int *out)
{
    const struct import_value v = *onnx_value(o, x);
    const int64_t H = onnx_value(o, onnx_in(o, 2))->dim[2], state[3] = {n_dirs, v.dim[1], H};
    const int batch_first = onnx_int(o, "layout", 0) != 0;
    struct onnx_cells c = {.gates = k->gates, .n_dirs = n_dirs, .is_back = is_back, .H = H, .x = x};

    c.n_states = k->gates == 4 ? 2 : 1;
    for (int i = 0; i < c.n_states; i++)
        c.first[i] = cells_state(o, 5 + i, state, batch_first);
    onnx_unroll(o, &c, out);
}

static void cells_make(struct onnx *o, const struct onnx_op *op)
{
    const char *direction = onnx_text(o, "direction", "forward");
    const int n_dirs = !strcmp(direction, "bidirectional") ? 2 : 1,
              is_back = !strcmp(direction, "reverse"), batch_first = onnx_int(o, "layout", 0) != 0;
    const struct cells_kind *k = cells_find(o, op->name, n_dirs);
    const int64_t H = onnx_int(o, "hidden_size", onnx_value(o, onnx_in(o, 2))->dim[2]);
    int x = onnx_in(o, 0), is_foreign, out[3];
    struct import_value v;

    if (n_dirs == 1 && !is_back && strcmp(direction, "forward") != 0)
        onnx_fail(o, ERR_CORRUPT, "its direction is %.40s", direction);
    if (onnx_failed(o) || cells_check(o, k, n_dirs, H) < 0)
        return;
    if (batch_first)
        x = onnx_permute(o, x, (int64_t[]){1, 0, 2});
    v = *onnx_value(o, x);
    cells_refuse(o, v.dim[0]);
    cells_check_peepholes(o, k, n_dirs, H);
    is_foreign = cells_is_foreign(o, k);
    x = is_back && !is_foreign ? onnx_flip(o, x, 0) : x;
    if (onnx_failed(o))
        return;
    if (is_foreign)
        cells_unroll(o, k, x, n_dirs, is_back, out);
    else
        cells_node(o, k, x, n_dirs, batch_first, out);
    if (onnx_failed(o))
        return;
    x = is_back && !is_foreign ? onnx_flip(o, out[0], 0) : out[0];
    x = onnx_reshape(o, x, (int64_t[]){v.dim[0], v.dim[1], n_dirs, H}, 4);
    x = onnx_permute(o, x, batch_first ? (int64_t[]){1, 0, 2, 3} : (int64_t[]){0, 2, 1, 3});
    onnx_out(o, 0, x);
    for (int i = 1; i < (!strcmp(k->name, "LSTM") ? 3 : 2); i++)
        onnx_out(o, i, batch_first ? onnx_permute(o, out[i], (int64_t[]){1, 0, 2}) : out[i]);
}

const struct onnx_op onnx_recurrent[] = {
    {"LSTM", cells_make, NULL, 3, 0},
    {"GRU", cells_make, NULL, 3, 0},
    {"RNN", cells_make, NULL, 3, 0},
    {0},
};
