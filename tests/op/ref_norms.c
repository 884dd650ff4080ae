/* ref_norms - the naive kernels of normalisation and of the losses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "op/scaler.h"
#include "ref_kernels.h"

static int64_t last_dim(const struct shape *s) { return s->dim[s->n - 1]; }

void ref_batch_norm_stats(const struct ref_node *n)
{
    const float *x = n->in[0], *m = n->in[1];
    const int64_t C = last_dim(&n->in_shape[0]), total = shape_elements(&n->in_shape[0]);
    double *sums = n->out[0];

    memset(sums, 0, (size_t)(2 * C + 1) * sizeof *sums);
    for (int64_t i = 0; i < total; i++) {
        double d = (double)x[i] - m[i % C];

        sums[i % C] += d;
        sums[C + i % C] += d * d;
    }
    sums[2 * C] = (double)(total / C);
}

struct moments {
    double n, mean, var, rstd;
};

static struct moments moments_of(const double *sums, const float *m, int64_t C, int64_t c,
                                 double eps)
{
    struct moments s = {.n = sums[2 * C]};

    s.mean = m[c] + sums[c] / s.n;
    s.var = fmax(0, sums[C + c] / s.n - sums[c] / s.n * (sums[c] / s.n));
    s.rstd = 1 / sqrt(s.var + eps);
    return s;
}

void ref_batch_norm(const struct ref_node *n)
{
    const float *x = n->in[0], *weight = n->in[2], *bias = n->in[3], *m = n->in[4], *v = n->in[5];
    const double *sums = n->in[1], eps = n->attr.norm.eps, momentum = n->attr.norm.momentum;
    const int64_t C = last_dim(&n->in_shape[0]);
    float *y = n->out[0], *next_m = n->out[1], *next_v = n->out[2];

    for (int64_t i = 0; i < shape_elements(&n->in_shape[0]); i++) {
        struct moments s = moments_of(sums, m, C, i % C, eps);

        y[i] = (float)((x[i] - s.mean) * s.rstd * weight[i % C] + bias[i % C]);
    }
    for (int64_t c = 0; c < C; c++) {
        struct moments s = moments_of(sums, m, C, c, eps);
        double unbiased = s.n > 1 ? s.var * s.n / (s.n - 1) : s.var;

        next_m[c] = s.n > 0 ? (float)((1 - momentum) * m[c] + momentum * s.mean) : m[c];
        next_v[c] = s.n > 0 ? (float)((1 - momentum) * v[c] + momentum * unbiased) : v[c];
    }
}

void ref_batch_norm_infer(const struct ref_node *n)
{
    const float *x = n->in[0], *weight = n->in[1], *bias = n->in[2], *m = n->in[3], *v = n->in[4];
    const int64_t C = last_dim(&n->in_shape[0]);
    float *y = n->out[0];

    for (int64_t i = 0; i < shape_elements(&n->in_shape[0]); i++) {
        int64_t c = i % C;

        y[i] = (float)(((double)x[i] - m[c]) / sqrt((double)v[c] + n->attr.norm.eps) * weight[c] +
                       bias[c]);
    }
}

void ref_batch_norm_grad_stats(const struct ref_node *n)
{
    const float *x = n->in[0], *dy = n->in[1], *m = n->in[3];
    const double *sums = n->in[2];
    const int64_t C = last_dim(&n->in_shape[0]);
    double *gsums = n->out[0];

    memset(gsums, 0, (size_t)(2 * C) * sizeof *gsums);
    for (int64_t i = 0; i < shape_elements(&n->in_shape[0]); i++) {
        struct moments s = moments_of(sums, m, C, i % C, n->attr.norm.eps);

        gsums[i % C] += dy[i];
        gsums[C + i % C] += dy[i] * (x[i] - s.mean) * s.rstd;
    }
    if (n->out[1])
        ref_round(gsums + C, C, n->out[1]);
    if (n->out[2])
        ref_round(gsums, C, n->out[2]);
}

void ref_batch_norm_grad(const struct ref_node *n)
{
    const float *x = n->in[0], *dy = n->in[1], *m = n->in[3], *weight = n->in[5];
    const double *sums = n->in[2], *gsums = n->in[4];
    const int64_t C = last_dim(&n->in_shape[0]);
    float *dx = n->out[0];

    for (int64_t i = 0; i < shape_elements(&n->in_shape[0]); i++) {
        int64_t c = i % C;
        struct moments s = moments_of(sums, m, C, c, n->attr.norm.eps);
        double xhat = (x[i] - s.mean) * s.rstd;

        dx[i] = (float)(weight[c] * s.rstd * (dy[i] - gsums[c] / s.n - xhat * gsums[C + c] / s.n));
    }
}

void ref_layer_norm(const struct ref_node *n)
{
    const float *x = n->in[0], *weight = n->in[1], *bias = n->in[2];
    const int64_t C = last_dim(&n->in_shape[0]), rows = shape_elements(&n->in_shape[0]) / C;
    float *y = n->out[0], *means = n->out[1], *rstds = n->out[2];

    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, var = 0, rstd;

        for (int64_t c = 0; c < C; c++)
            mean += x[r * C + c] / (double)C;
        for (int64_t c = 0; c < C; c++)
            var += (x[r * C + c] - mean) * (x[r * C + c] - mean) / (double)C;
        rstd = 1 / sqrt(var + n->attr.norm.eps);
        for (int64_t c = 0; c < C; c++)
            y[r * C + c] = (float)((x[r * C + c] - mean) * rstd * weight[c] + bias[c]);
        if (means)
            means[r] = (float)mean;
        if (rstds)
            rstds[r] = (float)rstd;
    }
}

void ref_layer_norm_grad(const struct ref_node *n)
{
    const float *x = n->in[0], *dy = n->in[1], *weight = n->in[2], *mean = n->in[3];
    const float *rstd = n->in[4];
    const int64_t C = last_dim(&n->in_shape[0]), rows = shape_elements(&n->in_shape[0]) / C;
    double *dw = ref_sums(C), *db = ref_sums(C);
    float *dx = n->out[0];

    for (int64_t r = 0; r < rows; r++) {
        double d_avg = 0, dx_avg = 0;

        for (int64_t c = 0; c < C; c++) {
            const int64_t i = r * C + c;
            double xhat = ((double)x[i] - mean[r]) * rstd[r], d = (double)dy[i] * weight[c];

            dw[c] += dy[i] * xhat;
            db[c] += dy[i];
            d_avg += d / (double)C;
            dx_avg += d * xhat / (double)C;
        }
        for (int64_t c = 0; dx && c < C; c++) {
            const int64_t i = r * C + c;
            double xhat = ((double)x[i] - mean[r]) * rstd[r];

            dx[i] = (float)(rstd[r] * ((double)dy[i] * weight[c] - d_avg - xhat * dx_avg));
        }
    }
    if (n->out[1])
        ref_round(dw, C, n->out[1]);
    if (n->out[2])
        ref_round(db, C, n->out[2]);
    free(dw);
    free(db);
}

static int64_t first_largest(const float *row, int64_t C)
{
    int64_t best = 0;

    for (int64_t c = 1; c < C; c++)
        if (row[c] > row[best])
            best = c;
    return best;
}

static void count_sample(double *metrics, double loss, int is_correct)
{
    if (isfinite(loss))
        metrics[METRIC_LOSS_SUM] += loss;
    else
        metrics[METRIC_NONFINITE] += 1;
    metrics[METRIC_CORRECT] += is_correct;
    metrics[METRIC_SAMPLES] += 1;
}

static double target(const struct ref_node *n, int64_t C, int64_t c, int32_t label)
{
    double s = n->attr.loss.label_smoothing;

    return (c == label ? 1 - s : 0) + s / (double)C;
}

void ref_softmax_xent(const struct ref_node *n)
{
    const int64_t N = n->in_shape[0].dim[0], C = n->in_shape[0].dim[1];
    const float *logits = n->in[0];
    const int32_t *labels = n->in[1];
    float *prob = n->out[0];

    for (int64_t r = 0; r < N; r++) {
        const float *row = logits + r * C;
        double sum = 0, loss = 0, most = row[first_largest(row, C)];

        for (int64_t c = 0; c < C; c++)
            sum += exp(row[c] - most);
        for (int64_t c = 0; c < C; c++)
            loss -= target(n, C, c, labels[r]) * (row[c] - most - log(sum));
        if (labels[r] < 0 || labels[r] >= C)
            loss = (double)NAN;
        count_sample(n->in[2], loss, first_largest(row, C) == labels[r]);
        for (int64_t c = 0; prob && c < C; c++)
            prob[r * C + c] = (float)(exp(row[c] - most) / sum);
    }
}

void ref_softmax_xent_grad(const struct ref_node *n)
{
    const int64_t N = n->in_shape[0].dim[0], C = n->in_shape[0].dim[1];
    const float *prob = n->in[0];
    const int32_t *labels = n->in[1];
    const struct step_scalars *sc = n->in[2];
    const float *scaler = n->in[3];
    const double scale = sc->loss_scale * (scaler ? (double)scaler[SCALER_SCALE] : 1);
    float *dlogits = n->out[0];

    for (int64_t i = 0; i < N * C; i++)
        dlogits[i] = (float)((prob[i] - target(n, C, i % C, labels[i / C])) * scale);
}

void ref_softmax_xent_train(const struct ref_node *n)
{
    const int64_t n_elements = shape_elements(&n->in_shape[0]);
    struct ref_node loss = *n, grad = *n;
    float *prob = xmalloc((size_t)n_elements * sizeof *prob + 1);

    loss.out[0] = prob;
    ref_softmax_xent(&loss);
    grad.in[0] = prob;
    grad.in[2] = n->in[3];
    grad.in[3] = n->in[4];
    ref_softmax_xent_grad(&grad);
    free(prob);
}

void ref_mse(const struct ref_node *n)
{
    const int64_t N = n->in_shape[0].dim[0], C = n->in_shape[0].dim[1];
    const float *y = n->in[0];
    const int32_t *labels = n->in[1];
    float *diff = n->out[0];

    for (int64_t r = 0; r < N; r++) {
        double loss = 0;

        for (int64_t c = 0; c < C; c++) {
            double d = (double)y[r * C + c] - (c == labels[r]);

            loss += d * d / (double)C;
        }
        count_sample(n->in[2], loss, first_largest(y + r * C, C) == labels[r]);
        for (int64_t c = 0; diff && c < C; c++)
            diff[r * C + c] = (float)((double)y[r * C + c] - (c == labels[r]));
    }
}

void ref_mse_grad(const struct ref_node *n)
{
    const int64_t C = n->in_shape[0].dim[1];
    const float *diff = n->in[0];
    const struct step_scalars *sc = n->in[1];
    const float *scaler = n->in[2];
    const double scale = sc->loss_scale * (scaler ? (double)scaler[SCALER_SCALE] : 1);
    float *dy = n->out[0];

    for (int64_t i = 0; i < shape_elements(&n->out_shape[0]); i++)
        dy[i] = (float)(diff[i] * (2.0 / (double)C) * scale);
}
