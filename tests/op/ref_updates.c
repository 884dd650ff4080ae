/* ref_updates - the naive kernels of a step's end: the control vector, the optimizers, the loss
 * scale, the average, and what is told of the step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "op/control.h"
#include "op/scaler.h"
#include "op/seal.h"
#include "op/update.h"
#include "ref_kernels.h"

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
    if (n->in[SEAL_KEPT]) {
        const int64_t *kept = n->in[SEAL_KEPT], lowest = KEPT_LIMIT - kept[KEPT_LOWEST];

        to[SEALED_KEPT] = (float)kept[KEPT_COUNT];
        to[SEALED_KEPT_LOW] = (float)(lowest % (1 << 24));
        to[SEALED_KEPT_HIGH] = (float)(lowest / (1 << 24));
    }
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

/* Parameter i becomes `next`, or stays if that is not finite. */
static void ref_move(const struct ref_node *n, int64_t i, double next)
{
    float *param = n->in[UPDATE_PARAM], *copy = n->in[UPDATE_COPY];
    int64_t *kept = n->in[UPDATE_KEPT];
    const int64_t shift = (int64_t)ref_settings(n, i)[SEGMENT_SHIFT], mark = KEPT_LIMIT - shift - i;

    if (isfinite((float)next)) {
        param[i] = (float)next;
    } else if (kept && shift >= 0) {
        kept[KEPT_LOWEST] = kept[KEPT_LOWEST] > mark ? kept[KEPT_LOWEST] : mark;
        kept[KEPT_COUNT]++;
    }
    if (copy)
        copy[i] = param[i];
}

void ref_sgd(const struct ref_node *n)
{
    float *param = n->in[SGD_PARAM], *buf = n->in[SGD_MOMENTUM];
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
        ref_move(n, i, (double)(param[i] - sc->rate * (float)row[SEGMENT_RATE] * g));
    }
}

/* All is computed in double, and the powers with pow(). */
void ref_adamw(const struct ref_node *n)
{
    float *param = n->in[ADAMW_PARAM];
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
        ref_move(n, i,
                 (double)param[i] * (coupled ? 1 : 1 - rate * row[SEGMENT_DECAY]) -
                     rate * (m / (1 - pow(beta1, t))) /
                         (sqrt(v / (1 - pow(beta2, t))) + n->attr.number[ADAMW_ATTR_EPS]));
    }
}

/* All is computed in double. */
void ref_lion(const struct ref_node *n)
{
    float *param = n->in[LION_PARAM], *avg = n->in[LION_EXP_AVG];
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

        ref_move(n, i, (double)param[i] * (1 - rate * row[SEGMENT_DECAY]) - rate * sign);
        avg[i] = (float)(beta2 * m + (1 - beta2) * g);
    }
}

/* Moves tensor [from, to), all in double.  r [n] is room. */
static void ref_lamb_tensor(const struct ref_node *n, int64_t from, int64_t to, double *r)
{
    float *param = n->in[LAMB_PARAM];
    float *avg = n->in[LAMB_EXP_AVG], *sq = n->in[LAMB_EXP_AVG_SQ];
    const struct step_scalars *sc = n->in[LAMB_SCALARS];
    const double beta1 = n->attr.number[LAMB_ATTR_BETA1], beta2 = n->attr.number[LAMB_ATTR_BETA2];
    const double *number = n->attr.number, least = number[LAMB_ATTR_LEAST];
    const double most = number[LAMB_ATTR_MOST] > 0 ? number[LAMB_ATTR_MOST] : HUGE_VAL;
    const double t = (double)(sc->n_updates + 1), *row = ref_settings(n, from);
    const double one = 1 - pow(beta1, t), two = 1 - pow(beta2, t);
    const int where = (int)number[LAMB_ATTR_CORRECTS]; /* 0: in r; 1: in the rate; 2: nowhere */
    double w2 = 0, r2 = 0, ratio;

    for (int64_t i = from; i < to; i++) {
        const double g = (double)ref_gradient(n, i);
        const double m = beta1 * (double)avg[i] + (1 - beta1) * g;
        const double v = beta2 * (double)sq[i] + (1 - beta2) * g * g;

        avg[i] = (float)m;
        sq[i] = (float)v;
        r[i] = m / (where == 0 ? one : 1) /
                   (sqrt(v / (where == 0 ? two : 1)) + number[LAMB_ATTR_EPS]) +
               row[SEGMENT_DECAY] * (double)param[i];
        w2 += (double)param[i] * (double)param[i];
        r2 += r[i] * r[i];
    }
    ratio = w2 > 0 && r2 > 0 ? fmin(fmax(sqrt(w2 / r2), least), most) : 1;
    ratio *= where == 1 ? sqrt(two) / one : 1;
    for (int64_t i = from; i < to; i++)
        ref_move(n, i, (double)param[i] - (double)sc->rate * row[SEGMENT_RATE] * ratio * r[i]);
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
    float *param = n->in[MUON_PARAM];
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
    for (int64_t i = 0; i < length; i++)
        ref_move(n, i,
                 (double)param[i] * (1 - rate * row[SEGMENT_DECAY]) -
                     rate * n->attr.number[MUON_ATTR_RATIO] * x[i]);
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

/* By the number of weights that are in the average so far. */
void ref_average(const struct ref_node *n)
{
    const float *param = n->in[AVERAGE_PARAM];
    const struct step_scalars *sc = n->in[AVERAGE_SCALARS];
    const int first = (int)n->attr.number[AVERAGE_ATTR_FIRST];
    const int every = (int)n->attr.number[AVERAGE_ATTR_EVERY];
    const double decay = n->attr.number[AVERAGE_ATTR_DECAY];
    float *average = n->out[AVERAGE_NEW_AVERAGE];
    const int step = (int)sc->step + 1;
    int n_before = 0;

    if (!is_applied(n->in[AVERAGE_CHECK], n->in[AVERAGE_CONTROL]))
        return;
    for (int k = first; k < step; k += every)
        n_before++;
    if (sc->n_updates == 0)
        n_before = 0;
    else if (step > first && first + n_before * every != step)
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
