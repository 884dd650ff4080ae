/* ref_norms - the naive kernels of batch norm, layer norm and the losses.  Each is the formula in
 * op/NAME.c, with sums in double. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "op/scaler.h"
#include "ref_kernels.h"
#include "tensor/sample.h"

static int64_t last_dim(const struct shape *s) { return s->dim[s->n - 1]; }

void ref_batch_norm_stats(const struct ref_node *n)
{
    const float *x = n->in[BATCH_NORM_STATS_X], *m = n->in[BATCH_NORM_STATS_RUNNING_MEAN];
    const int64_t C = last_dim(&n->in_shape[BATCH_NORM_STATS_X]),
                  total = shape_elements(&n->in_shape[BATCH_NORM_STATS_X]);
    double *sums = n->out[BATCH_NORM_STATS_SUMS];

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

/* The activation of norm + add[i]; without add of norm. */
static float act_of(const struct ref_node *n, double norm, const float *add, int64_t i)
{
    if (add)
        norm += (double)add[i];
    return (float)(n->attr.norm.act == ACT_NONE ? norm : ref_activate(n->attr.norm.act, norm));
}

/* dy[i], or 0 where the fused relu's output is not positive. */
static double signed_dy(const struct ref_node *n, double xhat, const float *weight,
                        const float *bias, double dy)
{
    return n->attr.norm.act == ACT_RELU && xhat * *weight + *bias <= 0 ? 0 : dy;
}

void ref_batch_norm(const struct ref_node *n)
{
    const float *x = n->in[BATCH_NORM_X], *weight = n->in[BATCH_NORM_WEIGHT],
                *bias = n->in[BATCH_NORM_BIAS], *m = n->in[BATCH_NORM_RUNNING_MEAN],
                *v = n->in[BATCH_NORM_RUNNING_VAR];
    const double *sums = n->in[BATCH_NORM_SUMS], eps = n->attr.norm.eps,
                 momentum = n->attr.norm.momentum;
    const int64_t C = last_dim(&n->in_shape[BATCH_NORM_X]);
    const float *add = n->in[BATCH_NORM_ADD];
    float *y = n->out[BATCH_NORM_Y], *next_m = n->out[BATCH_NORM_NEXT_MEAN],
          *next_v = n->out[BATCH_NORM_NEXT_VAR];

    for (int64_t i = 0; i < shape_elements(&n->in_shape[BATCH_NORM_X]); i++) {
        struct moments s = moments_of(sums, m, C, i % C, eps);

        y[i] = act_of(n, (x[i] - s.mean) * s.rstd * weight[i % C] + bias[i % C], add, i);
    }
    for (int64_t c = 0; c < C; c++) {
        struct moments s = moments_of(sums, m, C, c, eps);
        double unbiased = s.var * s.n / (s.n - 1);

        next_m[c] = s.n > 1 ? (float)((1 - momentum) * m[c] + momentum * s.mean) : m[c];
        next_v[c] = s.n > 1 ? (float)((1 - momentum) * v[c] + momentum * unbiased) : v[c];
    }
}

void ref_batch_norm_infer(const struct ref_node *n)
{
    const float *x = n->in[BATCH_NORM_INFER_X], *weight = n->in[BATCH_NORM_INFER_WEIGHT],
                *bias = n->in[BATCH_NORM_INFER_BIAS], *m = n->in[BATCH_NORM_INFER_RUNNING_MEAN],
                *v = n->in[BATCH_NORM_INFER_RUNNING_VAR];
    const int64_t C = last_dim(&n->in_shape[BATCH_NORM_INFER_X]);
    const float *add = n->in[BATCH_NORM_INFER_ADD];
    float *y = n->out[BATCH_NORM_INFER_Y];

    for (int64_t i = 0; i < shape_elements(&n->in_shape[BATCH_NORM_INFER_X]); i++) {
        int64_t c = i % C;

        y[i] = act_of(
            n, ((double)x[i] - m[c]) / sqrt((double)v[c] + n->attr.norm.eps) * weight[c] + bias[c],
            add, i);
    }
}

void ref_batch_norm_fold(const struct ref_node *n)
{
    const float *w = n->in[BATCH_NORM_FOLD_W], *b = n->in[BATCH_NORM_FOLD_B],
                *weight = n->in[BATCH_NORM_FOLD_WEIGHT], *bias = n->in[BATCH_NORM_FOLD_BIAS],
                *m = n->in[BATCH_NORM_FOLD_RUNNING_MEAN], *v = n->in[BATCH_NORM_FOLD_RUNNING_VAR];
    const int64_t C = n->in_shape[BATCH_NORM_FOLD_W].dim[0];
    const int64_t each = shape_elements(&n->in_shape[BATCH_NORM_FOLD_W]) / C;
    float *filter = n->out[BATCH_NORM_FOLD_FILTER], *shift = n->out[BATCH_NORM_FOLD_SHIFT];

    for (int64_t c = 0; c < C; c++) {
        const double scale = weight[c] / sqrt((double)v[c] + n->attr.norm.eps);

        for (int64_t i = c * each; i < (c + 1) * each; i++)
            filter[i] = (float)(w[i] * scale);
        shift[c] = (float)(((b ? (double)b[c] : 0.0) - m[c]) * scale + bias[c]);
    }
}

void ref_batch_norm_grad_stats(const struct ref_node *n)
{
    const float *x = n->in[BATCH_NORM_GRAD_STATS_X], *dy = n->in[BATCH_NORM_GRAD_STATS_DY],
                *m = n->in[BATCH_NORM_GRAD_STATS_RUNNING_MEAN],
                *weight = n->in[BATCH_NORM_GRAD_STATS_WEIGHT],
                *bias = n->in[BATCH_NORM_GRAD_STATS_BIAS];
    const double *sums = n->in[BATCH_NORM_GRAD_STATS_SUMS];
    const int64_t C = last_dim(&n->in_shape[BATCH_NORM_GRAD_STATS_X]);
    double *gsums = n->out[BATCH_NORM_GRAD_STATS_GSUMS];

    memset(gsums, 0, (size_t)(2 * C) * sizeof *gsums);
    for (int64_t i = 0; i < shape_elements(&n->in_shape[BATCH_NORM_GRAD_STATS_X]); i++) {
        struct moments s = moments_of(sums, m, C, i % C, n->attr.norm.eps);

        double xhat = (x[i] - s.mean) * s.rstd,
               d = weight ? signed_dy(n, xhat, weight + i % C, bias + i % C, dy[i]) : dy[i];

        gsums[i % C] += d;
        gsums[C + i % C] += d * xhat;
    }
    if (n->out[BATCH_NORM_GRAD_STATS_DWEIGHT])
        ref_round(gsums + C, C, n->out[BATCH_NORM_GRAD_STATS_DWEIGHT]);
    if (n->out[BATCH_NORM_GRAD_STATS_DBIAS])
        ref_round(gsums, C, n->out[BATCH_NORM_GRAD_STATS_DBIAS]);
}

void ref_batch_norm_grad(const struct ref_node *n)
{
    const float *x = n->in[BATCH_NORM_GRAD_X], *dy = n->in[BATCH_NORM_GRAD_DY],
                *m = n->in[BATCH_NORM_GRAD_RUNNING_MEAN], *weight = n->in[BATCH_NORM_GRAD_WEIGHT],
                *bias = n->in[BATCH_NORM_GRAD_BIAS];
    const double *sums = n->in[BATCH_NORM_GRAD_SUMS], *gsums = n->in[BATCH_NORM_GRAD_GSUMS];
    const int64_t C = last_dim(&n->in_shape[BATCH_NORM_GRAD_X]);
    float *dx = n->out[BATCH_NORM_GRAD_DX];

    for (int64_t i = 0; i < shape_elements(&n->in_shape[BATCH_NORM_GRAD_X]); i++) {
        int64_t c = i % C;
        struct moments s = moments_of(sums, m, C, c, n->attr.norm.eps);
        double xhat = (x[i] - s.mean) * s.rstd;

        double d = bias ? signed_dy(n, xhat, weight + c, bias + c, dy[i]) : dy[i];

        dx[i] = (float)(weight[c] * s.rstd * (d - gsums[c] / s.n - xhat * gsums[C + c] / s.n));
    }
}

void ref_layer_norm(const struct ref_node *n)
{
    const float *x = n->in[LAYER_NORM_X], *weight = n->in[LAYER_NORM_WEIGHT],
                *bias = n->in[LAYER_NORM_BIAS];
    const int64_t C = last_dim(&n->in_shape[LAYER_NORM_X]),
                  rows = shape_elements(&n->in_shape[LAYER_NORM_X]) / C;
    float *y = n->out[LAYER_NORM_Y], *means = n->out[LAYER_NORM_MEAN],
          *rstds = n->out[LAYER_NORM_RSTD];

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
    const float *x = n->in[LAYER_NORM_GRAD_X], *dy = n->in[LAYER_NORM_GRAD_DY],
                *weight = n->in[LAYER_NORM_GRAD_WEIGHT], *mean = n->in[LAYER_NORM_GRAD_MEAN];
    const float *rstd = n->in[LAYER_NORM_GRAD_RSTD];
    const int64_t C = last_dim(&n->in_shape[LAYER_NORM_GRAD_X]),
                  rows = shape_elements(&n->in_shape[LAYER_NORM_GRAD_X]) / C;
    double *dw = ref_sums(C), *db = ref_sums(C);
    float *dx = n->out[LAYER_NORM_GRAD_DX];

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
    if (n->out[LAYER_NORM_GRAD_DWEIGHT])
        ref_round(dw, C, n->out[LAYER_NORM_GRAD_DWEIGHT]);
    if (n->out[LAYER_NORM_GRAD_DBIAS])
        ref_round(db, C, n->out[LAYER_NORM_GRAD_DBIAS]);
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

static double ref_loss_factor(const struct ref_node *n)
{
    return n->attr.loss.factor > 0 ? (double)n->attr.loss.factor : 1;
}

static void count_sample(const struct ref_node *n, double *metrics, double loss, double weight,
                         int is_correct)
{
    const enum loss_part part = n->attr.loss.part;

    metrics[METRIC_NONFINITE] += !isfinite(loss);
    metrics[METRIC_LOSS_SUM] +=
        isfinite(loss) && part != LOSS_IS_COUNTED ? loss * ref_loss_factor(n) : 0;
    if (part == LOSS_IS_MORE)
        return;
    metrics[METRIC_CORRECT] += is_correct;
    metrics[METRIC_TARGETS] += 1;
    metrics[METRIC_WEIGHT] += weight;
}

static double class_weight(const struct ref_node *n, int64_t C, int64_t c)
{
    const float *w = n->attr.loss.class_weight;

    return c < 0 || c >= C ? 0 : w ? (double)w[c] : 1;
}

/* Its probability times its weight. */
static double target(const struct ref_node *n, int64_t C, int64_t c, int32_t label)
{
    double s = n->attr.loss.label_smoothing;

    return class_weight(n, C, c) * ((c == label ? 1 - s : 0) + s / (double)C);
}

static double sum_of_targets(const struct ref_node *n, int64_t C, int32_t label)
{
    double sum = 0;

    for (int64_t c = 0; c < C; c++)
        sum += target(n, C, c, label);
    return n->attr.loss.class_weight ? sum : 1;
}

/* By taking the largest five away, one after the other. */
static int is_in_top5(const float *row, int64_t C, int32_t label)
{
    char taken[4096] = {0};

    for (int k = 0; k < 5; k++) {
        int64_t best = -1;

        for (int64_t c = 0; c < C; c++)
            if (!taken[c] && (best < 0 || !isnan(row[c]) < !isnan(row[best]) || row[c] > row[best]))
                best = c;
        if (best == label)
            return !isnan(row[label]);
        if (best >= 0)
            taken[best] = 1;
    }
    return 0;
}

void ref_softmax_xent(const struct ref_node *n)
{
    const int64_t N = n->in_shape[SOFTMAX_XENT_LOGITS].dim[0],
                  C = n->in_shape[SOFTMAX_XENT_LOGITS].dim[1];
    const float *logits = n->in[SOFTMAX_XENT_LOGITS];
    const int32_t *labels = n->in[SOFTMAX_XENT_LABELS];
    float *prob = n->out[SOFTMAX_XENT_PROB];

    for (int64_t r = 0; r < N; r++) {
        const float *row = logits + r * C;
        double sum = 0, loss = 0, most = row[first_largest(row, C)];

        for (int64_t c = 0; c < C; c++)
            sum += exp(row[c] - most);
        for (int64_t c = 0; c < C; c++)
            loss -= target(n, C, c, labels[r]) * (row[c] - most - log(sum));
        if (labels[r] < 0 || labels[r] >= C)
            loss = (double)NAN;
        if (labels[r] != SAMPLE_IGNORED) {
            double *metrics = n->in[SOFTMAX_XENT_METRICS];

            count_sample(n, metrics, loss,
                         n->attr.loss.class_weight ? class_weight(n, C, labels[r]) : 1,
                         first_largest(row, C) == labels[r]);
            if (n->attr.loss.counts_top5)
                metrics[METRIC_TOP5] += is_in_top5(row, C, labels[r]);
        }
        for (int64_t c = 0; prob && c < C; c++)
            prob[r * C + c] = (float)(exp(row[c] - most) / sum);
    }
}

void ref_softmax_xent_grad(const struct ref_node *n)
{
    const int64_t N = n->in_shape[SOFTMAX_XENT_GRAD_PROB].dim[0],
                  C = n->in_shape[SOFTMAX_XENT_GRAD_PROB].dim[1];
    const float *prob = n->in[SOFTMAX_XENT_GRAD_PROB];
    const int32_t *labels = n->in[SOFTMAX_XENT_GRAD_LABELS];
    const struct step_scalars *sc = n->in[SOFTMAX_XENT_GRAD_SCALARS];
    const float *scaler = n->in[SOFTMAX_XENT_GRAD_SCALER];
    const double scale =
        sc->loss_scale * ref_loss_factor(n) * (scaler ? (double)scaler[SCALER_SCALE] : 1);
    float *dlogits = n->out[SOFTMAX_XENT_GRAD_DLOGITS];

    for (int64_t i = 0; i < N * C; i++)
        dlogits[i] = labels[i / C] == SAMPLE_IGNORED
                         ? 0
                         : (float)((prob[i] * sum_of_targets(n, C, labels[i / C]) -
                                    target(n, C, i % C, labels[i / C])) *
                                   scale);
}

void ref_softmax_xent_train(const struct ref_node *n)
{
    const int64_t n_elements = shape_elements(&n->in_shape[SOFTMAX_XENT_TRAIN_LOGITS]);
    struct ref_node loss = *n, grad = *n;
    float *prob = xmalloc((size_t)n_elements * sizeof *prob + 1);

    loss.out[SOFTMAX_XENT_TRAIN_DLOGITS] = prob;
    ref_softmax_xent(&loss);
    grad.in[SOFTMAX_XENT_TRAIN_LOGITS] = prob;
    grad.in[SOFTMAX_XENT_TRAIN_METRICS] = n->in[SOFTMAX_XENT_TRAIN_SCALARS];
    grad.in[SOFTMAX_XENT_TRAIN_SCALARS] = n->in[SOFTMAX_XENT_TRAIN_SCALER];
    ref_softmax_xent_grad(&grad);
    free(prob);
}

/* The loss of an output and its slope, written with other formulas than the kernels'. */
static double pointwise(enum pointwise kind, double y, double t, double *slope)
{
    const double p = 1 / (1 + exp(-y)), d = y - t;

    if (kind == POINTWISE_GIVEN)
        return *slope = 1, y;
    *slope = kind == POINTWISE_SQUARED ? d : kind == POINTWISE_ABSOLUTE ? (d > 0) - (d < 0) : p - t;
    return kind == POINTWISE_SQUARED    ? d * d
           : kind == POINTWISE_ABSOLUTE ? fabs(d)
                                        : -t * log(p) - (1 - t) * log(1 - p);
}

void ref_pointwise_loss(const struct ref_node *n)
{
    const int64_t N = n->in_shape[POINTWISE_LOSS_Y].dim[0],
                  C = n->in_shape[POINTWISE_LOSS_Y].dim[1];
    const float *y = n->in[POINTWISE_LOSS_Y], *targets = n->in[POINTWISE_LOSS_TARGET];
    const int32_t *labels = n->in[POINTWISE_LOSS_TARGET];
    const enum pointwise kind = n->attr.loss.pointwise;
    const int is_real = n->in_shape[POINTWISE_LOSS_TARGET].n > 1 ||
                        (C > 1 && shape_elements(&n->in_shape[POINTWISE_LOSS_TARGET]) == N * C);
    float *slope = n->out[POINTWISE_LOSS_SLOPE];

    for (int64_t r = 0; r < N; r++) {
        const int is_ignored = !is_real && labels[r] == SAMPLE_IGNORED;
        int all_agree = 1;
        double loss = 0, d;

        for (int64_t c = 0; c < C; c++) {
            const double t = is_real ? (double)targets[r * C + c] : c == labels[r];

            loss += pointwise(kind, (double)y[r * C + c], t, &d) / (double)C;
            all_agree &= (y[r * C + c] > 0) == (t > 0.5);
            if (slope)
                slope[r * C + c] = is_ignored ? 0 : (float)d;
        }
        if (is_ignored)
            continue;
        count_sample(n, n->in[POINTWISE_LOSS_METRICS], loss, 1,
                     is_real || kind == POINTWISE_GIVEN ? kind == POINTWISE_LOGISTIC && all_agree
                                                        : first_largest(y + r * C, C) == labels[r]);
    }
}

void ref_pointwise_loss_grad(const struct ref_node *n)
{
    const int64_t C = n->in_shape[POINTWISE_LOSS_GRAD_SLOPE].dim[1];
    const float *slope = n->in[POINTWISE_LOSS_GRAD_SLOPE];
    const struct step_scalars *sc = n->in[POINTWISE_LOSS_GRAD_SCALARS];
    const float *scaler = n->in[POINTWISE_LOSS_GRAD_SCALER];
    const double scale =
        sc->loss_scale * ref_loss_factor(n) * (scaler ? (double)scaler[SCALER_SCALE] : 1);
    const double factor = n->attr.loss.pointwise == POINTWISE_SQUARED ? 2 : 1;
    float *dy = n->out[POINTWISE_LOSS_GRAD_DY];

    for (int64_t i = 0; i < shape_elements(&n->out_shape[POINTWISE_LOSS_GRAD_DY]); i++)
        dy[i] = (float)(slope[i] * (factor / (double)C) * scale);
}

static double rms_factor(const struct ref_node *n, const float *weight, int64_t c)
{
    return weight ? weight[c] + (n->attr.norm.one_plus ? 1.0 : 0.0) : 1;
}

void ref_rms_norm(const struct ref_node *n)
{
    const int64_t C = last_dim(&n->in_shape[RMS_NORM_X]);
    const float *x = n->in[RMS_NORM_X];
    float *y = n->out[RMS_NORM_Y], *rstd = n->out[RMS_NORM_RSTD];

    for (int64_t r = 0; r < shape_elements(&n->in_shape[RMS_NORM_X]) / C; r++) {
        double sum = 0, scale;

        for (int64_t c = 0; c < C; c++)
            sum += (double)x[r * C + c] * x[r * C + c];
        scale = 1 / sqrt(sum / (double)C + n->attr.norm.eps);
        for (int64_t c = 0; c < C; c++)
            y[r * C + c] = (float)(x[r * C + c] * scale * rms_factor(n, n->in[RMS_NORM_WEIGHT], c));
        if (rstd)
            rstd[r] = (float)scale;
    }
}

void ref_rms_norm_grad(const struct ref_node *n)
{
    const int64_t C = last_dim(&n->in_shape[RMS_NORM_GRAD_X]);
    const int64_t rows = shape_elements(&n->in_shape[RMS_NORM_GRAD_X]) / C;
    const float *x = n->in[RMS_NORM_GRAD_X], *dy = n->in[RMS_NORM_GRAD_DY];
    const float *weight = n->in[RMS_NORM_GRAD_WEIGHT], *rstd = n->in[RMS_NORM_GRAD_RSTD];
    float *dx = n->out[RMS_NORM_GRAD_DX];
    double *dweight = ref_sums(C);

    for (int64_t r = 0; r < rows; r++) {
        double mean = 0;

        for (int64_t c = 0; c < C; c++) {
            mean += dy[r * C + c] * rms_factor(n, weight, c) * x[r * C + c] * rstd[r] / (double)C;
            dweight[c] += (double)dy[r * C + c] * x[r * C + c] * rstd[r];
        }
        for (int64_t c = 0; dx && c < C; c++)
            dx[r * C + c] = (float)(rstd[r] * (dy[r * C + c] * rms_factor(n, weight, c) -
                                               x[r * C + c] * rstd[r] * mean));
    }
    if (n->out[RMS_NORM_GRAD_DWEIGHT])
        ref_round(dweight, C, n->out[RMS_NORM_GRAD_DWEIGHT]);
    free(dweight);
}

/* The number of the sample's group that element i of x belongs to. */
static int64_t group_of(const struct ref_node *n, int64_t i)
{
    const struct shape *x = &n->in_shape[0];
    const int64_t C = x->dim[x->n - 1], G = n->attr.group_norm.groups;

    return i / (shape_elements(x) / x->dim[0]) * G + i % C / (C / G);
}

void ref_group_norm(const struct ref_node *n)
{
    const struct shape *x_shape = &n->in_shape[0];
    const int64_t n_x = shape_elements(x_shape), C = x_shape->dim[x_shape->n - 1];
    const int64_t n_groups = x_shape->dim[0] * n->attr.group_norm.groups;
    const float *x = n->in[GROUP_NORM_X], *weight = n->in[GROUP_NORM_WEIGHT],
                *bias = n->in[GROUP_NORM_BIAS];
    double *mean = ref_sums(n_groups), *var = ref_sums(n_groups);
    const double count = (double)(n_x / (n_groups ? n_groups : 1));

    for (int64_t i = 0; i < n_x; i++)
        mean[group_of(n, i)] += (double)x[i] / count;
    for (int64_t i = 0; i < n_x; i++)
        var[group_of(n, i)] += pow((double)x[i] - mean[group_of(n, i)], 2) / count;
    for (int64_t k = 0; k < n_groups; k++)
        var[k] = 1 / sqrt(var[k] + (double)n->attr.group_norm.eps);
    for (int64_t i = 0; i < n_x; i++)
        ((float *)n->out[GROUP_NORM_Y])[i] =
            (float)(((double)x[i] - mean[group_of(n, i)]) * var[group_of(n, i)] *
                        (weight ? (double)weight[i % C] : 1) +
                    (bias ? (double)bias[i % C] : 0));
    if (n->out[GROUP_NORM_MEAN])
        ref_round(mean, n_groups, n->out[GROUP_NORM_MEAN]);
    if (n->out[GROUP_NORM_RSTD])
        ref_round(var, n_groups, n->out[GROUP_NORM_RSTD]);
    free(mean);
    free(var);
}

void ref_group_norm_grad(const struct ref_node *n)
{
    const struct shape *x_shape = &n->in_shape[0];
    const int64_t n_x = shape_elements(x_shape), C = x_shape->dim[x_shape->n - 1];
    const int64_t n_groups = x_shape->dim[0] * n->attr.group_norm.groups;
    const float *x = n->in[GROUP_NORM_GRAD_X], *dy = n->in[GROUP_NORM_GRAD_DY],
                *weight = n->in[GROUP_NORM_GRAD_WEIGHT], *mean = n->in[GROUP_NORM_GRAD_MEAN],
                *rstd = n->in[GROUP_NORM_GRAD_RSTD];
    double *plain = ref_sums(n_groups), *product = ref_sums(n_groups), *dw = ref_sums(C),
           *db = ref_sums(C);
    const double count = (double)(n_x / (n_groups ? n_groups : 1));

    for (int64_t i = 0; i < n_x; i++) {
        const int64_t k = group_of(n, i);
        const double xhat = ((double)x[i] - (double)mean[k]) * (double)rstd[k];
        const double d = (double)dy[i] * (weight ? (double)weight[i % C] : 1);

        plain[k] += d / count;
        product[k] += d * xhat / count;
        dw[i % C] += (double)dy[i] * xhat;
        db[i % C] += (double)dy[i];
    }
    for (int64_t i = 0; n->out[GROUP_NORM_GRAD_DX] && i < n_x; i++) {
        const int64_t k = group_of(n, i);
        const double xhat = ((double)x[i] - (double)mean[k]) * (double)rstd[k];
        const double d = (double)dy[i] * (weight ? (double)weight[i % C] : 1);

        ((float *)n->out[GROUP_NORM_GRAD_DX])[i] =
            (float)((double)rstd[k] * (d - plain[k] - xhat * product[k]));
    }
    if (n->out[GROUP_NORM_GRAD_DWEIGHT])
        ref_round(dw, C, n->out[GROUP_NORM_GRAD_DWEIGHT]);
    if (n->out[GROUP_NORM_GRAD_DBIAS])
        ref_round(db, C, n->out[GROUP_NORM_GRAD_DBIAS]);
    free(plain);
    free(product);
    free(dw);
    free(db);
}
