#include "ref_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/util.h"
#include "op/control.h"
#include "op/scaler.h"
#include "op/seal.h"

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
    const float *x = n->in[0];
    float *y = n->out[0];

    for (int64_t i = 0; i < shape_elements(&n->out_shape[0]); i++)
        y[i] = (float)ref_activate(n->attr.act.kind, x[i]);
}

void ref_activation_grad(const struct ref_node *n)
{
    const float *x = n->in[0], *y = n->in[1], *dy = n->in[2];
    float *dx = n->out[0];

    for (int64_t i = 0; i < shape_elements(&n->out_shape[0]); i++) {
        double d = ref_activate_grad(n->attr.act.kind, x ? x[i] : 0, y ? y[i] : 0);

        dx[i] = (float)(n->attr.act.kind == ACT_RELU && d == 0 ? 0 : d * dy[i]);
    }
}

void ref_bias(const struct ref_node *n)
{
    const float *x = n->in[0], *b = n->in[1];
    float *y = n->out[0];
    const int64_t c = n->in_shape[1].dim[0];

    for (int64_t i = 0; i < shape_elements(&n->out_shape[0]); i++)
        y[i] = x[i] + b[i % c];
}

void ref_bias_grad(const struct ref_node *n)
{
    const float *dy = n->in[0];
    const int64_t c = n->out_shape[0].dim[0];
    double *sum = ref_sums(c);

    for (int64_t i = 0; i < shape_elements(&n->in_shape[0]); i++)
        sum[i % c] += dy[i];
    ref_round(sum, c, n->out[0]);
    free(sum);
}

void ref_add(const struct ref_node *n)
{
    const float *a = n->in[0], *b = n->in[1];
    float *y = n->out[0];

    for (int64_t i = 0; i < shape_elements(&n->out_shape[0]); i++)
        y[i] = a[i] + b[i];
}

void ref_gather(const struct ref_node *n)
{
    const int64_t *index = n->in[1];

    for (int k = 0; k < NODE_MAX_OUT; k++) {
        const int table = k == 0 ? 0 : k + 1;
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
    memmove(n->out[0], n->in[0], (size_t)shape_elements(&n->out_shape[0]) * sizeof(float));
}

void ref_allreduce(const struct ref_node *n) { (void)n; /* of one rank: the value as it is */ }

/* x [N,H,W,C] to or from y [N,C*H*W] */
static void transpose(const struct shape *x, const float *from, float *to, int forward)
{
    const int64_t H = x->dim[1], W = x->dim[2], C = x->dim[3];

    for (int64_t i = 0; i < shape_elements(x); i++) {
        int64_t c = i % C, w = i / C % W, h = i / C / W % H, s = i / C / W / H;
        int64_t j = ((s * C + c) * H + h) * W + w;

        to[forward ? j : i] = from[forward ? i : j];
    }
}

void ref_flatten(const struct ref_node *n) { transpose(&n->in_shape[0], n->in[0], n->out[0], 1); }

void ref_unflatten(const struct ref_node *n)
{
    transpose(&n->out_shape[0], n->in[0], n->out[0], 0);
}

void ref_dropout(const struct ref_node *n)
{
    const struct shape *s = &n->out_shape[0];
    const struct step_scalars *sc = n->in[1];
    const float *x = n->in[0], p = n->attr.dropout.p, scale = 1 / (1 - p);
    float *y = n->out[0];
    const int64_t total = shape_elements(s), per_sample = s->dim[0] ? total / s->dim[0] : 0;

    for (int64_t i = 0; i < total; i++) {
        uint64_t e = (uint64_t)(sc->first_position * per_sample + i);
        uint64_t index = ((uint64_t)n->attr.dropout.tag << 40) + (e >> 2);
        struct rng_block b = rng_draw(sc->seed, RNG_DROPOUT, sc->step, index);

        y[i] = rng_to_unit(b.v[e & 3]) >= p ? x[i] * scale : 0;
    }
}

void ref_control_pack(const struct ref_node *n)
{
    const struct step_scalars *sc = n->in[1];

    control_pack(n->in[0], (unsigned)sc->requests, sc->after != 0 && sc->clean != sc->after,
                 n->out[0]);
}

void ref_grad_check(const struct ref_node *n)
{
    const float *grad = n->in[0];
    double *check = n->out[0];

    check[0] = check[1] = 0;
    for (int64_t i = 0; i < n->in_shape[0].dim[0]; i++) {
        check[0] += (double)grad[i] * grad[i];
        if (!isfinite(grad[i]))
            check[1] = 1;
    }
}

static int is_applied(const double *check, const float *control)
{
    return check[1] == 0 && !(control[CONTROL_NONFINITE] > 0) && !(control[CONTROL_VOID] > 0);
}

void ref_seal(const struct ref_node *n)
{
    const double *check = n->in[2], *metrics = n->in[5];
    const float *control = n->in[3], *scaler = n->in[7];
    const struct step_scalars *sc = n->in[4];
    float *clean = n->out[0], *to = (float *)n->out[1] + sc->slot * SEALED_LEN;

    memset(to, 0, SEALED_LEN * sizeof *to);
    to[SEALED_STAMP] = sc->stamp;
    to[SEALED_BAD_LOSSES] = (float)metrics[METRIC_NONFINITE];
    to[SEALED_BAD_GRAD] = (float)check[1];
    to[SEALED_WAITED_NS] = (float)((int64_t *)n->in[6])[1];
    if (scaler)
        memcpy(to + SEALED_SCALER, scaler, SCALER_LEN * sizeof *to);
    memcpy(to + SEALED_CONTROL, control, CONTROL_LEN * sizeof *to);
    clean[0] = 0;
    if (is_applied(check, control) && control[CONTROL_STOP] == 0 &&
        control[CONTROL_CHECKPOINT] == 0 && control[CONTROL_REGROUP] == 0)
        clean[0] = sc->stamp;
}

void ref_sgd(const struct ref_node *n)
{
    float *param = n->in[0], *buf = n->in[2], *copy = n->in[6];
    const double scale = n->in[7] ? (double)((float *)n->in[7])[SCALER_SCALE] : 1;
    const float *grad = n->in[1];
    const double *check = n->in[3];
    const struct step_scalars *sc = n->in[5];
    const float momentum = n->attr.sgd.momentum, decay = n->attr.sgd.weight_decay;
    const float fresh = 1 - n->attr.sgd.dampening;
    float clip = 1;

    if (!is_applied(check, n->in[4]))
        return;
    if (sc->clip_norm > 0)
        clip = (float)fmin(1, sc->clip_norm / (sqrt(check[0]) / scale + 1e-6));
    for (int64_t i = 0; i < n->in_shape[0].dim[0]; i++) {
        float g = (float)(grad[i] / scale) * clip;

        if (decay != 0)
            g = g + decay * param[i];
        if (buf) {
            buf[i] = sc->first_update ? g : momentum * buf[i] + fresh * g;
            g = n->attr.sgd.nesterov ? g + momentum * buf[i] : buf[i];
        }
        param[i] = param[i] - sc->rate * g;
        if (copy)
            copy[i] = param[i];
    }
}

/* Written as DeepSpeed has it: iterations, and the one that overflowed last. */
void ref_loss_scale(const struct ref_node *n)
{
    const struct scaler_rule *r = &n->attr.scale;
    const double *check = n->in[1];
    float *s = n->out[0];
    const int stable = (int)s[SCALER_GOOD]; /* iter - last_overflow - 1, now */

    if (((float *)n->in[2])[CONTROL_VOID] > 0)
        return;
    s[SCALER_STUCK] = 0;
    if (((float *)n->in[2])[CONTROL_NONFINITE] > 0)
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
    memmove(n->out[0], n->in[0], (size_t)shape_elements(&n->out_shape[0]) * sizeof(float));
}

void ref_commit(const struct ref_node *n)
{
    if (is_applied(n->in[1], n->in[2]))
        memcpy(n->out[0], n->in[0], (size_t)n->in_shape[0].dim[0] * sizeof(float));
}
