/* softmax_xent - the cross-entropy of a softmax and its gradient, with sums in double.
 *
 * The rows are cut into parts for the backend's threads.  A row's loss is kept in the scratch; the
 * calling thread then adds all of them to the metrics in the order of the rows, so the bits do not
 * depend on the number of threads.
 * op/softmax_xent.c has the formulas; the twin is cuda/softmax_xent.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/loss.h"
#include "backend/cpu/plain.h"
#include "backend/cpu/vector.h"
#include "base/util.h"

/* ---- rows ---- */

/* x[0] if that is NaN; other NaNs do not count. */
CPU_CLONES static float cpu_softmax_xent_largest_of(const float *x, int64_t c)
{
    lanes most;
    float largest;
    int64_t i = 0;

    for (int l = 0; l < LANES; l++)
        most[l] = x[0];
    for (; i + LANES <= c; i += LANES)
        lanes_max(&most, x + i);
    largest = most[0];
    for (int l = 1; l < LANES; l++)
        largest = most[l] > largest ? most[l] : largest;
    for (; i < c; i++)
        largest = x[i] > largest ? x[i] : largest;
    return largest;
}

CPU_CLONES static void cpu_softmax_xent_exps(const float *restrict x, float *restrict e, int64_t c,
                                             float shift)
{
    for (int64_t i = 0; i < c; i++)
        e[i] = exp_of(x[i] - shift);
}

CPU_CLONES static double cpu_softmax_xent_sum_of(const float *x, int64_t c)
{
    wide total = {0}, v;
    double sum;
    int64_t i = 0;

    for (; i + WIDE_LANES <= c; i += WIDE_LANES) {
        wide_load(&v, x + i);
        total += v;
    }
    sum = wide_sum(&total);
    for (; i < c; i++)
        sum += (double)x[i];
    return sum;
}

CPU_CLONES static double dot_of(const float *x, const float *y, int64_t c)
{
    wide total = {0}, v, w;
    double sum;
    int64_t i = 0;

    for (; i + WIDE_LANES <= c; i += WIDE_LANES) {
        wide_load(&v, x + i);
        wide_load(&w, y + i);
        total += v * w;
    }
    sum = wide_sum(&total);
    for (; i < c; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* Elements that are not below v: NaN counts. */
CPU_CLONES static int64_t not_below(const float *x, int64_t c, float v)
{
    int64_t n = 0;

    for (int64_t i = 0; i < c; i++)
        n += !(x[i] < v);
    return n;
}

/* Elements above v: NaN counts. */
CPU_CLONES static int64_t cpu_softmax_xent_above(const float *x, int64_t c, float v)
{
    int64_t n = 0;

    for (int64_t i = 0; i < c; i++)
        n += !(x[i] <= v);
    return n;
}

/* Elements equal to v. */
CPU_CLONES static int64_t cpu_softmax_xent_count_of(const float *x, int64_t c, float v)
{
    int64_t n = 0;

    for (int64_t i = 0; i < c; i++)
        n += x[i] == v;
    return n;
}

CPU_CLONES static void cpu_softmax_xent_times(const float *x, float *y, int64_t c, float factor)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < c; i++)
        y[i] = x[i] * factor;
}

/* dx = (prob - t) * scale, for a class that is not the label; dx may be prob. */
CPU_CLONES static void cpu_softmax_xent_grads(const float *prob, float *dx, int64_t c, float t,
                                              float scale)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < c; i++)
        dx[i] = (prob[i] - t) * scale;
}

/* dx = (prob * whole - w * part) * scale, for a class that is not the label; dx may be prob. */
CPU_CLONES static void weighted_grads(const float *prob, const float *w, float *dx, int64_t c,
                                      float whole, float part, float scale)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < c; i++)
        dx[i] = (prob[i] * whole - w[i] * part) * scale;
}

/* prob = softmax of x. */
struct softmax {
    float largest;
    double log_sum; /* the logarithm of the sum of e^x */
};

static struct softmax softmax_row(const float *x, float *prob, int64_t c)
{
    const float largest = cpu_softmax_xent_largest_of(x, c);
    double sum;

    cpu_softmax_xent_exps(x, prob, c, largest);
    sum = cpu_softmax_xent_sum_of(prob, c);
    cpu_softmax_xent_times(prob, prob, c, (float)(1.0 / sum));
    return (struct softmax){largest, (double)largest + log(sum)};
}

/* ---- losses ---- */

/* The part of one row in the metrics. */
struct target {
    double loss;
    float weight;
    int32_t counts, correct, top5; /* counts: 0 if the row is ignored */
};

static int cpu_softmax_xent_is_class(int32_t label, int64_t c) { return label >= 0 && label < c; }

/* Loss of one row: -sum of t[c] * log prob[c], where t[c] = (1-s)*[c = label] + s/C.  A label that
 * is no class gives NaN. */
static double row_loss(const float *x, int64_t c, int32_t label, double smoothing, double log_sum)
{
    const double at_label =
        cpu_softmax_xent_is_class(label, c) ? log_sum - (double)x[label] : (double)NAN;

    if (smoothing == 0)
        return at_label;
    return (1 - smoothing) * at_label +
           smoothing * (log_sum - cpu_softmax_xent_sum_of(x, c) / (double)c);
}

/* The same with class weights: -sum of w[c] * t[c] * log prob[c]. */
static double weighted_loss(const struct plain *p, const float *x, int32_t label, double log_sum)
{
    const double smoothing = (double)p->attr.loss.label_smoothing;
    const float *w = p->attr.loss.class_weight;
    const double at_label = cpu_softmax_xent_is_class(label, p->c)
                                ? (double)w[label] * (log_sum - (double)x[label])
                                : (double)NAN;

    if (smoothing == 0)
        return at_label;
    return (1 - smoothing) * at_label +
           smoothing / (double)p->c *
               (p->attr.loss.class_weight_sum * log_sum - dot_of(w, x, p->c));
}

/* Returns 1 if the label's logit is among the five largest (op/softmax_xent.c). */
static int is_in_top5(const float *x, int64_t c, int32_t label)
{
    if (!cpu_softmax_xent_is_class(label, c) || isnan(x[label]))
        return 0;
    return not_below(x, label, x[label]) +
               cpu_softmax_xent_above(x + label + 1, c - label - 1, x[label]) <
           5;
}

/* Returns 1 if the first of the largest logits is the label's. */
static int is_correct(const float *x, int64_t c, int32_t label, float largest)
{
    return cpu_softmax_xent_is_class(label, c) && x[label] == largest &&
           cpu_softmax_xent_count_of(x, label, largest) == 0;
}

static struct target cpu_softmax_xent_target_of(const struct plain *p, const float *x,
                                                int32_t label, struct softmax s)
{
    const float *w = p->attr.loss.class_weight;

    if (label == SAMPLE_IGNORED)
        return (struct target){0};
    return (struct target){
        .loss = w ? weighted_loss(p, x, label, s.log_sum)
                  : row_loss(x, p->c, label, (double)p->attr.loss.label_smoothing, s.log_sum),
        .weight = !w                                       ? 1
                  : cpu_softmax_xent_is_class(label, p->c) ? w[label]
                                                           : 0,
        .counts = 1,
        .correct = is_correct(x, p->c, label, s.largest),
        .top5 = p->attr.loss.counts_top5 && is_in_top5(x, p->c, label)};
}

/* The targets of all rows are at the beginning of the scratch. */
static size_t targets_bytes(const struct graph *g, const struct node *n, int labels)
{
    return (size_t)shape_elements(cpu_in(g, n, labels)) * sizeof(struct target);
}

static void count_targets(const struct plain *p, double *metrics)
{
    const struct target *t = p->scratch;

    for (int64_t r = 0; r < p->rows; r++) {
        if (t[r].counts)
            loss_count(&p->attr, metrics, t[r].loss, (double)t[r].weight, t[r].correct);
        metrics[METRIC_TOP5] += t[r].top5;
    }
}

/* Vector instructions, roughly, of all rows. */
static int64_t cpu_softmax_xent_work_of(const struct plain *p) { return p->rows * p->c * 2; }

static void loss_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int32_t *labels = p->in[SOFTMAX_XENT_LABELS];
    const int64_t c = p->c;
    float *prob = plain_part_scratch(p, part), *room = prob + round_up_i64(c, LANES);
    struct target *t = p->scratch;

    for (int64_t r = from; r < to; r++) {
        const float *x = plain_read(p, SOFTMAX_XENT_LOGITS, r * c, c, room);

        if (p->out[SOFTMAX_XENT_PROB])
            prob = (float *)p->out[SOFTMAX_XENT_PROB] + r * c;
        t[r] = cpu_softmax_xent_target_of(p, x, labels[r], softmax_row(x, prob, c));
    }
}

static void cpu_softmax_xent_run(const struct plain *p)
{
    plain_split(p, p->rows, cpu_softmax_xent_work_of(p), loss_rows);
    count_targets(p, p->in[SOFTMAX_XENT_METRICS]);
}

/* Room for two rows of logits. */
static size_t rows_bytes(const struct graph *g, const struct node *n, int logits)
{
    const struct shape *x = cpu_in(g, n, logits);

    return 2 * (size_t)round_up_i64(x->dim[x->n - 1], LANES) * sizeof(float);
}

int cpu_make_softmax_xent(struct cpu *b, const struct graph *g, const struct node *n,
                          struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_softmax_xent_run, targets_bytes(g, n, SOFTMAX_XENT_LABELS),
                           rows_bytes(g, n, SOFTMAX_XENT_LOGITS), out, err);
}

/* ---- gradients ---- */

/* dx = (prob * whole - w * t) * scale, where whole is the sum of w * t. */
static void weighted_grad_row(const struct plain *p, const float *prob, float *dx, int32_t label,
                              float scale)
{
    const float *w = p->attr.loss.class_weight;
    const float smoothing = p->attr.loss.label_smoothing, others = smoothing / (float)p->c;
    const float own = cpu_softmax_xent_is_class(label, p->c) ? w[label] : 0;
    const float whole =
        smoothing == 0 ? own
                       : (1.0f - smoothing) * own + others * (float)p->attr.loss.class_weight_sum;
    const float at_label = cpu_softmax_xent_is_class(label, p->c) ? prob[label] : 0;

    weighted_grads(prob, w, dx, p->c, whole, others, scale);
    if (cpu_softmax_xent_is_class(label, p->c))
        dx[label] = (at_label * whole - own * (1.0f - smoothing + others)) * scale;
}

/* dx = (prob - t) * scale, or with weights as above, or 0 for an ignored row.  dx may be prob. */
static void cpu_softmax_xent_grad_row(const struct plain *p, const float *prob, float *dx,
                                      int32_t label, float scale)
{
    const float smoothing = p->attr.loss.label_smoothing, others = smoothing / (float)p->c;
    const float at_label = cpu_softmax_xent_is_class(label, p->c) ? prob[label] : 0;

    if (label == SAMPLE_IGNORED) {
        memset(dx, 0, (size_t)p->c * sizeof *dx);
        return;
    }
    if (p->attr.loss.class_weight) {
        weighted_grad_row(p, prob, dx, label, scale);
        return;
    }
    cpu_softmax_xent_grads(prob, dx, p->c, others, scale);
    if (cpu_softmax_xent_is_class(label, p->c))
        dx[label] = (at_label - (1.0f - smoothing + others)) * scale;
}

static void cpu_softmax_xent_grad_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int32_t *labels = p->in[SOFTMAX_XENT_GRAD_LABELS];
    const float *prob = p->in[SOFTMAX_XENT_GRAD_PROB],
                scale = plain_loss_scale(p, SOFTMAX_XENT_GRAD_SCALARS, SOFTMAX_XENT_GRAD_SCALER);
    const int64_t c = p->c;
    float *room = plain_part_scratch(p, part);

    for (int64_t r = from; r < to; r++) {
        float *dx = plain_dest(p, SOFTMAX_XENT_GRAD_DLOGITS, r * c, room);

        cpu_softmax_xent_grad_row(p, prob + r * c, dx, labels[r], scale);
        plain_done(p, SOFTMAX_XENT_GRAD_DLOGITS, r * c, c, room);
    }
}

static void cpu_softmax_xent_run_grad(const struct plain *p)
{
    plain_split(p, p->rows, p->rows * p->c / 8, cpu_softmax_xent_grad_rows);
}

int cpu_make_softmax_xent_grad(struct cpu *b, const struct graph *g, const struct node *n,
                               struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_softmax_xent_run_grad, 0,
                           rows_bytes(g, n, SOFTMAX_XENT_GRAD_PROB), out, err);
}

/* Works row by row, since the gradient may lie where the logits do: the scratch of a part holds one
 * row of prob, and one of the logits or their gradient. */
static void train_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const float scale = plain_loss_scale(p, SOFTMAX_XENT_TRAIN_SCALARS, SOFTMAX_XENT_TRAIN_SCALER);
    const int32_t *labels = p->in[SOFTMAX_XENT_TRAIN_LABELS];
    const int64_t c = p->c;
    float *prob = plain_part_scratch(p, part), *room = prob + round_up_i64(c, LANES);
    struct target *t = p->scratch;

    for (int64_t r = from; r < to; r++) {
        const float *x = plain_read(p, SOFTMAX_XENT_TRAIN_LOGITS, r * c, c, room);

        t[r] = cpu_softmax_xent_target_of(p, x, labels[r], softmax_row(x, prob, c));
        cpu_softmax_xent_grad_row(p, prob, plain_dest(p, SOFTMAX_XENT_TRAIN_DLOGITS, r * c, room),
                                  labels[r], scale);
        plain_done(p, SOFTMAX_XENT_TRAIN_DLOGITS, r * c, c, room);
    }
}

static void cpu_softmax_xent_run_train(const struct plain *p)
{
    plain_split(p, p->rows, cpu_softmax_xent_work_of(p), train_rows);
    count_targets(p, p->in[SOFTMAX_XENT_TRAIN_METRICS]);
}

int cpu_make_softmax_xent_train(struct cpu *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_softmax_xent_run_train,
                           targets_bytes(g, n, SOFTMAX_XENT_TRAIN_LABELS),
                           rows_bytes(g, n, SOFTMAX_XENT_TRAIN_LOGITS), out, err);
}

/* ---- the labels' log-probabilities ---- */

static void label_log_p_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int32_t *labels = p->in[LABEL_LOG_P_LABELS];
    const int64_t c = p->c;
    float *prob = plain_part_scratch(p, part), *room = prob + round_up_i64(c, LANES),
          *y = p->out[LABEL_LOG_P_Y], *lse = p->out[LABEL_LOG_P_LSE];

    for (int64_t r = from; r < to; r++) {
        const float *x = plain_read(p, LABEL_LOG_P_LOGITS, r * c, c, room);
        const double log_sum = softmax_row(x, prob, c).log_sum;

        y[r] = labels[r] == SAMPLE_IGNORED               ? 0
               : cpu_softmax_xent_is_class(labels[r], c) ? (float)((double)x[labels[r]] - log_sum)
                                                         : NAN;
        if (lse)
            lse[r] = (float)log_sum;
    }
}

static void label_log_p_run(const struct plain *p)
{
    plain_split(p, p->rows, cpu_softmax_xent_work_of(p), label_log_p_rows);
}

int cpu_make_label_log_p(struct cpu *b, const struct graph *g, const struct node *n,
                         struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, label_log_p_run, 0, rows_bytes(g, n, LABEL_LOG_P_LOGITS), out,
                           err);
}

/* The gradient may lie where the logits do. */
static void label_log_p_grad_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int32_t *labels = p->in[LABEL_LOG_P_GRAD_LABELS];
    const float *lse = p->in[LABEL_LOG_P_GRAD_LSE], *dy = p->in[LABEL_LOG_P_GRAD_DY];
    const int64_t c = p->c;
    float *prob = plain_part_scratch(p, part), *room = prob + round_up_i64(c, LANES);

    for (int64_t r = from; r < to; r++) {
        const float *x = plain_read(p, LABEL_LOG_P_GRAD_LOGITS, r * c, c, room);
        float *dx;

        cpu_softmax_xent_exps(x, prob, c, lse[r]);
        dx = plain_dest(p, LABEL_LOG_P_GRAD_DLOGITS, r * c, room);
        cpu_softmax_xent_grad_row(p, prob, dx, labels[r], -dy[r]);
        plain_done(p, LABEL_LOG_P_GRAD_DLOGITS, r * c, c, room);
    }
}

static void label_log_p_run_grad(const struct plain *p)
{
    plain_split(p, p->rows, cpu_softmax_xent_work_of(p), label_log_p_grad_rows);
}

int cpu_make_label_log_p_grad(struct cpu *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, label_log_p_run_grad, 0,
                           rows_bytes(g, n, LABEL_LOG_P_GRAD_LOGITS), out, err);
}
