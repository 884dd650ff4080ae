/* parts - makes a stepper's reducer, and frees what a stepper owns: at the end of a formation, and
 * when the trainer closes. */
#include "coll/device.h"
#include "optim/optimizer.h"
#include "state/shards.h"
#include "step/flip.h"
#include "step/step_impl.h"

int step_make_reducer(struct stepper *t, const struct strategy_ops *strategy, const void *options,
                      struct err *err)
{
    struct reducer_options o = {
        .strategy = strategy,
        .options = options,
        .backend = t->backend,
        .layout = t->layout,
        .grad = t->buffers->grad,
        .bucket = t->buffers->bucket,
        .sums = t->state->shards ? t->state->shards->now.sums : NULL,
        .param = state_data(t->state, &slot_parameters),
        .copy = t->buffers->copy,
        .param_bucket = t->buffers->param_bucket,
        .copy_bucket = t->buffers->copy_bucket,
        .own_params = t->state->shards ? t->state->shards->now.data[0] : NULL,
        .check = t->buffers->numbers->check,
        .scalars = &t->buffers->numbers->scalars,
        .optimizer = &t->job->optimizer,
        .control = t->buffers->control,
        .shadow = t->buffers->shadow,
        .n_shares = t->sampler->n_shares,
        .accumulate = (int)t->job->train.accumulate,
        .waits = t->buffers->numbers->waits,
        .ring = t->ring,
        .hooks = {.exchange = {.arg = t, .at = step_at, .is_left_out = skip_if_due},
                  .spoil = flip_if_due}};

    const struct slot_def *moment[OPTIMIZER_MAX_SLOTS];
    const int n_moments = optimizer_slots(&t->job->optimizer, moment);

    for (int i = 0; i < o.strategy->n_slots; i++)
        o.slot[i] = state_data(t->state, o.strategy->slot[i]);
    for (int i = 0; i < n_moments; i++)
        o.moment[i] = state_data(t->state, moment[i]);
    return reducer_new(&o, &t->reducer, err);
}

/* The order of the calls matters on a device: coll/device.h prescribes it. */
void step_disband(struct stepper *t)
{
    struct err err;

    if (t->coll && coll_is_device(t->coll))
        (void)coll_device_quiesce(t->coll, 0, &err);
    tapes_free(t->tapes);
    t->tapes = NULL;
    witness_fini(&t->witness);
    if (t->reducer)
        reducer_leave(t->reducer);
    coll_free(t->coll);
    t->coll = NULL;
    t->n_flights = 0;
}

void step_close(struct stepper *t)
{
    step_disband(t);
    programs_free(t->programs);
    t->programs = NULL;
    watch_stop(&t->watch);
    feed_free(t->feed);
    t->feed = NULL;
    reducer_free(t->reducer);
    t->reducer = NULL;
    update_free(t->update);
    t->update = NULL;
    average_free(t->average);
    t->average = NULL;
    sights_fini(&t->sights);
    buffers_free(t->buffers);
    t->buffers = NULL;
}
