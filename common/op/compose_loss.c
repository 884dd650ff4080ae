/* compose_loss - losses of rows, made of general nodes.  They are those of torch.nn.functional with
 * reduction="none", and the mean over a row's outputs where PyTorch has a loss for each output. */
#include "op/compose.h"

#include "base/util.h"

/* F32 numbers 0 .. n-1, as one row. */
static int loss_places(struct compose *c, int64_t n)
{
    float *v = arena_alloc(&c->g->arena, (size_t)n * sizeof *v + 1);

    for (int64_t i = 0; i < n; i++)
        v[i] = (float)i;
    return compose_const(c, SHAPE(1, n), v);
}

int compose_hot_rows(struct compose *c, int labels, int64_t n)
{
    int x;

    if (c->rc < 0)
        return NO_VALUE;
    x = compose_cast(c, labels, DTYPE_F32);
    x = compose_reshape(c, x, SHAPE(shape_elements(&c->g->value[labels].shape), 1));
    return compose_elementwise(c, EW_EQ, x, loss_places(c, n));
}

/* -x * t where t is above 0, so that an infinite x beside a t of 0 does not count. */
static int loss_of_targets(struct compose *c, int x, int t)
{
    const int product = compose_elementwise(c, EW_MUL, x, t);

    return compose_constants(c, EW_NEG, compose_where(c, t, product, compose_scalar(c, 0)), 0, 0);
}

/* The targets' shares of a row's classes: smoothed and weighed. */
static int loss_shares(struct compose *c, int hot, int64_t n, const struct compose_classes *o)
{
    if (o->smoothing > 0)
        hot = compose_constants(c, EW_AFFINE, hot, (float)(1 - o->smoothing),
                                (float)(o->smoothing / (double)n));
    return o->weight ? compose_elementwise(c, EW_MUL, hot, compose_const(c, SHAPE(1, n), o->weight))
                     : hot;
}

int compose_class_loss(struct compose *c, int logits, int labels, const struct compose_classes *o)
{
    int64_t n;
    int log_p, rest, hot, loss;

    if (c->rc < 0)
        return NO_VALUE;
    n = c->g->value[logits].shape.dim[1];
    log_p = compose_softmax(c, logits, 1, 1);
    hot = compose_hot_rows(c, labels, n);
    loss = loss_of_targets(c, log_p, loss_shares(c, hot, n, o));
    if (o->gamma != 0) { /* times (1 - p)^gamma */
        rest = compose_constants(c, EW_EXPM1, log_p, 0, 0);
        rest = compose_constants(c, EW_NEG, rest, 0, 0);
        if (o->gamma < 1) /* the slope of the power at 0 is infinite */
            rest = compose_constants(c, EW_CLIP, rest, 1e-6F, 1);
        loss = compose_elementwise(c, EW_MUL, loss, compose_power(c, rest, o->gamma));
    }
    return compose_reduce(c, REDUCE_SUM, loss, 1u << 1, 1);
}

int compose_divergence(struct compose *c, int logits, int target)
{
    const int log_p = compose_softmax(c, logits, 1, 1);
    const int is_some = compose_elementwise(c, EW_GT, target, compose_scalar(c, 0));
    const int safe = compose_where(c, is_some, target, compose_scalar(c, 1));
    const int log_t = compose_constants(c, EW_LOG, safe, 0, 0);
    const int loss =
        compose_elementwise(c, EW_MUL, target, compose_elementwise(c, EW_SUB, log_t, log_p));

    return compose_reduce(c, REDUCE_SUM, loss, 1u << 1, 1);
}

int compose_huber(struct compose *c, int y, int target, double delta)
{
    const int diff = compose_elementwise(c, EW_SUB, y, target);
    const int size = compose_constants(c, EW_ABS, diff, 0, 0);
    const int near = compose_constants(c, EW_SQUARE, diff, 0, 0);
    const int far =
        compose_constants(c, EW_AFFINE, size, (float)delta, (float)(-delta * delta / 2));
    const int is_near = compose_elementwise(c, EW_LE, size, compose_scalar(c, delta));
    const int loss = compose_where(c, is_near, compose_constants(c, EW_AFFINE, near, 0.5F, 0), far);

    return compose_reduce(c, REDUCE_MEAN, loss, 1u << 1, 1);
}

int compose_pointwise(struct compose *c, enum pointwise kind, int y, int target)
{
    const int diff = compose_elementwise(c, EW_SUB, y, target);
    const int loss =
        compose_constants(c, kind == POINTWISE_SQUARED ? EW_SQUARE : EW_ABS, diff, 0, 0);

    ASSERT(kind == POINTWISE_SQUARED || kind == POINTWISE_ABSOLUTE);
    return compose_reduce(c, REDUCE_MEAN, loss, 1u << 1, 1);
}

/* (1 - t) y + (1 + (w - 1) t) log(1 + e^-y), as PyTorch has it. */
int compose_logistic(struct compose *c, int y, int target, const float *positive)
{
    const int minus = compose_constants(c, EW_NEG, y, 0, 0);
    const int rest = compose_constants(c, EW_AFFINE, target, -1, 1);
    int soft = compose_constants(c, EW_SOFTPLUS, minus, 1, 20);
    int loss = compose_elementwise(c, EW_MUL, rest, y);

    if (positive && c->rc == 0) {
        const int w = compose_const(c, SHAPE(1, c->g->value[y].shape.dim[1]), positive);
        const int more =
            compose_elementwise(c, EW_MUL, target, compose_constants(c, EW_AFFINE, w, 1, -1));

        soft = compose_elementwise(c, EW_MUL, soft, compose_constants(c, EW_AFFINE, more, 1, 1));
    }
    loss = compose_elementwise(c, EW_ADD, loss, soft);
    return compose_reduce(c, REDUCE_MEAN, loss, 1u << 1, 1);
}
