/* builders_losses - losses that the network computes itself, as torch.nn.functional has them.
 *
 * Without a reduction a loss is a number for each element, or for each place of a label.  A mean
 * or a sum over everything is a mixed value (import/lower_batch.c), fit to be `model.loss: output
 * NAME`.  Labels that are ignored do not count; where all are ignored the mean is 0, since a rank
 * may have such a share of a batch that has others.  A label that is no class, and is not the
 * ignored one, counts as ignored, where PyTorch fails. */
#include <float.h>

#include "import/lower_impl.h"

enum { LOSSES_NONE, LOSSES_MEAN, LOSSES_SUM }; /* reduction */

/* The loss x of elements, reduced as the argument at this place says. */
static void losses_set(struct lower *l, struct lowered x, int place)
{
    const int64_t how = lower_int(l, "reduction", place, LOSSES_MEAN);

    if (how < LOSSES_NONE || how > LOSSES_SUM)
        lower_fail(l, ERR_CONFIG, "its reduction is %lld, want 0 to 2; export it again",
                   (long long)how);
    if (!lower_failed(l))
        lower_set(l, 0,
                  how == LOSSES_NONE
                      ? x
                      : lower_reduce(l, how == LOSSES_MEAN ? REDUCE_MEAN : REDUCE_SUM, x,
                                     (1u << x.n) - 1, 0));
}

static struct lowered losses_one(struct lower *l, enum elementwise kind, struct lowered x, double p,
                                 double q)
{
    return lower_failed(l)
               ? x
               : lower_with(x, compose_constants(&l->c, kind, x.value, (float)p, (float)q));
}

/* ---- of two tensors, element by element ---- */

enum { LOSSES_SQUARE, LOSSES_ABSOLUTE, LOSSES_HUBER, LOSSES_SMOOTH };

/* Square below a bound and straight above it; `scale` makes huber of smooth_l1. */
static struct lowered losses_bent(struct lower *l, struct lowered size, double bound, double scale)
{
    struct compose *c = &l->c;
    int near, far, is_near;

    if (lower_failed(l))
        return size;
    near = compose_constants(c, EW_SQUARE, size.value, 0, 0);
    near = compose_constants(c, EW_AFFINE, near, (float)(scale / (2 * bound)), 0);
    far = compose_constants(c, EW_AFFINE, size.value, (float)scale, (float)(-scale * bound / 2));
    is_near = compose_elementwise(c, EW_LT, size.value, compose_scalar(c, bound));
    return lower_with(size, compose_where(c, is_near, near, far));
}

static void builders_apart(struct lower *l, int kind)
{
    const double bound = lower_real(l, kind == LOSSES_HUBER ? "delta" : "beta", 3, 1);
    const struct lowered a = lower_as_real(l, lower_in(l, "self", 0)),
                         b = lower_as_real(l, lower_in(l, "target", 1));
    struct lowered x = lower_failed(l) ? a : lower_spread(l, lower_binary(l, EW_SUB, a, b));

    x = losses_one(l, kind == LOSSES_SQUARE ? EW_SQUARE : EW_ABS, x, 0, 0);
    if (kind >= LOSSES_HUBER && !(kind == LOSSES_HUBER ? bound > 0 : bound >= 0))
        lower_fail(l, ERR_CONFIG, "its bound is %g, want %s", bound,
                   kind == LOSSES_HUBER ? "a number above 0" : "0 or more");
    if (kind >= LOSSES_HUBER && bound > 0)
        x = losses_bent(l, x, bound, kind == LOSSES_HUBER ? bound : 1);
    losses_set(l, x, 2);
}

/* x times the weight, if there is one. */
static struct lowered losses_weigh(struct lower *l, struct lowered x, int place)
{
    const struct lowered w = lower_in(l, "weight", place);

    return w.kind == LOWERED_NONE || lower_failed(l) ? x : lower_binary(l, EW_MUL, x, w);
}

/* binary_cross_entropy_with_logits: (1 - t) y + (1 + (w - 1) t) log(1 + e^-y). */
static void builders_logits(struct lower *l, int kind)
{
    const struct lowered y = lower_spread(l, lower_in(l, "self", 0)),
                         t = lower_as_real(l, lower_in(l, "target", 1)),
                         w = lower_in(l, "pos_weight", 3);
    struct lowered soft, rest, more;

    (void)kind;
    soft = losses_one(l, EW_SOFTPLUS, losses_one(l, EW_NEG, y, 0, 0), 1, 20);
    rest = losses_one(l, EW_AFFINE, t, -1, 1);
    if (lower_failed(l))
        return;
    if (w.kind != LOWERED_NONE) {
        more = lower_binary(l, EW_MUL, t, losses_one(l, EW_AFFINE, lower_real_value(l, w), 1, -1));
        soft = lower_binary(l, EW_MUL, soft, losses_one(l, EW_AFFINE, more, 1, 1));
    }
    soft = lower_failed(l) ? y : lower_binary(l, EW_ADD, lower_binary(l, EW_MUL, rest, y), soft);
    losses_set(l, lower_spread(l, losses_weigh(l, soft, 2)), 4);
}

/* kl_div: t (log t - y), 0 where t is 0; with log_target e^t (t - y). */
static void builders_divergence(struct lower *l, int kind)
{
    const struct lowered y = lower_in(l, "self", 0), t = lower_spread(l, lower_in(l, "target", 1));
    struct lowered p = t, log_p = t;
    int is_some;

    (void)kind;
    if (lower_failed(l))
        return;
    if (lower_int(l, "log_target", 3, 0)) {
        p = losses_one(l, EW_EXP, t, 0, 0);
    } else {
        is_some = compose_elementwise(&l->c, EW_GT, t.value, compose_scalar(&l->c, 0));
        log_p = lower_with(t, compose_where(&l->c, is_some, t.value, compose_scalar(&l->c, 1)));
        log_p = losses_one(l, EW_LOG, log_p, 0, 0);
    }
    if (!lower_failed(l))
        losses_set(
            l, lower_spread(l, lower_binary(l, EW_MUL, p, lower_binary(l, EW_SUB, log_p, y))), 2);
}

/* ---- of classes ---- */

/* Flags of the classes, 1 where the label names one: [N,C,..] of log_p, whose classes are its
 * dimension `dim`.  A label that is ignored has none. */
static struct lowered losses_hot(struct lower *l, const struct lowered *log_p, struct lowered label,
                                 int dim, int64_t ignored)
{
    const int64_t n = extent_exported(l, log_p->dim[dim]);
    struct lowered classes, hot, keep;
    int32_t *at;

    label = lower_unsqueeze(l, lower_whole(l, label, IMPORT_I64), dim);
    if (lower_failed(l) || !compose_has_room(&l->c, n, 1))
        return label;
    at = arena_alloc(&l->arena, (size_t)n * sizeof *at + 1);
    for (int64_t i = 0; i < n; i++)
        at[i] = (int32_t)i;
    classes = lower_plain_value(l, graph_const(l->m->g, DTYPE_I32, SHAPE(n), at, "classes"), 1,
                                (struct extent[]){extent_of(n)});
    for (int d = dim + 1; d < log_p->n; d++)
        classes = lower_unsqueeze(l, classes, classes.n);
    hot = lower_failed(l) ? label : lower_integers_of(l, INTEGERS_SUB, label, classes);
    if (lower_failed(l))
        return hot;
    hot = lower_with(hot, compose_compare(&l->c, EW_EQ, hot.value, 0));
    if (ignored < 0 || ignored >= n)
        return hot;
    label = lower_spread(l, label);
    keep = lower_failed(l)
               ? hot
               : lower_with(label, compose_compare(&l->c, EW_NE, label.value, (int32_t)ignored));
    return lower_failed(l) ? hot : lower_binary(l, EW_MUL, hot, keep);
}

/* The sum of -share * log_p over the classes. */
static struct lowered losses_rows(struct lower *l, struct lowered share, struct lowered log_p,
                                  int dim)
{
    struct lowered y;

    share = lower_spread(l, share);
    if (lower_failed(l))
        return share;
    y = lower_meet(l, (struct lowered *[]){&share, &log_p}, 2);
    if (lower_failed(l))
        return y;
    /* an infinite log_p beside a share of 0 does not count */
    y.value = compose_elementwise(&l->c, EW_MUL, share.value, log_p.value);
    y.value = compose_where(&l->c, share.value, y.value, compose_scalar(&l->c, 0));
    y = losses_one(l, EW_NEG, y, 0, 0);
    return lower_failed(l) ? y : lower_reduce(l, REDUCE_SUM, y, 1u << dim, 0);
}

/* share [N,C,..] times the weight [C] of its class. */
static struct lowered losses_classes(struct lower *l, struct lowered share, int dim)
{
    struct lowered w = lower_in(l, "weight", 2);

    if (w.kind == LOWERED_NONE || lower_failed(l))
        return share;
    for (int d = dim + 1; d < share.n; d++)
        w = lower_unsqueeze(l, w, w.n);
    return lower_failed(l) ? share : lower_binary(l, EW_MUL, share, w);
}

/* loss over the sum of what counts. */
static struct lowered losses_mean(struct lower *l, struct lowered loss, struct lowered counts)
{
    loss = lower_reduce(l, REDUCE_SUM, loss, (1u << loss.n) - 1, 0);
    counts = lower_spread(l, counts);
    if (lower_failed(l))
        return loss;
    counts = lower_reduce(l, REDUCE_SUM, counts, (1u << counts.n) - 1, 0);
    counts = losses_one(l, EW_CLIP, counts, FLT_MIN, FLT_MAX);
    return lower_failed(l) ? loss : lower_binary(l, EW_DIV, loss, counts);
}

/* cross_entropy_loss; kind 1: nll_loss, whose input is log(p) already. */
static void builders_class_loss(struct lower *l, int kind)
{
    const int target = lower_value_of(l, "target", 1);
    const int64_t how = lower_int(l, "reduction", 3, LOSSES_MEAN),
                  ignored = lower_int(l, "ignore_index", 4, -100);
    const double smooth = kind ? 0 : lower_real(l, "label_smoothing", 5, 0);
    struct lowered x = lower_spread(l, lower_in(l, "self", 0)), share, counts, loss;
    const int dim = x.n > 1;
    int is_class;

    if (lower_failed(l) || target == IMPORT_NO_VALUE)
        return;
    is_class = lower_is_whole(l->net->value[target].type);
    lower_refuse_batch(l, &x, 1u << dim, "normalises");
    if (!kind && !lower_failed(l))
        x = lower_with(x, compose_softmax(&l->c, x.value, x.at[dim], 1));
    share = is_class ? losses_hot(l, &x, lower_in(l, "target", 1), dim, ignored)
                     : lower_spread(l, lower_in(l, "target", 1));
    if (lower_failed(l))
        return;
    counts = losses_classes(l, share, dim);
    if (smooth > 0) {
        /* all classes of a label that counts have a part */
        const double part = smooth / (double)extent_exported(l, x.dim[dim]);
        struct lowered each = is_class ? lower_reduce(l, REDUCE_SUM, share, 1u << dim, 1) : share;

        each = losses_one(l, EW_AFFINE, each, is_class ? part : 0, is_class ? 0 : part);
        share = losses_one(l, EW_AFFINE, share, 1 - smooth, 0);
        share = lower_failed(l) ? share : lower_binary(l, EW_ADD, share, each);
    }
    loss = losses_rows(l, losses_classes(l, share, dim), x, dim);
    if (lower_failed(l))
        return;
    if (how == LOSSES_MEAN && is_class)
        lower_set(l, 0, losses_mean(l, loss, counts));
    else
        losses_set(l, loss, 3);
}

const struct import_builder import_losses[] = {
    {"mse_loss.default", builders_apart, LOSSES_SQUARE},
    {"l1_loss.default", builders_apart, LOSSES_ABSOLUTE},
    {"huber_loss.default", builders_apart, LOSSES_HUBER},
    {"smooth_l1_loss.default", builders_apart, LOSSES_SMOOTH},
    {"binary_cross_entropy_with_logits.default", builders_logits, 0},
    {"kl_div.default", builders_divergence, 0},
    {"cross_entropy_loss.default", builders_class_loss, 0},
    {"nll_loss.default", builders_class_loss, 1},
    {"nll_loss_nd.default", builders_class_loss, 1},
    {"nll_loss2d.default", builders_class_loss, 1},
    {0},
};
