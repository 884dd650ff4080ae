/* local_sgd - each rank trains by itself, and after every `every` steps the ranks average their
 * parameters.
 *
 * `start` steps of plain all-reduce may come first (post-local SGD: Lin and others 2020, "Don't Use
 * Large Mini-Batches, Use Local SGD"; PyTorch's PostLocalSGDOptimizer).  After step t >= start the
 * ranks exchange parameters if t + 1 - start is a multiple of `every`.  With x_r the trained
 * parameters of rank r:
 *
 *   outer none      x <- mean of x_r
 *   outer nesterov  d = x0 - mean of x_r;  m <- outer_momentum * m + d;
 *                   x <- x0 - outer_lr * (d + outer_momentum * m);  x0 <- x
 *                   (torch.optim.SGD with nesterov, for which d is the gradient: Douillard and
 *                   others 2023, "DiLoCo: Distributed Low-Communication Training of Language
 *                   Models")
 *
 * x0 holds the parameters that all ranks had after the exchange before.  x0 and m are equal on all
 * ranks and part of checkpoints.  The optimizer's slots stay each rank's own, as in both papers,
 * until the ranks meet (train/meet.h).  A meeting also takes the mean of the parameters, but leaves
 * x0 and m alone.  So d of the next exchange also contains the steps before the meeting.
 *
 * x0 is taken from the parameters when the local steps begin: in step `start`, or in a later one if
 * the run was resumed from a checkpoint without x0, because it had another strategy or a later
 * `start` then.  All ranks hold the same parameters in that step, too.  A slot says whether x0 was
 * taken.
 *
 * Sums of parameters are in rank order, so all ranks get the same bits.  (On devices NCCL chooses
 * the order, one for all ranks.)
 *
 * The exchange follows the update, in the same step.  On a device it is queued behind it.  Steps
 * with and without an exchange are different variants (strategy_ops.variant), with a recording
 * each.  The exchange changes nothing if the step is void, or if its collectives were stopped; then
 * the ranks meet when they form again. */
#include "strategy/local_sgd.h"

#include "base/util.h"
#include "strategy/exchange.h"
#include "strategy/solo.h"

#define AT(field) offsetof(struct local_sgd_options, field)

static const char *const outers[] = {[OUTER_NONE] = "none", [OUTER_NESTEROV] = "nesterov", NULL};

static const struct option rows[] = {
    {"strategy.every", OPT_INT, AT(every), "8", 1, 1e9, .unit = "steps",
     .help = "The ranks exchange parameters after every so many steps."},
    {"strategy.start", OPT_INT, AT(start), "0", 0, 1e12, .unit = "steps",
     .help = "So many steps of plain all-reduce come first."},
    {"strategy.outer", OPT_CHOICE, AT(outer), "none", .choices = outers,
     .help = "none: the ranks take the mean. nesterov: they make a step of Nesterov's momentum "
             "towards it (DiLoCo)."},
    {"strategy.outer_lr", OPT_REAL, AT(outer_lr), "0.7", 0, 1e3, .flags = OPT_ABOVE,
     .only = "strategy.outer", .only_values = 1u << OUTER_NESTEROV,
     .help = "The length of that step."},
    {"strategy.outer_momentum", OPT_REAL, AT(outer_momentum), "0.9", 0, 1, .flags = OPT_BELOW,
     .only = "strategy.outer", .only_values = 1u << OUTER_NESTEROV,
     .help = "The part of the last such step that goes on."},
};

/* ---- slots, with outer nesterov ---- */

enum { SLOT_START, SLOT_MOMENTUM, SLOT_TAKEN, N_SLOTS };

static const struct slot_def start_slot = {.name = "parameters of the last exchange",
                                           .suffix = ".outer_parameters",
                                           .scope = SLOT_PER_TRAINED,
                                           .dtype = DTYPE_F32,
                                           .file = SLOT_IN_OPTIMIZER,
                                           .is_hashed = 1,
                                           .is_broadcast = 1,
                                           .may_be_missing = 1};

static const struct slot_def momentum_slot = {.name = "outer momentum",
                                              .suffix = ".outer_momentum_buffer",
                                              .scope = SLOT_PER_TRAINED,
                                              .dtype = DTYPE_F32,
                                              .file = SLOT_IN_OPTIMIZER,
                                              .is_hashed = 1,
                                              .is_broadcast = 1,
                                              .may_be_missing = 1};

/* 1: x0 was taken; 0: it was not. */
static const struct slot_def taken_slot = {.name = "outer start taken",
                                           .suffix = "outer_start_taken",
                                           .scope = SLOT_PER_JOB,
                                           .length = 1,
                                           .dtype = DTYPE_F32,
                                           .file = SLOT_IN_OPTIMIZER,
                                           .is_hashed = 1,
                                           .is_broadcast = 1,
                                           .may_be_missing = 1};

static const struct slot_def *const slots[N_SLOTS] = {&start_slot, &momentum_slot, &taken_slot};

static const struct local_sgd_options *local_sgd_rows(const struct strategy *s)
{
    return s->at.options;
}

static struct solo *local_sgd_solo(struct strategy *s) { return (struct solo *)s; }

struct local_sgd {
    struct solo base; /* first */
    int has_start;    /* with outer nesterov: 1 once x0 is taken, as the slot says */
};

static struct local_sgd *local_sgd_of(const struct strategy *s) { return (struct local_sgd *)s; }

/* ---- programs ---- */

/* Append the formula of outer nesterov.  x is the mean. */
static void add_outer(struct sketch *s, const struct strategy *o, int x, int64_t at, int64_t n)
{
    const double lr = local_sgd_rows(o)->outer_lr, mu = local_sgd_rows(o)->outer_momentum;
    float *start = (float *)o->at.slot[SLOT_START] + at;
    float *momentum = (float *)o->at.slot[SLOT_MOMENTUM] + at;
    const int x0 = sketch_place(s, DTYPE_F32, SHAPE(n), start, "x0");
    const int m = sketch_place(s, DTYPE_F32, SHAPE(n), momentum, "m");
    const int d = sketch_elementwise(s, EW_SUB, x0, x, NODE_NEW_OUT);
    const int next_m =
        sketch_elementwise(s, EW_ADD, sketch_scale(s, m, mu, NODE_NEW_OUT), d, NODE_NEW_OUT);
    const int step =
        sketch_elementwise(s, EW_ADD, d, sketch_scale(s, next_m, mu, NODE_NEW_OUT), NODE_NEW_OUT);
    const int next =
        sketch_elementwise(s, EW_SUB, x0, sketch_scale(s, step, lr, NODE_NEW_OUT), NODE_NEW_OUT);

    solo_add_keep(s, o, n, next_m, momentum);
    solo_add_keep(s, o, n, next, start);
    solo_add_keep(s, o, n, next, o->at.param + at);
}

static void local_sgd_add_take(struct sketch *s, const struct strategy *o, int64_t at, int64_t n)
{
    if (local_sgd_rows(o)->outer == OUTER_NESTEROV)
        add_outer(s, o, solo_add_mean(s, o, at, n), at, n);
    else
        solo_add_take_mean(s, o, at, n);
}

static int local_sgd_new(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    struct solo *o;
    int rc = solo_new(site, sizeof(struct local_sgd), local_sgd_add_take, &o, err);

    if (rc == 0)
        *out = &o->base;
    return rc;
}

/* ---- steps ---- */

static int local_sgd_has_begun(const struct strategy *s, int64_t step)
{
    return step >= local_sgd_rows(s)->start;
}

static int local_sgd_bucket_ready(struct strategy *s, int bucket, struct err *err)
{
    const struct bucket *b = &s->at.layout->bucket[bucket];

    if (local_sgd_has_begun(s, exchange_step(s->at.exchange)))
        return solo_bucket_ready(s, bucket, err);
    return exchange_allreduce(s->at.exchange, bucket, (char *)s->at.grad + b->at, b->length,
                              b->dtype, err);
}

static int local_sgd_before_update(struct strategy *s, struct err *err)
{
    return local_sgd_has_begun(s, exchange_step(s->at.exchange))
               ? solo_before_update(s, err)
               : exchange_wait_buckets(s->at.exchange, err);
}

/* 1: this is the first local step, at whose start x0 is taken. */
static int begins_locally(const struct strategy *s)
{
    const int64_t step = exchange_step(s->at.exchange), start = local_sgd_rows(s)->start;

    return local_sgd_rows(s)->outer == OUTER_NESTEROV &&
           (step == start || (!local_sgd_of(s)->has_start && step > start));
}

/* Note in the slot that x0 was taken.  On a device this may be recorded as a part of a step. */
static int note_start(struct strategy *s, struct err *err)
{
    const float *one = local_sgd_solo(s)->words->one;

    local_sgd_of(s)->has_start = 1;
    return backend_copy(s->at.backend, s->at.slot[SLOT_TAKEN], one, sizeof *one, err);
}

static int local_sgd_take_start(struct strategy *s, struct err *err)
{
    const size_t n_bytes = sizeof(float) * (size_t)s->at.layout->n_trained;

    if (note_start(s, err) < 0)
        return err->code;
    return backend_copy(s->at.backend, s->at.slot[SLOT_START], s->at.param, n_bytes, err);
}

/* A checkpoint of an older version may have x0, but it does not say so.  Then x0 was taken if a
 * number in it is not 0.  As a rule the first block has one. */
static int look_for_start(struct strategy *s, struct err *err)
{
    enum { BLOCK = 4096 };
    float block[BLOCK];
    const float *start = s->at.slot[SLOT_START];
    int is_zero = 1;
    int64_t n = 0;

    for (int64_t at = 0; at < s->at.layout->n_trained && is_zero; at += n) {
        n = min_i64(BLOCK, s->at.layout->n_trained - at);
        if (backend_copy_out(s->at.backend, block, start + at, sizeof(float) * (size_t)n, err) < 0)
            return err->code;
        for (int64_t i = 0; i < n; i++)
            is_zero &= block[i] == 0;
    }
    return is_zero ? 0 : note_start(s, err);
}

static int form_outside(struct strategy *s, int source, struct err *err)
{
    float taken = 0;
    int rc = solo_form(s, source, err);

    if (rc == 0)
        rc = backend_copy_out(s->at.backend, &taken, s->at.slot[SLOT_TAKEN], sizeof taken, err);
    local_sgd_of(s)->has_start = taken != 0;
    return rc == 0 && !local_sgd_of(s)->has_start ? look_for_start(s, err) : rc;
}

/* x0 is taken here, because before the update the parameters still are those with which the step
 * began. */
static int before_update_outside(struct strategy *s, struct err *err)
{
    const int rc = local_sgd_before_update(s, err);

    return rc == 0 && begins_locally(s) ? local_sgd_take_start(s, err) : rc;
}

static double local_sgd_loss_factor(const struct strategy *s, int64_t step, double part)
{
    return local_sgd_has_begun(s, step) ? solo_loss_factor(s, step, part) : 1;
}

/* ---- exchanges ---- */

/* 1: parameters are exchanged after this step. */
static int is_due(const struct strategy *s, int64_t step)
{
    const struct local_sgd_options *o = local_sgd_rows(s);

    return local_sgd_has_begun(s, step) && (step + 1 - o->start) % o->every == 0;
}

/* 1: an exchange changes something.  With outer nesterov it does even for one rank alone, because
 * x0 and m change. */
static int local_sgd_has_effect(const struct strategy *s)
{
    return solo_n_ranks(s) > 1 || local_sgd_rows(s)->outer == OUTER_NESTEROV;
}

static int local_sgd_variant(const struct strategy *s)
{
    const int64_t step = exchange_step(s->at.exchange);

    return local_sgd_has_begun(s, step) | is_due(s, step) << 1 | begins_locally(s) << 2;
}

static int local_sgd_after_update(struct strategy *s, struct err *err)
{
    if (!is_due(s, exchange_step(s->at.exchange)) || !local_sgd_has_effect(s))
        return 0;
    return solo_exchange(s, err) < 0 || solo_take(s, err) < 0 ? err->code : 1;
}

/* ---- the entry, and the same with outer momentum ---- */

#define HELP                                                                                \
    "ranks train by themselves and average parameters now and then: for slow links, where " \
    "sending gradients takes longer than computing them"

static const struct strategy_ops outside = {
    .group = {.name = "local_sgd", .help = HELP},
    .promises = SOLO_PROMISES,
    .slot = slots,
    .n_slots = N_SLOTS,
    .new = local_sgd_new,
    .form = form_outside,
    .variant = local_sgd_variant,
    .loss_factor = local_sgd_loss_factor,
    .bucket_ready = local_sgd_bucket_ready,
    .before_update = before_update_outside,
    .after_update = local_sgd_after_update,
    .free = solo_free,
};

static struct strategy_choice local_sgd_choose(const void *options)
{
    const struct local_sgd_options *o = options;

    return (struct strategy_choice){.ops = o->outer == OUTER_NESTEROV ? &outside
                                                                      : &strategy_local_sgd};
}

const struct strategy_ops strategy_local_sgd = {
    .group = {.name = "local_sgd",
              .help = HELP,
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct local_sgd_options)},
    .choose = local_sgd_choose,
    .promises = SOLO_PROMISES,
    .new = local_sgd_new,
    .form = solo_form,
    .variant = local_sgd_variant,
    .loss_factor = local_sgd_loss_factor,
    .bucket_ready = local_sgd_bucket_ready,
    .before_update = local_sgd_before_update,
    .after_update = local_sgd_after_update,
    .free = solo_free,
};
