/* onnx_ops_attention - ONNX's Attention: one node where that has all that it asks for, else written
 * out: with a cap of the scores, or with the scores as an output. */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "import/onnx_impl.h"

/* Queries, keys and values as [N,H,T,D], and the mask, or IMPORT_NO_VALUE. */
struct attention {
    int q, k, v, mask, is_causal;
    int64_t n_past; /* keys before the first query's own */
    double scale, cap;
};

/* [N,T,H D] -> [N,H,T,D]. */
static int attention_by_heads(struct onnx *o, int x, int64_t heads)
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
static int attention_repeat_heads(struct onnx *o, int x, int64_t heads)
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

/* The past keys or values, input i, before x; both are output `out`. */
static int attention_past(struct onnx *o, int i, int x, int out)
{
    const int past = onnx_in(o, i);

    if (past != IMPORT_NO_VALUE) {
        const struct import_value p = *onnx_value(o, past), v = *onnx_value(o, x);

        if (onnx_failed(o) || p.n_dims != 4 || p.dim[0] != v.dim[0] || p.dim[1] != v.dim[1] ||
            p.dim[3] != v.dim[3]) {
            onnx_fail(o, ERR_CONFIG, "its past keys or values do not fit the present ones");
            return x;
        }
        x = onnx_join(o, 2, (int[]){past, x}, 2);
    }
    onnx_out(o, out, x);
    return x;
}

static int attention_node(struct onnx *o, const struct attention *a)
{
    struct import_value y = *onnx_value(o, a->q);

    y.dim[3] = onnx_value(o, a->v)->dim[3];
    onnx_put_value(o, "query", a->q);
    onnx_put_value(o, "key", a->k);
    onnx_put_value(o, "value", a->v);
    onnx_put_value(o, "attn_mask", a->mask);
    onnx_put_real(o, "dropout_p", 0);
    onnx_put_flag(o, "is_causal", a->is_causal);
    if (a->scale != 0)
        onnx_put_real(o, "scale", a->scale);
    return onnx_make(o, "scaled_dot_product_attention.default", y.type, 4, y.dim);
}

/* A matrix [T,S] to be added to the scores: query t sees keys up to n_past + t. */
static int attention_triangle(struct onnx *o, int64_t T, int64_t S, int64_t n_past)
{
    float *m;

    if (T < 0 || S < 0 || (S > 0 && T > FOLD_MAX_ELEMENTS / S)) {
        onnx_fail(o, ERR_UNSUPPORTED, "its causal mask has %lld by %lld elements", (long long)T,
                  (long long)S);
        return 0;
    }
    m = arena_alloc(&o->memory, (size_t)(T * S) * sizeof *m + 1);
    for (int64_t t = 0; t < T; t++)
        for (int64_t s = 0; s < S; s++)
            m[t * S + s] = s <= n_past + t ? 0 : -INFINITY;
    return onnx_constant(o, IMPORT_F32, 2, (int64_t[]){T, S}, m);
}

/* The mask as numbers that are added. */
static int attention_bias(struct onnx *o, int mask)
{
    const struct import_value v = *onnx_value(o, mask);
    const float zero = 0, hidden = -INFINITY;
    int a, b;

    if (v.type != IMPORT_BOOL)
        return mask;
    a = onnx_constant(o, IMPORT_F32, 0, NULL, &zero);
    b = onnx_constant(o, IMPORT_F32, 0, NULL, &hidden);
    onnx_put_value(o, "condition", mask);
    onnx_put_value(o, "self", a);
    onnx_put_value(o, "other", b);
    return onnx_make(o, "where.self", IMPORT_F32, v.n_dims, v.dim);
}

/* The mask, and the causal triangle, as one bias of S keys: a mask of fewer hides the rest. */
static int attention_joined(struct onnx *o, const struct attention *a, int64_t T, int64_t S)
{
    struct import_value m;
    int mask, triangle;

    if (a->mask == IMPORT_NO_VALUE)
        return a->is_causal ? attention_triangle(o, T, S, a->n_past) : a->mask;
    m = *onnx_value(o, a->mask);
    if (m.n_dims < 2 || m.dim[m.n_dims - 1] > S) {
        onnx_fail(o, ERR_UNSUPPORTED,
                  "its mask has %lld keys in %d dimensions, want %lld in 2 to 4",
                  (long long)(m.n_dims ? m.dim[m.n_dims - 1] : 0), m.n_dims, (long long)S);
        return a->mask;
    }
    if (m.dim[m.n_dims - 1] == S && !a->is_causal)
        return a->mask;
    mask = attention_bias(o, a->mask);
    if (m.dim[m.n_dims - 1] < S) {
        onnx_put_value(o, "self", mask);
        onnx_put_ints(o, "pad", (int64_t[]){0, S - m.dim[m.n_dims - 1]}, 2);
        onnx_put_real(o, "value", -INFINITY);
        m.dim[m.n_dims - 1] = S;
        mask = onnx_make(o, "constant_pad_nd.default", IMPORT_F32, m.n_dims, m.dim);
    }
    if (!a->is_causal)
        return mask;
    triangle = attention_triangle(o, T, S, a->n_past);
    return onnx_binary(o, "add.Tensor", mask, triangle);
}

/* Weights of keys: a query that sees none has weights of 0. */
static int attention_weights(struct onnx *o, int s)
{
    const struct import_value v = *onnx_value(o, s);
    const float hidden = -INFINITY;
    unsigned last;
    int top, is_none, e, sum;

    if (onnx_failed(o))
        return s;
    last = 1u << (v.n_dims - 1);
    top = onnx_reduce(o, "amax.default", s, last, 1);
    onnx_put_value(o, "self", top);
    onnx_put_value(o, "other", onnx_constant(o, IMPORT_F32, 0, NULL, &hidden));
    is_none = onnx_make(o, "eq.Tensor", IMPORT_BOOL, v.n_dims, onnx_value(o, top)->dim);
    onnx_put_value(o, "condition", is_none);
    onnx_put_real(o, "self", 0);
    onnx_put_value(o, "other", top);
    top = onnx_make_like(o, "where.ScalarSelf", top);
    e = onnx_unary(o, "exp.default", onnx_pair(o, "sub.Tensor", s, top));
    sum = onnx_reduce(o, "sum.dim_IntList", e, last, 1);
    sum = onnx_pair(o, "add.Tensor", sum, onnx_cast(o, is_none, IMPORT_F32));
    return onnx_pair(o, "div.Tensor", e, sum);
}

/* Written out.  Output 3 has the scores: scaled (mode 0), capped (1), with the mask (2), or the
 * weights (3). */
static int attention_by_hand(struct onnx *o, const struct attention *a)
{
    const int64_t mode = onnx_int(o, "qk_matmul_output_mode", 0), D = onnx_value(o, a->q)->dim[3];
    int stage[4], s = onnx_matmul(o, a->q, onnx_permute(o, a->k, (int64_t[]){0, 1, 3, 2}));

    s = onnx_affine(o, s, a->scale != 0 ? a->scale : 1 / sqrt((double)max_i64(D, 1)), 0);
    stage[0] = s;
    if (a->cap != 0)
        s = onnx_affine(o, onnx_unary(o, "tanh.default", onnx_affine(o, s, 1 / a->cap, 0)), a->cap,
                        0);
    stage[1] = s;
    if (a->mask != IMPORT_NO_VALUE)
        s = onnx_binary(o, "add.Tensor", s, attention_bias(o, a->mask));
    stage[2] = s;
    stage[3] = attention_weights(o, s);
    if (mode < 0 || mode > 3)
        onnx_fail(o, ERR_CONFIG, "its qk_matmul_output_mode is %lld, want 0 to 3", (long long)mode);
    else
        onnx_out(o, 3, stage[mode]);
    return onnx_matmul(o, stage[3], a->v);
}

static int attention_is_by_hand(const struct onnx *o, const struct attention *a)
{
    return a->cap != 0 || (o->node->n_output > 3 && *o->node->output[3]);
}

static void attention_make(struct onnx *o, const struct onnx_op *op)
{
    const int lines = onnx_value(o, onnx_in(o, 0))->n_dims == 3;
    struct attention a = {.q = attention_by_heads(o, onnx_in(o, 0), onnx_int(o, "q_num_heads", 0)),
                          .k = attention_by_heads(o, onnx_in(o, 1), onnx_int(o, "kv_num_heads", 0)),
                          .v = attention_by_heads(o, onnx_in(o, 2), onnx_int(o, "kv_num_heads", 0)),
                          .mask = onnx_in(o, 3),
                          .is_causal = onnx_int(o, "is_causal", 0) != 0,
                          .scale = onnx_real(o, "scale", 0),
                          .cap = onnx_real(o, "softcap", 0)};
    int64_t T, S;
    int y;

    (void)op;
    if (onnx_in(o, 6) != IMPORT_NO_VALUE)
        onnx_fail(o, ERR_UNSUPPORTED, "its nonpad_kv_seqlen is not supported");
    if (onnx_failed(o))
        return;
    T = onnx_value(o, a.q)->dim[2];
    S = onnx_value(o, a.k)->dim[2];
    a.k = attention_past(o, 4, a.k, 1);
    a.v = attention_past(o, 5, a.v, 2);
    a.n_past = onnx_value(o, a.k)->dim[2] - S;
    a.k = attention_repeat_heads(o, a.k, onnx_value(o, a.q)->dim[1]);
    a.v = attention_repeat_heads(o, a.v, onnx_value(o, a.q)->dim[1]);
    S = onnx_value(o, a.k)->dim[2];
    if (onnx_value(o, a.v)->dim[2] != S || onnx_value(o, a.k)->dim[3] != onnx_value(o, a.q)->dim[3])
        onnx_fail(o, ERR_CONFIG, "its queries, keys and values do not fit each other");
    if (onnx_failed(o))
        return;
    if (a.mask != IMPORT_NO_VALUE || attention_is_by_hand(o, &a) || a.n_past > 0 || T != S) {
        a.mask = attention_joined(o, &a, T, S);
        a.is_causal = 0;
    }
    if (onnx_failed(o))
        return;
    y = attention_is_by_hand(o, &a) ? attention_by_hand(o, &a) : attention_node(o, &a);
    if (lines) {
        const struct import_value x = *onnx_value(o, y);

        y = onnx_permute(o, y, (int64_t[]){0, 2, 1, 3});
        y = onnx_reshape(o, y, (int64_t[]){x.dim[0], x.dim[2], x.dim[1] * x.dim[3]}, 3);
    }
    onnx_out(o, 0, y);
}

const struct onnx_op onnx_attention[] = {
    {"Attention", attention_make, NULL, 3, 23},
    {0},
};
