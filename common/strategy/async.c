/* async - each rank trains by itself, and the ranks' parameters are averaged in parallel with the
 * steps, which do not wait for it (Bagua's asynchronous model average).
 *
 * A round, with n ranks:
 *   1. Each rank copies its trained parameters.
 *   2. The copies are summed while the ranks go on training.
 *   3. When a rank has the sum, it adds (sum / n - its copy) to its parameters of that moment.
 * So every rank moves to the mean of the copies, and keeps what it learned during the round.
 *
 * Rounds need no thread of their own: the thread of the bulk channel runs the sums, and the control
 * vector uses the urgent channel meanwhile.  Rounds need no signal to stop, either.  In the control
 * vector of each step every rank says whether it is ready for a round, which means that it has no
 * round under way and that `interval` has passed.  A round begins after a step in which all ranks
 * were ready, so it is the same step on all of them.  Before the ranks meet (train/meet.h) each
 * waits for the round under way.  Training ends with a meeting, so no round is left then.  If a
 * rank is lost, the round breaks off, and the next formation begins without one.
 *
 * The step after which a rank gets the sum depends on time, so two runs give different numbers. */
#include "strategy/async.h"

#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "op/control.h"
#include "strategy/exchange.h"
#include "strategy/solo.h"

#define AT(field) offsetof(struct async_options, field)

static const struct option rows[] = {
    {"strategy.interval", OPT_SECONDS, AT(interval_ms), "0.5", 0, 1e6,
     .help = "At least so much time passes between the begins of two rounds."},
};

struct async {
    struct solo solo; /* first */
    float *copy;      /* [n_trained]: of the round under way */
    int is_under_way;
    int begins; /* 1: all ranks said in this step that they are ready */
    int64_t begun_ns;
};

static struct async *of(struct strategy *s) { return (struct async *)s; }

static size_t n_bytes(const struct strategy *s)
{
    return sizeof(float) * (size_t)s->at.layout->n_trained;
}

static void free_async(struct strategy *s)
{
    backend_free(s->at.backend, of(s)->copy);
    solo_free(s);
}

static int new (const struct strategy_site *site, struct strategy **out, struct err *err)
{
    struct solo *o;

    if (solo_new(site, sizeof(struct async), NULL, &o, err) < 0)
        return err->code;
    if (backend_alloc(site->backend, n_bytes(&o->base), "parameters that are averaged",
                      (void **)&of(&o->base)->copy, err) < 0) {
        free_async(&o->base);
        return err->code;
    }
    *out = &o->base;
    return 0;
}

/* ---- rounds ---- */

static int begin_round(struct strategy *s, struct err *err)
{
    memcpy(of(s)->copy, s->at.param, n_bytes(s));
    memcpy(of(s)->solo.aside, s->at.param, n_bytes(s));
    of(s)->is_under_way = 1;
    of(s)->begun_ns = clock_mono_ns();
    return exchange_sum_beside(s->at.exchange, of(s)->solo.aside, s->at.layout->n_trained, err);
}

/* Wait for the sum of the round, and move this rank's parameters to the mean of the copies. */
static int end_round(struct strategy *s, struct err *err)
{
    const float n = (float)solo_n_ranks(s), *sum = of(s)->solo.aside, *copy = of(s)->copy;
    const int rc = exchange_wait_beside(s->at.exchange, err);

    of(s)->is_under_way = 0;
    for (int64_t i = 0; i < s->at.layout->n_trained && rc == 0; i++)
        s->at.param[i] += sum[i] / n - copy[i];
    return rc;
}

static int is_ready(struct strategy *s)
{
    const struct async_options *o = s->at.options;

    return !of(s)->is_under_way &&
           clock_mono_ns() - of(s)->begun_ns >= o->interval_ms * (int64_t)1000000;
}

/* ---- a step ---- */

static int bucket_ready(struct strategy *s, int bucket, struct err *err)
{
    if (bucket == s->at.layout->n_buckets - 1)
        s->at.control[CONTROL_READY] = (float)is_ready(s);
    return solo_bucket_ready(s, bucket, err);
}

static int before_update(struct strategy *s, struct err *err)
{
    const int n = solo_n_ranks(s), rc = solo_before_update(s, err);

    of(s)->begins = n > 1 && s->at.control[CONTROL_READY] >= (float)n;
    return rc;
}

static int step_end(struct strategy *s, struct err *err)
{
    if (of(s)->begins)
        return begin_round(s, err);
    if (!of(s)->is_under_way || !exchange_beside_has_ended(s->at.exchange))
        return 0;
    return end_round(s, err) < 0 ? err->code : 1;
}

static int epoch_end(struct strategy *s, struct err *err)
{
    return of(s)->is_under_way ? end_round(s, err) : 0;
}

/* Forget a round of the formation before, which broke off. */
static int form(struct strategy *s, int source, struct err *err)
{
    (void)source, (void)err;
    of(s)->is_under_way = of(s)->begins = 0;
    return 0;
}

const struct strategy_ops strategy_async = {
    .group = {.name = "async",
              .help = "ranks train by themselves and average parameters beside it, never waiting "
                      "for a slow link: where runs need not repeat exactly (CPUs)",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct async_options)},
    .is_for_cpus = 1,
    .promises = SOLO_PROMISES,
    .new = new,
    .form = form,
    .loss_factor = solo_loss_factor,
    .bucket_ready = bucket_ready,
    .before_update = before_update,
    .step_end = step_end,
    .epoch_end = epoch_end,
    .free = free_async,
};
