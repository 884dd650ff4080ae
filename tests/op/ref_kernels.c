/* ref_kernels - the naive kernels of element-wise operators, of the control vector, of the
 * optimizers and of the loss scale. */
#include "ref_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/util.h"
#include "op/codec.h"
#include "op/control.h"
#include "op/scaler.h"
#include "op/seal.h"
#include "op/update.h"

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
        return y > 0;
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

void ref_control_pack(const struct ref_node *n)
{
    const struct step_scalars *sc = n->in[CONTROL_PACK_SCALARS];

    control_pack(n->in[CONTROL_PACK_METRICS], (unsigned)sc->requests,
                 sc->after != 0 && sc->clean != sc->after, n->out[CONTROL_PACK_CONTROL]);
}

void ref_grad_check(const struct ref_node *n)
{
    const float *grad = n->in[GRAD_CHECK_GRAD];
    double *check = n->out[GRAD_CHECK_CHECK];

    check[0] = check[1] = 0;
    for (int64_t i = 0; i < n->in_shape[GRAD_CHECK_GRAD].dim[0]; i++) {
        check[0] += (double)grad[i] * grad[i];
        if (!isfinite(grad[i]))
            check[1] = 1;
    }
}

void ref_check_sum(const struct ref_node *n)
{
    const double *checks = n->in[CHECK_SUM_CHECKS];
    double *check = n->out[CHECK_SUM_CHECK];

    check[0] = check[1] = 0;
    for (int64_t i = 0; i < 2 * n->in_shape[CHECK_SUM_CHECKS].dim[0]; i++)
        check[i % 2] += checks[i];
}

static int is_applied(const double *check, const float *control)
{
    return check[1] == 0 && !(control[CONTROL_NONFINITE] > 0) && !(control[CONTROL_VOID] > 0);
}

void ref_seal(const struct ref_node *n)
{
    const double *check = n->in[SEAL_CHECK], *metrics = n->in[SEAL_METRICS];
    const float *control = n->in[SEAL_CONTROL], *scaler = n->in[SEAL_SCALER];
    const struct step_scalars *sc = n->in[SEAL_SCALARS];
    float *clean = n->out[SEAL_NEW_CLEAN],
          *to = (float *)n->out[SEAL_NEW_RESULTS] + sc->slot * SEALED_LEN;

    memset(to, 0, SEALED_LEN * sizeof *to);
    to[SEALED_STAMP] = sc->stamp;
    to[SEALED_BAD_LOSSES] = (float)metrics[METRIC_NONFINITE];
    to[SEALED_BAD_GRAD] = (float)check[1];
    to[SEALED_WAITED_NS] = (float)((int64_t *)n->in[SEAL_WAITS])[1];
    to[SEALED_GRAD_NORM] = (float)sqrt(check[0]);
    if (scaler)
        memcpy(to + SEALED_SCALER, scaler, SCALER_LEN * sizeof *to);
    memcpy(to + SEALED_CONTROL, control, CONTROL_LEN * sizeof *to);
    clean[0] = 0;
    if (is_applied(check, control) && control[CONTROL_STOP] == 0 &&
        control[CONTROL_CHECKPOINT] == 0 && control[CONTROL_REGROUP] == 0)
        clean[0] = sc->stamp;
}

/* The row of segments that element i belongs to, found by a search from the first row. */
static const double *ref_settings(const struct ref_node *n, int64_t i)
{
    const double *row = n->in[UPDATE_SEGMENTS];

    while ((double)i >= row[SEGMENT_END])
        row += SEGMENT_COLUMNS;
    return row;
}

/* 1 / the loss scale, of the weighted mean over the targets that were not ignored. */
static double ref_unscale(const struct ref_node *n)
{
    const struct step_scalars *sc = n->in[UPDATE_SCALARS];
    struct control control;
    double scale = n->in[UPDATE_SCALER] ? (double)((float *)n->in[UPDATE_SCALER])[SCALER_SCALE] : 1;

    control_read(n->in[UPDATE_CONTROL], &control);
    if (control.weight)
        scale *= (double)control.weight / WEIGHT_UNITS / (double)sc->n_targets;
    return 1 / scale;
}

/* The gradient of element i, unscaled and clipped. */
static float ref_gradient(const struct ref_node *n, int64_t i)
{
    const double *check = n->in[UPDATE_CHECK];
    const struct step_scalars *sc = n->in[UPDATE_SCALARS];
    const double scale = 1 / ref_unscale(n);
    float clip = 1;

    if (sc->clip_norm > 0)
        clip = (float)fmin(1, sc->clip_norm / (sqrt(check[0]) / scale + 1e-6));
    return (float)(((const float *)n->in[UPDATE_GRAD])[i] / scale) * clip;
}

void ref_sgd(const struct ref_node *n)
{
    float *param = n->in[SGD_PARAM], *buf = n->in[SGD_MOMENTUM], *copy = n->in[SGD_COPY];
    const struct step_scalars *sc = n->in[SGD_SCALARS];
    const float momentum = (float)n->attr.number[SGD_ATTR_MOMENTUM];
    const float fresh = 1 - (float)n->attr.number[SGD_ATTR_DAMPENING];

    if (!is_applied(n->in[SGD_CHECK], n->in[SGD_CONTROL]))
        return;
    for (int64_t i = 0; i < n->in_shape[SGD_PARAM].dim[0]; i++) {
        const double *row = ref_settings(n, i);
        const float decay = (float)row[SEGMENT_DECAY];
        float g = ref_gradient(n, i);

        if (decay != 0)
            g = g + decay * param[i];
        if (buf) {
            buf[i] = sc->n_updates == 0 ? g : momentum * buf[i] + fresh * g;
            g = n->attr.number[SGD_ATTR_NESTEROV] != 0 ? g + momentum * buf[i] : buf[i];
        }
        param[i] = param[i] - sc->rate * (float)row[SEGMENT_RATE] * g;
        if (copy)
            copy[i] = param[i];
    }
}

/* All is computed in double, and the powers with pow(). */
void ref_adamw(const struct ref_node *n)
{
    float *param = n->in[ADAMW_PARAM], *copy = n->in[ADAMW_COPY];
    float *avg = n->in[ADAMW_EXP_AVG], *sq = n->in[ADAMW_EXP_AVG_SQ];
    const struct step_scalars *sc = n->in[ADAMW_SCALARS];
    const double beta1 = n->attr.number[ADAMW_ATTR_BETA1], beta2 = n->attr.number[ADAMW_ATTR_BETA2];
    const double t = (double)(sc->n_updates + 1);
    const int coupled = n->attr.number[ADAMW_ATTR_COUPLED] == 1;
    const double means_from = n->attr.number[ADAMW_ATTR_MEANS_FROM];
    const int has_means = means_from > 0 && t > means_from;
    const float *grad = n->in[ADAMW_GRAD];

    if (!is_applied(n->in[ADAMW_CHECK], n->in[ADAMW_CONTROL]))
        return;
    for (int64_t i = 0; i < n->in_shape[ADAMW_PARAM].dim[0]; i++) {
        const double *row = ref_settings(n, i);
        const double rate = (double)sc->rate * row[SEGMENT_RATE];
        const double kept = beta1 * (double)avg[i];
        const double pull = coupled && !has_means ? row[SEGMENT_DECAY] * (double)param[i] : 0;
        const double g = (double)ref_gradient(n, i) + pull;
        const double m =
            has_means ? kept + ((double)grad[i] - kept) * ref_unscale(n) : kept + (1 - beta1) * g;
        const double v = has_means ? (double)sq[i] : beta2 * (double)sq[i] + (1 - beta2) * g * g;

        avg[i] = (float)m;
        sq[i] = (float)v;
        param[i] = (float)((double)param[i] * (coupled ? 1 : 1 - rate * row[SEGMENT_DECAY]) -
                           rate * (m / (1 - pow(beta1, t))) /
                               (sqrt(v / (1 - pow(beta2, t))) + n->attr.number[ADAMW_ATTR_EPS]));
        if (copy)
            copy[i] = param[i];
    }
}

/* All is computed in double. */
void ref_lion(const struct ref_node *n)
{
    float *param = n->in[LION_PARAM], *copy = n->in[LION_COPY], *avg = n->in[LION_EXP_AVG];
    const struct step_scalars *sc = n->in[LION_SCALARS];
    const double beta1 = n->attr.number[LION_ATTR_BETA1], beta2 = n->attr.number[LION_ATTR_BETA2];

    if (!is_applied(n->in[LION_CHECK], n->in[LION_CONTROL]))
        return;
    for (int64_t i = 0; i < n->in_shape[LION_PARAM].dim[0]; i++) {
        const double *row = ref_settings(n, i);
        const double rate = (double)sc->rate * row[SEGMENT_RATE];
        const double g = (double)ref_gradient(n, i), m = (double)avg[i];
        const double c = beta1 * m + (1 - beta1) * g;
        const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;

        param[i] = (float)((double)param[i] * (1 - rate * row[SEGMENT_DECAY]) - rate * sign);
        avg[i] = (float)(beta2 * m + (1 - beta2) * g);
        if (copy)
            copy[i] = param[i];
    }
}

/* Moves tensor [from, to), all in double.  r [n] is room. */
static void ref_lamb_tensor(const struct ref_node *n, int64_t from, int64_t to, double *r)
{
    float *param = n->in[LAMB_PARAM], *copy = n->in[LAMB_COPY];
    float *avg = n->in[LAMB_EXP_AVG], *sq = n->in[LAMB_EXP_AVG_SQ];
    const struct step_scalars *sc = n->in[LAMB_SCALARS];
    const double beta1 = n->attr.number[LAMB_ATTR_BETA1], beta2 = n->attr.number[LAMB_ATTR_BETA2];
    const double t = (double)(sc->n_updates + 1), *row = ref_settings(n, from);
    double w2 = 0, r2 = 0, ratio;

    for (int64_t i = from; i < to; i++) {
        const double g = (double)ref_gradient(n, i);
        const double m = beta1 * (double)avg[i] + (1 - beta1) * g;
        const double v = beta2 * (double)sq[i] + (1 - beta2) * g * g;

        avg[i] = (float)m;
        sq[i] = (float)v;
        r[i] = m / (1 - pow(beta1, t)) /
                   (sqrt(v / (1 - pow(beta2, t))) + n->attr.number[LAMB_ATTR_EPS]) +
               row[SEGMENT_DECAY] * (double)param[i];
        w2 += (double)param[i] * (double)param[i];
        r2 += r[i] * r[i];
    }
    ratio = w2 > 0 && r2 > 0 ? sqrt(w2 / r2) : 1;
    for (int64_t i = from; i < to; i++) {
        param[i] = (float)((double)param[i] - (double)sc->rate * row[SEGMENT_RATE] * ratio * r[i]);
        if (copy)
            copy[i] = param[i];
    }
}

void ref_lamb(const struct ref_node *n)
{
    const int64_t length = n->in_shape[LAMB_PARAM].dim[0];
    double *r;

    if (!is_applied(n->in[LAMB_CHECK], n->in[LAMB_CONTROL]))
        return;
    r = xcalloc((size_t)length, sizeof *r);
    for (int64_t from = 0, to; from < length; from = to) {
        to = (int64_t)ref_settings(n, from)[SEGMENT_END];
        ref_lamb_tensor(n, from, to, r);
    }
    free(r);
}

/* ---- Muon, all in double ---- */

/* y [m,n] = a x + (b x x^T + c x x^T x x^T) x, by sums over single elements. */
static void ref_newton_schulz(const double abc[3], int64_t m, int64_t n, const double *x, double *y)
{
    double *s = xcalloc((size_t)(m * m), sizeof *s), *t = xcalloc((size_t)(m * m), sizeof *t);

    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < m; j++)
            for (int64_t k = 0; k < n; k++)
                s[i * m + j] += x[i * n + k] * x[j * n + k];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < m; j++) {
            t[i * m + j] = abc[1] * s[i * m + j];
            for (int64_t k = 0; k < m; k++)
                t[i * m + j] += abc[2] * s[i * m + k] * s[k * m + j];
        }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            y[i * n + j] = abc[0] * x[i * n + j];
            for (int64_t k = 0; k < m; k++)
                y[i * n + j] += t[i * m + k] * x[k * n + j];
        }
    free(s);
    free(t);
}

/* The momentum goes on, and the way to go, divided by its norm, to x [rows, columns]. */
static void ref_muon_begin(const struct ref_node *n, double *x)
{
    const int64_t length = n->in_shape[MUON_PARAM].dim[0];
    const double momentum = n->attr.number[MUON_ATTR_MOMENTUM];
    float *avg = n->in[MUON_EXP_AVG];
    double squares = 0;

    for (int64_t i = 0; i < length; i++) {
        const double g = (double)ref_gradient(n, i);
        const double m = momentum * (double)avg[i] + (1 - momentum) * g;

        avg[i] = (float)m;
        x[i] = n->attr.number[MUON_ATTR_NESTEROV] == 1 ? momentum * m + (1 - momentum) * g : m;
        squares += x[i] * x[i];
    }
    for (int64_t i = 0; i < length; i++)
        x[i] /= fmax(sqrt(squares), 1e-7);
}

/* No matrix is transposed: for one of more rows than columns that gives the same, by more work. */
void ref_muon(const struct ref_node *n)
{
    const int64_t length = n->in_shape[MUON_PARAM].dim[0];
    const int64_t rows = (int64_t)n->attr.number[MUON_ATTR_ROWS];
    const struct step_scalars *sc = n->in[MUON_SCALARS];
    const double *row = n->in[MUON_SEGMENTS], rate = (double)sc->rate * row[SEGMENT_RATE];
    float *param = n->in[MUON_PARAM], *copy = n->in[MUON_COPY];
    double *x, *y;

    if (!is_applied(n->in[MUON_CHECK], n->in[MUON_CONTROL]))
        return;
    x = xcalloc((size_t)length, sizeof *x);
    y = xcalloc((size_t)length, sizeof *y);
    ref_muon_begin(n, x);
    for (int k = 0; k < (int)n->attr.number[MUON_ATTR_STEPS]; k++) {
        ref_newton_schulz(&n->attr.number[MUON_ATTR_A], rows, length / rows, x, y);
        memcpy(x, y, (size_t)length * sizeof *x);
    }
    for (int64_t i = 0; i < length; i++) {
        param[i] = (float)((double)param[i] * (1 - rate * row[SEGMENT_DECAY]) -
                           rate * n->attr.number[MUON_ATTR_RATIO] * x[i]);
        if (copy)
            copy[i] = param[i];
    }
    free(x);
    free(y);
}

/* Written as in DeepSpeed, by the number of iterations and the last one that overflowed. */
void ref_loss_scale(const struct ref_node *n)
{
    const struct scaler_rule *r = &n->attr.scale;
    const double *check = n->in[LOSS_SCALE_CHECK];
    float *s = n->out[LOSS_SCALE_NEW_SCALER];
    const int stable = (int)s[SCALER_GOOD]; /* iter - last_overflow - 1, now */

    if (((float *)n->in[LOSS_SCALE_CONTROL])[CONTROL_VOID] > 0)
        return;
    s[SCALER_STUCK] = 0;
    if (((float *)n->in[LOSS_SCALE_CONTROL])[CONTROL_NONFINITE] > 0)
        return;
    if (check[1] != 0) {
        if (s[SCALER_HYSTERESIS] == 1) {
            s[SCALER_STUCK] = s[SCALER_SCALE] == r->min;
            s[SCALER_SCALE] = fmaxf(s[SCALER_SCALE] / 2, r->min);
        } else {
            s[SCALER_HYSTERESIS]--;
        }
        s[SCALER_GOOD] = 0;
        return;
    }
    s[SCALER_GOOD] = (float)(stable + 1);
    if (stable > 0 && stable % r->window == 0) {
        s[SCALER_HYSTERESIS] = (float)r->hysteresis;
        s[SCALER_SCALE] = fminf(s[SCALER_SCALE] * 2, SCALER_MAX);
        s[SCALER_GOOD] = 1;
    }
}

void ref_cast(const struct ref_node *n)
{
    memmove(n->out[CAST_Y], n->in[CAST_X],
            (size_t)shape_elements(&n->out_shape[CAST_Y]) * sizeof(float));
}

/* By the number of weights that are in the average so far. */
void ref_average(const struct ref_node *n)
{
    const float *param = n->in[AVERAGE_PARAM];
    const struct step_scalars *sc = n->in[AVERAGE_SCALARS];
    const int first = (int)n->attr.number[AVERAGE_ATTR_FIRST];
    const int every = (int)n->attr.number[AVERAGE_ATTR_EVERY];
    const double decay = n->attr.number[AVERAGE_ATTR_DECAY];
    float *average = n->out[AVERAGE_NEW_AVERAGE];
    const int update = (int)sc->n_updates + 1;
    int n_before = 0;

    if (!is_applied(n->in[AVERAGE_CHECK], n->in[AVERAGE_CONTROL]))
        return;
    for (int k = first; k < update; k += every)
        n_before++;
    if (update > first && first + n_before * every != update)
        return;
    for (int64_t i = 0; i < n->in_shape[AVERAGE_PARAM].dim[0]; i++) {
        const double old = (double)average[i], now = (double)param[i];

        if (n_before == 0)
            average[i] = param[i];
        else if (decay < 0)
            average[i] = (float)((old * n_before + now) / (n_before + 1));
        else
            average[i] = (float)(decay * old + (1 - decay) * now);
    }
}

void ref_commit(const struct ref_node *n)
{
    if (is_applied(n->in[COMMIT_CHECK], n->in[COMMIT_CONTROL]))
        memcpy(n->out[COMMIT_STATE], n->in[COMMIT_SHADOW],
               (size_t)n->in_shape[COMMIT_SHADOW].dim[0] * sizeof(float));
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
