/* word - what a rank says of itself in a heartbeat, and hearing it. */
#ifndef TESTS_SESSION_WORD_H
#define TESTS_SESSION_WORD_H

#include "rig.h"

/* A rank's heartbeat. */
struct word {
    enum phase phase;
    int64_t step, bucket, n_handed, n_ended, at_bucket;
    int64_t for_ms, bytes;
    int64_t n_steps, busy_ms;
    int unlinked;
    int64_t n_strangers;
    int64_t package_mj, gpu_mj;
};

/* The driver hears this of the rank; of rank 0 by its own engine. */
static inline void say(struct rig *r, int rank, const struct word *w)
{
    const int64_t generation = r->command->generation;
    struct progress p = {
        .generation = generation,
        .epoch = 1,
        .step = w->step,
        .phase = w->phase,
        .bucket = w->bucket,
        .since_ns = r->now - w->for_ms * MS,
        .n_steps = w->n_steps,
        .wall_ns = 2 * w->busy_ms * MS,
        .busy_ns = w->busy_ms * MS,
        .unlinked = w->unlinked,
        .n_strangers = w->n_strangers,
        .usage = {.mj = {[ENERGY_PACKAGE] = w->package_mj, [ENERGY_GPU] = w->gpu_mj},
                  .resident_kib = 1},
        .head = {.generation = generation, .n_handed = w->n_handed, .n_ended = w->n_ended},
    };
    if (w->n_handed > w->n_ended)
        p.head.at = (struct collective){
            .number = w->n_ended + 1, .step = w->step, .bucket = w->at_bucket, .n_bytes = w->bytes};
    if (rank == 0) {
        driver_progress(r->d, r->now, &p);
        rig_drain(r);
        return;
    }
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;
    h.epoch = 1;
    h.step = w->step;
    h.phase = (Wire__Phase)w->phase;
    h.bucket = w->bucket;
    h.phase_ms = w->for_ms;
    h.n_handed = w->n_handed;
    h.n_ended = w->n_ended;
    if (w->n_handed > w->n_ended) {
        h.at_step = w->step;
        h.at_bucket = w->at_bucket;
        h.at_bytes = w->bytes;
    }
    h.n_steps = w->n_steps;
    h.wall_ns = 2 * MS * w->busy_ms;
    h.busy_ns = MS * w->busy_ms;
    h.unlinked = w->unlinked;
    h.n_strangers = w->n_strangers;
    h.package_mj = w->package_mj;
    h.gpu_mj = w->gpu_mj;
    h.resident_kib = 1;
    m.generation = generation;
    m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
    m.heartbeat = &h;
    rig_message(r, rank, &m);
}

/* o->n_ranks ranks come, and all get the command to train. */
static inline void start_training(struct rig *r, const struct driver_options *o)
{
    rig_driver(r, o);
    rig_gather(r, o->n_ranks);
    while (r->command->kind != CMD_TRAIN)
        rig_answer_all(r, o->n_ranks);
}

#endif
