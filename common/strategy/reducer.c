/* reducer - calls a strategy's functions at the places of a step.
 *
 * Around these calls it does the work that every strategy needs: it tells the exchange the phase,
 * measures how long a device waits, spoils gradients on purpose, and on a device notes whether
 * collectives were stopped half way. */
#include "strategy/reducer.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "coll/device.h"
#include "op/control.h"

/* The places of a step, of which each call knows the one before.  A step that breaks off ends at
 * any of them. */
enum place { OUTSIDE, BEGUN, IN_MICRO, FINISHED };

struct reducer {
    struct reducer_options o;
    struct exchange *exchange;
    struct strategy *strategy;
    struct coll *coll; /* NULL: no formation */
    enum place place;
    int n_ready; /* buckets of the micro-batch that are ready */
    int64_t
        agreed_at; /* the step in which all ranks were ready, or NO_STEP; the round is to begin */
    int64_t free_from; /* the first step whose agreement counts: earlier ones knew nothing of the
                          newest round */
};

/* A round begins ahead of the step that comes so many steps after the one that agreed on it.  On a
 * device one step may be under way when the host reads which step agreed (step/flight.c).  All
 * ranks queue the steps and the round in one order, whenever each of them reads its results. */
enum { NO_STEP = -1, LEAD = 1, LEAD_ON_DEVICE = 2 };

static int make_strategy(struct reducer *r, struct err *err)
{
    const struct reducer_options *o = &r->o;
    struct strategy_site site = {.options = o->options,
                                 .backend = o->backend,
                                 .exchange = r->exchange,
                                 .layout = o->layout,
                                 .grad = o->grad,
                                 .bucket = o->bucket,
                                 .sums = o->sums,
                                 .param = o->param,
                                 .copy = o->copy,
                                 .param_bucket = o->param_bucket,
                                 .copy_bucket = o->copy_bucket,
                                 .own_params = o->own_params,
                                 .check = o->check,
                                 .scalars = o->scalars,
                                 .optimizer = o->optimizer,
                                 .control = o->control,
                                 .shadow = o->shadow,
                                 .n_shares = o->n_shares,
                                 .accumulate = o->accumulate};

    memcpy(site.slot, o->slot, sizeof site.slot);
    memcpy(site.moment, o->moment, sizeof site.moment);
    if (o->strategy->new (&site, &r->strategy, err) < 0)
        return err_wrap(err, "strategy %s", o->strategy->group.name);
    r->strategy->ops = o->strategy;
    return 0;
}

int reducer_new(const struct reducer_options *o, struct reducer **out, struct err *err)
{
    struct exchange_options eo = {.ring = o->ring,
                                  .n_buckets = o->layout->n_buckets,
                                  .n_frozen = o->layout->n_param_buckets - o->layout->n_buckets,
                                  .is_device = backend_queues(o->backend),
                                  .hooks = o->hooks.exchange};
    struct reducer *r = xcalloc(1, sizeof *r);

    ASSERT(o->strategy->new && o->strategy->bucket_ready && o->strategy->before_update &&
           o->strategy->free);
    ASSERT(!o->strategy->promises.gradients_are_divided || o->strategy->divided);
    ASSERT(!o->layout->awaits_params || o->strategy->divided);
    ASSERT(!o->strategy->promises.buckets_may_change || !o->strategy->form);
    r->o = *o;
    r->agreed_at = NO_STEP;
    r->exchange = exchange_new(&eo);
    if (make_strategy(r, err) < 0) {
        reducer_free(r);
        return err->code;
    }
    *out = r;
    return 0;
}

void reducer_uncut(struct reducer *r)
{
    ASSERT(r->o.strategy->promises.buckets_may_change && r->place == OUTSIDE);
    if (r->strategy)
        r->o.strategy->free(r->strategy);
    r->strategy = NULL;
}

int reducer_recut(struct reducer *r, struct err *err)
{
    ASSERT(!r->strategy && r->place == OUTSIDE);
    exchange_recut(r->exchange, r->o.layout->n_buckets);
    return make_strategy(r, err);
}

void reducer_free(struct reducer *r)
{
    if (!r)
        return;
    if (r->strategy)
        r->o.strategy->free(r->strategy);
    exchange_free(r->exchange);
    free(r);
}

const struct strategy_ops *reducer_strategy(const struct reducer *r) { return r->o.strategy; }

const struct strategy_promises *reducer_promises(const struct reducer *r)
{
    return &r->o.strategy->promises;
}

struct exchange *reducer_exchange(struct reducer *r) { return r->exchange; }

static int reducer_is_on_device(const struct reducer *r) { return backend_queues(r->o.backend); }

/* ---- a formation ---- */

void reducer_join(struct reducer *r, struct coll *c)
{
    ASSERT(c && !r->coll && r->place == OUTSIDE);
    r->coll = c;
    exchange_join(r->exchange, c);
}

void reducer_leave(struct reducer *r)
{
    r->coll = NULL;
    r->place = OUTSIDE; /* a step that broke off ends here at the latest */
    exchange_leave(r->exchange);
}

int reducer_form(struct reducer *r, int source, struct err *err)
{
    ASSERT(r->coll && r->place == OUTSIDE && source >= 0 && source < coll_size(r->coll));
    r->agreed_at = NO_STEP;
    r->free_from = 0;
    return r->o.strategy->form ? r->o.strategy->form(r->strategy, source, err) : 0;
}

int reducer_epoch_end(struct reducer *r, struct err *err)
{
    ASSERT(r->coll && r->place == OUTSIDE);
    r->agreed_at = NO_STEP;
    return r->o.strategy->epoch_end ? r->o.strategy->epoch_end(r->strategy, err) : 0;
}

int reducer_met(struct reducer *r, struct err *err)
{
    ASSERT(r->coll && r->place == OUTSIDE);
    return r->o.strategy->met ? r->o.strategy->met(r->strategy, err) : 0;
}

/* ---- a step ---- */

/* Start (stops 0) or stop (1) the device's clock of the time in which the device only waits for
 * other ranks.  Does nothing on CPUs, where coll_stats has that time. */
static int watch_waiting(struct reducer *r, int stops, struct err *err)
{
    return coll_is_device(r->coll) ? backend_stopwatch(r->o.backend, r->o.waits, stops, err) : 0;
}

static int reducer_spoil(struct reducer *r, int bucket, int is_reduced, struct err *err)
{
    return r->o.hooks.spoil(r->o.hooks.exchange.arg, bucket, is_reduced, err);
}

/* 1: a round that all ranks agreed on begins ahead of `step`. */
static int begins_round(struct reducer *r, int64_t step)
{
    const int lead = reducer_is_on_device(r) ? LEAD_ON_DEVICE : LEAD;

    if (r->agreed_at == NO_STEP || step < r->agreed_at + lead)
        return 0;
    ASSERT(r->agreed_at >= r->free_from);
    r->agreed_at = NO_STEP;
    r->free_from = step;
    return 1;
}

void reducer_agree(struct reducer *r, int64_t step, int n_ready)
{
    const int n = coll_size(r->coll);

    ASSERT(step >= 0 && n_ready >= 0 && n_ready <= n);
    if (n > 1 && n_ready >= n && r->agreed_at == NO_STEP && step >= r->free_from)
        r->agreed_at = step;
}

int reducer_begin(struct reducer *r, int64_t step, int64_t n_updates, struct err *err)
{
    ASSERT(r->coll && r->place == OUTSIDE);
    ASSERT(r->strategy && n_updates >= 0);
    r->place = BEGUN;
    exchange_begin(r->exchange, step);
    exchange_enter(r->exchange, PHASE_FORWARD);
    r->strategy->n_updates = n_updates;
    r->strategy->begins_round = begins_round(r, step);
    return r->o.strategy->between ? r->o.strategy->between(r->strategy, err) : 0;
}

int reducer_is_ready(const struct reducer *r) { return r->strategy->is_ready; }

int reducer_micro_begin(struct reducer *r, int is_first, int is_last, struct err *err)
{
    const int overlaps = reducer_is_on_device(r) ? is_last : is_first;

    ASSERT(r->place == BEGUN || r->place == IN_MICRO);
    r->place = IN_MICRO;
    r->n_ready = 0;
    r->strategy->is_first_micro = is_first;
    r->strategy->is_last_micro = is_last;
    return overlaps && r->o.strategy->overlap ? r->o.strategy->overlap(r->strategy, err) : 0;
}

int reducer_variant(const struct reducer *r)
{
    return r->o.strategy->variant ? r->o.strategy->variant(r->strategy) : 0;
}

struct handed reducer_end(struct reducer *r)
{
    r->place = OUTSIDE;
    return exchange_end(r->exchange);
}

int reducer_sum(struct reducer *r, const struct stage *s, struct err *err)
{
    const enum phase phase = s->backward ? PHASE_BACKWARD : PHASE_FORWARD;

    if (watch_waiting(r, 0, err) < 0 ||
        exchange_sum_now(r->exchange, s->sync, s->n_sync, phase, err) < 0)
        return err->code;
    return watch_waiting(r, 1, err);
}

/* Buckets are ready in their order, each once in a micro-batch.  With fixed shares each share
 * begins anew. */
static void note_ready(struct reducer *r, int bucket)
{
    ASSERT(r->place == IN_MICRO && (bucket == 0 || bucket == r->n_ready));
    r->n_ready = bucket + 1;
}

int reducer_hand_over(struct reducer *r, int bucket, struct err *err)
{
    note_ready(r, bucket);
    exchange_enter(r->exchange, PHASE_BACKWARD);
    return r->o.strategy->bucket_ready(r->strategy, bucket, err);
}

int reducer_bucket(struct reducer *r, int bucket, struct err *err)
{
    return reducer_spoil(r, bucket, 0, err) < 0 ? err->code : reducer_hand_over(r, bucket, err);
}

void reducer_forget(struct reducer *r)
{
    ASSERT(r->place == IN_MICRO);
    if (r->o.strategy->forget)
        r->o.strategy->forget(r->strategy);
}

int reducer_release(struct reducer *r, int bucket, struct err *err)
{
    ASSERT(r->o.strategy->promises.gradients_are_divided && r->place == IN_MICRO);
    return r->o.strategy->divided->release(r->strategy, bucket, err);
}

int reducer_gather(struct reducer *r, int bucket, struct err *err)
{
    ASSERT(r->coll && r->o.strategy->divided && bucket >= 0);
    return r->o.strategy->divided->gather(r->strategy, bucket, err);
}

int reducer_gathered(struct reducer *r, int bucket, struct err *err)
{
    ASSERT(r->coll && r->o.strategy->divided && bucket >= 0);
    return r->o.strategy->divided->gathered(r->strategy, bucket, err);
}

void reducer_validate(struct reducer *r)
{
    exchange_begin(r->exchange, exchange_step(r->exchange));
    exchange_enter(r->exchange, PHASE_VALIDATE);
}

/* Work queued after this reads in the control vector whether a collective was stopped so far. */
static int note_stopped(struct reducer *r, struct err *err)
{
    return coll_is_device(r->coll) ? coll_device_latch(r->coll, r->o.control + CONTROL_VOID, err)
                                   : 0;
}

/* Half-reduced gradients are never applied.  On a CPU the strategy's wait fails.  On a device the
 * wait only queues work, so coll_device_latch marks the control vector if a collective was stopped,
 * and the update reads that mark. */
int reducer_finish(struct reducer *r, struct err *err)
{
    ASSERT(r->place == IN_MICRO && r->n_ready == r->o.layout->n_buckets);
    r->place = FINISHED;
    exchange_enter(r->exchange, PHASE_REDUCE);
    if (watch_waiting(r, 0, err) < 0 || r->o.strategy->before_update(r->strategy, err) < 0 ||
        watch_waiting(r, 1, err) < 0)
        return err->code;
    for (int b = 0; b < r->o.layout->n_buckets; b++)
        if (reducer_spoil(r, b, 1, err) < 0)
            return err->code;
    if (note_stopped(r, err) < 0)
        return err->code;
    return r->o.strategy->settled ? r->o.strategy->settled(r->strategy, err) : 0;
}

int reducer_sum_check(struct reducer *r, double *check, struct err *err)
{
    ASSERT(r->place == FINISHED && r->o.strategy->promises.n_holders > 0);
    if (watch_waiting(r, 0, err) < 0 ||
        exchange_sum_now(r->exchange, check, 2, PHASE_REDUCE, err) < 0 ||
        watch_waiting(r, 1, err) < 0)
        return err->code;
    return note_stopped(r, err);
}

int reducer_updated(struct reducer *r, struct err *err)
{
    ASSERT(r->place == FINISHED);
    exchange_enter(r->exchange, PHASE_UPDATE);
    return r->o.strategy->after_update ? r->o.strategy->after_update(r->strategy, err) : 0;
}

double reducer_loss_factor(const struct reducer *r, int64_t step, double part)
{
    return r->o.strategy->loss_factor ? r->o.strategy->loss_factor(r->strategy, step, part) : 1;
}
