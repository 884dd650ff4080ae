/* builders_random - dropout in all its forms, and random numbers.
 *
 * Stochastic depth stands in the graph as random numbers of one per sample that the branch is
 * multiplied by: torchvision's `empty -> bernoulli_(keep) -> div_(keep)`, transformers'
 * `keep + rand -> floor`.  Such a value is a LOWERED_DRAW, and the product is our dropout of whole
 * samples, and a draw that two branches are multiplied by drops the same samples of both.  The
 * stages of a draw: */
#include <math.h>

#include "import/lower_impl.h"

enum { DRAW_EMPTY, DRAW_UNIFORM, DRAW_SHIFTED, DRAW_KEEP };

/* The first dimension of x in the graph value becomes that of the samples. */
static struct lowered samples_first(struct lower *l, struct lowered x)
{
    int at[SHAPE_MAX_DIMS], dim = -1;

    x = lower_spread(l, x);
    for (int d = 0; d < x.n && dim < 0; d++)
        if (x.dim[d].is_batch)
            dim = d;
    if (!lower_failed(l) && (dim < 0 || x.dim[dim].outer != 1))
        lower_fail(l, ERR_UNSUPPORTED,
                   "its input has no dimension whose outermost part is the batch, so its random "
                   "numbers would depend on the number of ranks");
    if (lower_failed(l) || x.at[dim] == 0)
        return x;
    for (int d = 0; d < x.n; d++)
        at[d] = d == dim ? 0 : x.at[d] + (x.at[d] < x.at[dim]);
    return lower_arrange(l, x, at);
}

/* Dropout of x with probability p; whole: of samples.  Nodes of one tag drop the same. */
static struct lowered random_dropout(struct lower *l, struct lowered x, double p, int64_t tag,
                                     int whole)
{
    int dim = 0;

    p = lower_drop_rate(l, p);
    if (lower_failed(l) || !l->m->g->training || p == 0)
        return x;
    x = samples_first(l, x);
    for (int d = 0; d < x.n; d++)
        if (x.at[d] == 0)
            dim = d;
    if (lower_failed(l))
        return x;
    return lower_with(x, compose_dropout(&l->c, x.value, p, tag, x.dim[dim].inner, whole));
}

static void builders_dropout(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, kind ? "self" : "input", 0);
    const double p = lower_real(l, "p", 1, 0.5);
    const int is_on = (int)lower_int(l, "train", 2, 1) || l->net->is_eval;

    lower_set(l, 0, is_on ? random_dropout(l, x, p, l->m->n_dropouts++, 0) : x);
}

/* 1: one random number for each sample, as stochastic depth has them. */
static int random_is_of_samples(const struct lowered *x)
{
    for (int d = 1; d < x->n; d++)
        if (!extent_is_one(x->dim[d]))
            return 0;
    return 1;
}

/* Random numbers for each element: uniform ones, or if p >= 0 1 with this probability.  The latter
 * are the mask of a dropout, whose mean stays p at any rate: in evaluation all are p. */
static struct lowered random_value(struct lower *l, const struct lowered *x, double p)
{
    const double keep = 1 - lower_drop_rate(l, 1 - p);
    struct shape s = {.n = x->n};
    const int64_t tag = l->m->n_dropouts++;
    int y;

    if (lower_failed(l))
        return *x;
    for (int d = 0; d < x->n; d++)
        s.dim[d] = extent_size(l, x->dim[d]);
    if (p < 0)
        y = compose_uniform(&l->c, s, tag);
    else if (!l->m->g->training || keep <= 0)
        y = compose_expand(&l->c, compose_scalar(&l->c, l->m->g->training ? 0 : p), s);
    else
        y = compose_bernoulli(&l->c, s, keep, tag);
    if (p >= 0 && fabs(p / keep - 1) > 1e-12 && keep > 0 && l->m->g->training)
        y = compose_constants(&l->c, EW_AFFINE, y, (float)(p / keep), 0);
    return lower_plain_value(l, y, x->n, x->dim);
}

static void builders_draw(struct lower *l, int kind)
{
    struct lowered y = {.kind = LOWERED_DRAW, .stage = kind, .keep = 1, .scale = 1, .tag = -1};
    int64_t size[SHAPE_MAX_DIMS];
    const int n = lower_ints(l, "size", 0, size, SHAPE_MAX_DIMS);

    y.n = n;
    for (int d = 0; d < n; d++)
        y.dim[d] = d == 0 ? (struct extent){1, 1, 1} : extent_of(size[d]);
    if (n < 1 || size[0] != l->batch)
        lower_fail(l, ERR_UNSUPPORTED,
                   "random numbers whose first dimension is not the batch, %lld",
                   (long long)l->batch);
    if (kind == DRAW_UNIFORM && !random_is_of_samples(&y))
        y = random_value(l, &y, -1);
    else if (kind == DRAW_UNIFORM)
        y.tag = l->m->n_dropouts++;
    lower_set(l, 0, y);
}

/* The numbers that a tensor had before do not matter: a constant is one of empty. */
static struct lowered random_overwritten(struct lower *l, struct lowered x)
{
    if (x.kind != LOWERED_HOST || x.n < 1 || extent_exported(l, x.dim[0]) != l->batch)
        return x;
    x.kind = LOWERED_DRAW;
    x.stage = DRAW_EMPTY;
    x.keep = x.scale = 1;
    x.tag = -1;
    x.dim[0] = (struct extent){1, 1, 1};
    return x;
}

static void builders_bernoulli(struct lower *l, int kind)
{
    struct lowered x = random_overwritten(l, lower_in(l, "self", 0));

    (void)kind;
    if (!lower_failed(l) && (x.kind != LOWERED_DRAW || x.stage != DRAW_EMPTY))
        lower_fail(l, ERR_UNSUPPORTED, "want a tensor of empty, as stochastic depth has it");
    x.stage = DRAW_KEEP;
    x.keep = lower_real(l, "p", 1, 0.5);
    if (!lower_failed(l) && random_is_of_samples(&x))
        x.tag = l->m->n_dropouts++;
    lower_set(l, 0, random_is_of_samples(&x) ? x : random_value(l, &x, x.keep));
}

/* Dropout of whole channels: of all places of a sample's feature. */
static void builders_feature_dropout(struct lower *l, int kind)
{
    const struct lowered x = lower_in(l, kind ? "self" : "input", 0);
    const double p = lower_real(l, "p", 1, 0.5);
    const int is_on = (int)lower_int(l, "train", 2, 1) || l->net->is_eval;
    struct lowered mask = {.kind = LOWERED_VALUE, .n = x.n};

    if (!lower_failed(l) && (x.n < 2 || !x.dim[0].is_batch || x.dim[0].outer != 1))
        lower_fail(l, ERR_UNSUPPORTED,
                   "it drops channels of a tensor whose first dimension is not the batch, so its "
                   "random numbers would depend on the number of ranks");
    if (lower_failed(l) || !is_on || !l->m->g->training || lower_drop_rate(l, p) == 0) {
        lower_set(l, 0, x);
        return;
    }
    for (int d = 0; d < x.n; d++)
        mask.dim[d] = d < 2 ? x.dim[d] : extent_of(1);
    mask = random_value(l, &mask, 1 - p);
    if (p < 1 && !lower_failed(l))
        mask = lower_with(mask,
                          compose_constants(&l->c, EW_AFFINE, mask.value, (float)(1 / (1 - p)), 0));
    if (!lower_failed(l))
        lower_set(l, 0, lower_binary(l, EW_MUL, x, mask));
}

/* Normal random numbers of the shape that the export says, by Box and Muller: the product of
 * sqrt(-2 log(1 - u)) and cos(2 pi v), for uniform u and v below 1. */
static void builders_normal(struct lower *l, int kind)
{
    const struct import_value *to = &l->net->value[l->node->out[0]];
    struct lowered y = {.kind = LOWERED_VALUE, .n = to->n_dims};
    int u, v;

    (void)kind;
    for (int d = 0; d < to->n_dims; d++)
        y.dim[d] = d == 0 ? (struct extent){1, 1, 1} : extent_of(to->dim[d]);
    if (to->n_dims < 1 || to->dim[0] != l->batch)
        lower_fail(l, ERR_UNSUPPORTED,
                   "random numbers whose first dimension is not the batch, %lld",
                   (long long)l->batch);
    u = random_value(l, &y, -1).value;
    v = random_value(l, &y, -1).value;
    if (lower_failed(l))
        return;
    u = compose_constants(&l->c, EW_AFFINE, u, -1, 1);
    u = compose_elementwise(&l->c, EW_LOG, u, NO_VALUE);
    u = compose_constants(&l->c, EW_AFFINE, u, -2, 0);
    u = compose_elementwise(&l->c, EW_SQRT, u, NO_VALUE);
    v = compose_constants(&l->c, EW_AFFINE, v, (float)(2 * M_PI), 0);
    v = compose_elementwise(&l->c, EW_COS, v, NO_VALUE);
    v = compose_elementwise(&l->c, EW_MUL, u, v);
    lower_set(l, 0, lower_plain_value(l, v, y.n, y.dim));
}

struct lowered lower_draw_value(struct lower *l, struct lowered draw)
{
    const float zero = 0;
    struct shape s = {.n = draw.n};

    if (draw.stage != DRAW_EMPTY) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "random numbers are read by an operator other than the product of stochastic "
                   "depth");
        return draw;
    }
    for (int d = 0; d < draw.n; d++) {
        s.dim[d] = 1;
        draw.at[d] = d;
        draw.repeats |= extent_is_one(draw.dim[d]) ? 0 : 1u << d;
    }
    return lower_with(draw, graph_const(l->m->g, DTYPE_F32, s, &zero, "empty"));
}

/* Only numbers 0 and 1 say what is kept. */
static void random_want_keep(struct lower *l, const struct lowered *x)
{
    if (!lower_failed(l) && x->stage != DRAW_KEEP)
        lower_fail(
            l, ERR_UNSUPPORTED,
            "it multiplies or divides random numbers before they are 0 or 1, want bernoulli_ "
            "or the floor of a sum, as stochastic depth has it");
}

struct lowered lower_draw_over(struct lower *l, struct lowered draw, double by)
{
    random_want_keep(l, &draw);
    draw.scale /= by;
    return draw;
}

struct lowered lower_draw_times(struct lower *l, struct lowered draw, struct lowered x)
{
    const double scale = draw.keep * draw.scale;

    random_want_keep(l, &draw);
    if (!lower_failed(l) && x.kind != LOWERED_DRAW && (x.n != draw.n || !x.dim[0].is_batch))
        lower_fail(l, ERR_UNSUPPORTED,
                   "random numbers of %d dimensions for the samples meet a tensor of %d, want as "
                   "many, with the batch first",
                   draw.n, x.n);
    x = random_dropout(l, lower_real_value(l, x), 1 - draw.keep, draw.tag, 1);
    if (lower_failed(l) || fabs(scale - 1) < 1e-12)
        return x;
    return lower_with(x, compose_constants(&l->c, EW_AFFINE, x.value, (float)scale, 0));
}

struct lowered lower_draw_plus(struct lower *l, struct lowered x, double keep)
{
    if (x.stage != DRAW_UNIFORM)
        lower_fail(l, ERR_UNSUPPORTED, "want a tensor of rand, as stochastic depth has it");
    x.stage = DRAW_SHIFTED;
    x.keep = keep;
    return x;
}

static void builders_floor(struct lower *l, int kind)
{
    struct lowered x = lower_in(l, "self", 0);

    (void)kind;
    if (!lower_failed(l) && x.kind != LOWERED_DRAW) {
        lower_round(l, EW_FLOOR);
        return;
    }
    if (!lower_failed(l) && x.stage != DRAW_SHIFTED)
        lower_fail(l, ERR_UNSUPPORTED,
                   "want the sum of rand and a number, as stochastic depth has "
                   "it");
    x.stage = DRAW_KEEP;
    lower_set(l, 0, x);
}

const struct import_builder import_random[] = {
    {"dropout.default", builders_dropout, 0},
    {"dropout_.default", builders_dropout, 1},
    {"native_dropout.default", builders_dropout, 0},
    {"feature_dropout.default", builders_feature_dropout, 0},
    {"feature_dropout_.default", builders_feature_dropout, 1},
    {"randn.default", builders_normal, 0},
    {"randn_like.default", builders_normal, 0},
    {"empty.memory_format", builders_draw, DRAW_EMPTY},
    {"empty_permuted.default", builders_draw, DRAW_EMPTY},
    {"rand.default", builders_draw, DRAW_UNIFORM},
    {"bernoulli.p", builders_bernoulli, 0},
    {"bernoulli_.float", builders_bernoulli, 0},
    {"floor.default", builders_floor, 0},
    {"floor_.default", builders_floor, 0},
    {0},
};
