/* ref_kernels - the naive kernels of element-wise operators, and of the codes of compression. */
#include "ref_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/util.h"
#include "op/codec.h"

double *ref_sums(int64_t n) { return xcalloc((size_t)n + 1, sizeof(double)); }

void ref_round(const double *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)from[i];
}

static double gauss_cdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }

static double gelu_argument(double x)
{
    return M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x);
}

double ref_activate(enum activation kind, double x)
{
    switch (kind) {
    case ACT_RELU:
        return x <= 0 ? 0 : x;
    case ACT_TANH:
        return tanh(x);
    case ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case ACT_GELU:
        return x * gauss_cdf(x);
    case ACT_SILU:
        return x / (1 + exp(-x));
    case ACT_LEAKY_RELU:
        return x > 0 ? x : 0.01 * x;
    case ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(gelu_argument(x)));
    default:
        return x;
    }
}

double ref_activate_grad(enum activation kind, double x, double y)
{
    switch (kind) {
    case ACT_RELU:
        return !(y <= 0); /* 1 for NaN, as in PyTorch */
    case ACT_TANH:
        return 1 - y * y;
    case ACT_SIGMOID:
        return y * (1 - y);
    case ACT_GELU:
        return gauss_cdf(x) + x * exp(-0.5 * x * x) * 0.5 * M_2_SQRTPI * M_SQRT1_2;
    case ACT_SILU: {
        const double s = 1 / (1 + exp(-x));

        return s * (1 + x * (1 - s));
    }
    case ACT_LEAKY_RELU:
        return y > 0 ? 1 : 0.01;
    case ACT_GELU_TANH: {
        const double t = tanh(gelu_argument(x));

        return 0.5 * (1 + t) +
               0.5 * x * (1 - t * t) * M_2_SQRTPI * M_SQRT1_2 * (1 + 3 * 0.044715 * x * x);
    }
    default:
        return 1;
    }
}

void ref_activation(const struct ref_node *n)
{
    const float *x = n->in[ACTIVATION_X];
    float *y = n->out[ACTIVATION_Y];

    for (int64_t i = 0; i < shape_elements(&n->out_shape[ACTIVATION_Y]); i++)
        y[i] = (float)ref_activate(n->attr.act.kind, x[i]);
}

void ref_activation_grad(const struct ref_node *n)
{
    const float *x = n->in[ACTIVATION_GRAD_X], *y = n->in[ACTIVATION_GRAD_Y],
                *dy = n->in[ACTIVATION_GRAD_DY];
    float *dx = n->out[ACTIVATION_GRAD_DX];

    for (int64_t i = 0; i < shape_elements(&n->out_shape[ACTIVATION_GRAD_DX]); i++) {
        double d = ref_activate_grad(n->attr.act.kind, x ? x[i] : 0, y ? y[i] : 0);

        dx[i] = (float)(n->attr.act.kind == ACT_RELU && d == 0 ? 0 : d * dy[i]);
    }
}

void ref_bias(const struct ref_node *n)
{
    const float *x = n->in[BIAS_X], *b = n->in[BIAS_B];
    float *y = n->out[BIAS_Y];
    const int64_t c = n->in_shape[BIAS_B].dim[0];

    for (int64_t i = 0; i < shape_elements(&n->out_shape[BIAS_Y]); i++)
        y[i] = x[i] + b[i % c];
}

void ref_bias_grad(const struct ref_node *n)
{
    const float *dy = n->in[BIAS_GRAD_DY];
    const int64_t c = n->out_shape[BIAS_GRAD_DB].dim[0];
    double *sum = ref_sums(c);

    for (int64_t i = 0; i < shape_elements(&n->in_shape[BIAS_GRAD_DY]); i++)
        sum[i % c] += dy[i];
    ref_round(sum, c, n->out[BIAS_GRAD_DB]);
    free(sum);
}

void ref_add(const struct ref_node *n)
{
    const float *a = n->in[ADD_A], *b = n->in[ADD_B];
    float *y = n->out[ADD_Y];

    for (int64_t i = 0; i < shape_elements(&n->out_shape[ADD_Y]); i++)
        y[i] = a[i] + b[i];
}

void ref_gather(const struct ref_node *n)
{
    const int64_t *index = n->in[GATHER_INDEX];

    for (int k = 0; k < NODE_MAX_OUT; k++) {
        const int table = k == GATHER_Y ? GATHER_TABLE : (int)GATHER_TABLE1 + k - 1;
        const int32_t *from = n->in[table];
        int32_t *y = n->out[k];
        int64_t length;

        if (!y)
            continue;
        length = shape_elements(&n->in_shape[table]) / n->in_shape[table].dim[0];
        for (int64_t i = 0; i < shape_elements(&n->out_shape[k]); i++)
            y[i] = from[index[i / length] * length + i % length];
    }
}

void ref_reshape(const struct ref_node *n)
{
    memmove(n->out[RESHAPE_Y], n->in[RESHAPE_X],
            (size_t)shape_elements(&n->out_shape[RESHAPE_Y]) * sizeof(float));
}

void ref_allreduce(const struct ref_node *n) { (void)n; /* the sum over one rank is the value */ }

/* forward: x [N,H,W,C] -> y [N,C*H*W]; else y -> x. */
static void transpose(const struct shape *x, const float *from, float *to, int forward)
{
    const int64_t H = x->dim[1], W = x->dim[2], C = x->dim[3];

    for (int64_t i = 0; i < shape_elements(x); i++) {
        int64_t c = i % C, w = i / C % W, h = i / C / W % H, s = i / C / W / H;
        int64_t j = ((s * C + c) * H + h) * W + w;

        to[forward ? j : i] = from[forward ? i : j];
    }
}

void ref_flatten(const struct ref_node *n)
{
    transpose(&n->in_shape[FLATTEN_X], n->in[FLATTEN_X], n->out[FLATTEN_Y], 1);
}

void ref_unflatten(const struct ref_node *n)
{
    transpose(&n->out_shape[UNFLATTEN_X], n->in[UNFLATTEN_Y], n->out[UNFLATTEN_X], 0);
}

void ref_dropout(const struct ref_node *n)
{
    const struct shape *s = &n->out_shape[DROPOUT_Y];
    const struct step_scalars *sc = n->in[DROPOUT_SCALARS];
    const float *x = n->in[DROPOUT_X], p = n->attr.dropout.p, scale = 1 / (1 - p);
    float *y = n->out[DROPOUT_Y];
    const int64_t total = shape_elements(s), rows = n->attr.dropout.rows ? n->attr.dropout.rows : 1;
    const int64_t per_sample = s->dim[0] ? total * rows / s->dim[0] : 0;

    for (int64_t i = 0; i < total; i++) {
        uint64_t e = (uint64_t)(n->attr.dropout.whole ? sc->first_position + i / per_sample
                                                      : sc->first_position * per_sample + i);
        uint64_t index = ((uint64_t)n->attr.dropout.tag << 40) + (e >> 2);
        struct rng_block b = rng_draw(sc->seed, RNG_DROPOUT, sc->step, index);

        y[i] = rng_to_unit(b.v[e & 3]) >= p ? x[i] * scale : 0;
    }
}

void ref_uniform(const struct ref_node *n)
{
    const struct shape *s = &n->out_shape[UNIFORM_Y];
    const struct step_scalars *sc = n->in[UNIFORM_SCALARS];
    const int64_t total = shape_elements(s);
    float *y = n->out[UNIFORM_Y];

    for (int64_t i = 0; i < total; i++) {
        const uint64_t e = (uint64_t)(sc->first_position * (total / s->dim[0]) + i);
        const uint64_t index = ((uint64_t)n->attr.uniform.tag << 40) + (e >> 2);

        y[i] = rng_to_unit(rng_draw(sc->seed, RNG_UNIFORM, sc->step, index).v[e & 3]);
    }
}

void ref_integers(const struct ref_node *n)
{
    const enum integers kind = n->attr.integers.kind;
    const struct shape *s = &n->out_shape[INTEGERS_Y];
    const int32_t *a = n->in[INTEGERS_A], *b = n->in[INTEGERS_B];
    double y = 0;

    for (int64_t i = 0; i < shape_elements(s); i++) {
        const double v = a[i], w = b ? b[i] : n->attr.integers.number;

        if (kind == INTEGERS_PREFIX)
            y = (i % s->dim[s->n - 1] ? y : 0) + v;
        else
            y = kind == INTEGERS_ADD   ? v + w
                : kind == INTEGERS_SUB ? v - w
                : kind == INTEGERS_MUL ? v * w
                : kind == INTEGERS_MIN ? fmin(v, w)
                : kind == INTEGERS_MAX ? fmax(v, w)
                : v < 0                ? v + w
                                       : v;
        y = fmax(INT32_MIN, fmin(INT32_MAX, y));
        ((int32_t *)n->out[INTEGERS_Y])[i] = (int32_t)y;
    }
}

void ref_cast(const struct ref_node *n)
{
    for (int64_t i = 0; i < shape_elements(&n->out_shape[CAST_Y]); i++)
        if (n->in_type[CAST_X] == DTYPE_I32) {
            ((float *)n->out[CAST_Y])[i] =
                (float)((double)((const int32_t *)n->in[CAST_X])[i] - n->attr.cast.minus);
        } else if (n->out_type[CAST_Y] == DTYPE_I32) {
            const double x = (double)((const float *)n->in[CAST_X])[i];

            ((int32_t *)n->out[CAST_Y])[i] =
                isnan(x) ? 0 : (int32_t)fmax(INT32_MIN, fmin(INT32_MAX, x));
        }
    if (n->in_type[CAST_X] == DTYPE_I32 || n->out_type[CAST_Y] == DTYPE_I32)
        return;
    memmove(n->out[CAST_Y], n->in[CAST_X],
            (size_t)shape_elements(&n->out_shape[CAST_Y]) * sizeof(float));
}

/* ---- codes ---- */

/* MinMaxUInt8's constants, each operation rounded to F32. */
struct minmax {
    float scale, upper, lower;
};

static struct minmax minmax_of(const uint8_t *code)
{
    struct minmax m;
    float range[2];

    memcpy(range, code, sizeof range);
    m.scale = 255.0f / (range[1] - range[0] + 1e-7f);
    m.upper = rintf(range[1] * m.scale);
    m.lower = m.upper - 255.0f;
    return m;
}

static void write_minmax(const float *x, int64_t n, uint8_t *code)
{
    float range[2] = {x[0], x[0]};
    struct minmax m;
    int bad = 0;

    for (int64_t i = 0; i < n; i++) {
        range[0] = fminf(range[0], x[i]);
        range[1] = fmaxf(range[1], x[i]);
        bad |= !isfinite(x[i]);
    }
    if (bad)
        range[0] = range[1] = NAN;
    memcpy(code, range, sizeof range);
    m = minmax_of(code);
    for (int64_t i = 0; i < n && !bad; i++)
        code[32 + i] =
            (uint8_t)fminf(fmaxf(fminf(rintf(x[i] * m.scale), m.upper) - m.lower, 0), 255);
}

static void write_signs(const float *x, int64_t n, uint8_t *code)
{
    double sum = 0;
    float mean;

    for (int64_t i = 0; i < n; i++)
        sum += fabs((double)x[i]);
    mean = isfinite(sum) ? (float)(sum / (double)n) : NAN;
    memcpy(code, &mean, sizeof mean);
    for (int64_t i = 0; i < n; i++)
        if (x[i] >= 0)
            code[32 + i / 8] = (uint8_t)(code[32 + i / 8] | 1 << i % 8);
}

void ref_encode(const struct ref_node *n)
{
    const int64_t len = n->in_shape[0].dim[0], chunks = n->out_shape[0].dim[0];
    const int64_t bytes = n->out_shape[0].dim[1], whole = (len + chunks - 1) / chunks;

    memset(n->out[ENCODE_CODE], 0, (size_t)(chunks * bytes));
    for (int64_t k = 0; k * whole < len; k++) {
        const float *x = (const float *)n->in[ENCODE_X] + k * whole;
        uint8_t *code = (uint8_t *)n->out[ENCODE_CODE] + k * bytes;

        if (n->attr.number[ENCODE_ATTR_KIND] == CODEC_MINMAX_UINT8)
            write_minmax(x, min_i64(whole, len - k * whole), code);
        else
            write_signs(x, min_i64(whole, len - k * whole), code);
    }
}

static float read_code(const struct ref_node *n, const uint8_t *code, int64_t i)
{
    const struct minmax m = minmax_of(code);
    float mean;

    memcpy(&mean, code, sizeof mean);
    if (n->attr.number[DECODE_ATTR_KIND] == CODEC_MINMAX_UINT8)
        return ((float)code[32 + i] + m.lower) / m.scale;
    return code[32 + i / 8] & 1 << i % 8 ? mean : -mean;
}

void ref_decode(const struct ref_node *n)
{
    const int64_t len = n->out_shape[0].dim[0], chunks = n->in_shape[0].dim[0];
    const int64_t bytes = n->in_shape[0].dim[1], whole = (len + chunks - 1) / chunks;

    for (int64_t i = 0; i < len; i++)
        ((float *)n->out[DECODE_Y])[i] =
            read_code(n, (const uint8_t *)n->in[DECODE_CODE] + i / whole * bytes, i % whole);
}

void ref_decode_sum(const struct ref_node *n)
{
    const int64_t ranks = n->in_shape[0].dim[0], bytes = n->in_shape[0].dim[1];
    float *y = n->out[DECODE_SUM_Y];

    for (int64_t i = 0; i < n->out_shape[0].dim[0]; i++) {
        y[i] = read_code(n, n->in[DECODE_SUM_CODE], i);
        for (int64_t r = 1; r < ranks; r++)
            y[i] = y[i] + read_code(n, (const uint8_t *)n->in[DECODE_SUM_CODE] + r * bytes, i);
    }
}
