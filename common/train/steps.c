/* steps - the trainer's side of a step: the answers to what step/ asks (step_hooks), and what is
 * done with a step's result: explaining it, and measuring the rank's speed. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/util.h"
#include "train/dump.h"
#include "train/hashes.h"
#include "train/listing.h"
#include "train/trainer_impl.h"

/* ---- step_hooks ---- */

static void steps_at(void *arg, enum phase phase, int64_t epoch, int64_t step, int64_t bucket)
{
    const struct trainer *t = arg;

    t->hooks.at(t->hooks.arg, phase, epoch, step, bucket);
}

static unsigned steps_requests(void *arg)
{
    const struct trainer *t = arg;
    const int refuses = t->kept_note[0] && t->job->train.on_nonfinite == NONFINITE_STOP;

    return t->hooks.requests(t->hooks.arg) | (refuses ? ENGINE_REQUEST_REFUSE : 0U);
}

static int steps_canceled(void *arg)
{
    const struct trainer *t = arg;

    return t->hooks.canceled(t->hooks.arg);
}

static void steps_updates(void *arg)
{
    const struct trainer *t = arg;
    const int64_t traced_ns = spans_begin();

    if (!t->saver)
        return;
    saver_copied(t->saver);
    spans_end(traced_ns, "wait for the copy", "wait");
}

static void steps_warn(void *arg, int64_t step, const char *text)
{
    trainer_warn_at(arg, step, text);
}

/* 1: checkpoint.every_steps asks for a checkpoint once `step` is done. */
static int ends_with_checkpoint(const struct trainer *t, int64_t step)
{
    const int64_t every = t->job->checkpoint.every_steps;

    return every > 0 && (step + 1) % every == 0;
}

/* The ranks meet after the step (train/meet.h), tell each other their speeds, compare their
 * replicas, look at their gradients, or may all go back to a checkpoint. */
static int steps_rests(void *arg, int64_t step)
{
    const struct trainer *t = arg;

    return (reducer_promises(t->step.reducer)->updates_are_own && ends_with_checkpoint(t, step)) ||
           balance_is_due(t, step + 1) || inspect_compares_after(t, step + 1) ||
           t->job->train.on_spike == SPIKE_REWIND || dump_is_due(t, step + 1) ||
           listing_rests(t, step + 1);
}

static double steps_loss_limit(void *arg)
{
    const struct trainer *t = arg;

    return t->job->train.on_spike >= SPIKE_SKIP ? spike_limit(t) : HUGE_VAL;
}

/* This rank has a part in a checkpoint of the step, or hashes its state. */
static int steps_looks(void *arg, int64_t step)
{
    const struct trainer *t = arg;

    if (t->rank == 0 && hashes_are_due(t, step + 1))
        return 1;

    return (t->saver || t->state->shards) &&
           (t->is_checkpoint_due || ends_with_checkpoint(t, step));
}

static int steps_audits(void *arg, int64_t step) { return inspect_looks_at(arg, step); }

static int steps_compares(void *arg, int64_t step) { return inspect_compares_after(arg, step + 1); }

static void steps_found(void *arg, const struct jury_finding *f) { inspect_found(arg, f); }

void trainer_open_step(struct trainer *t)
{
    struct stepper *s = &t->step;

    s->hooks = (struct step_hooks){.arg = t,
                                   .at = steps_at,
                                   .requests = steps_requests,
                                   .canceled = steps_canceled,
                                   .updates = steps_updates,
                                   .warn = steps_warn,
                                   .rests = steps_rests,
                                   .loss_limit = steps_loss_limit,
                                   .looks = steps_looks,
                                   .audits = steps_audits,
                                   .compares = steps_compares,
                                   .found = steps_found};
    s->job = t->job;
    s->spec = t->spec;
    s->dataset = t->train_set;
    s->sampler = &t->sampler;
    s->steps_per_epoch = t->steps_per_epoch;
    s->total_steps = t->total_steps;
    s->faults = t->o.faults;
    s->backend = t->backend;
    s->layout = t->layout;
    s->state = t->state;
    s->loop = &t->loop;
    s->ring = t->ring;
}

/* ---- a step ---- */

int trainer_explain_step(struct trainer *t, const struct step_result *s, struct err *err)
{
    if (s->applied) {
        t->kept_note[0] = 0;
        if (s->n_kept > 0)
            explain_kept(t, s->n_kept, s->lowest_kept);
        return 0;
    }
    if (s->is_spike)
        return 0;
    if (!s->overflowed)
        return explain_nonfinite(t, s, err);
    snprintf(t->note, sizeof t->note, "a gradient overflowed in float16; the loss scale is %g",
             t->step.loss_scale);
    return 0;
}

int trainer_run_step(struct trainer *t, int64_t last, struct step_result *out, struct err *err)
{
    const int64_t start_ns = clock_mono_ns(), waited_ns = step_waited_ns(&t->step);
    const int64_t traced_ns = spans_begin();
    int64_t wall_ns, busy_ns;
    int rc;

    t->note[0] = 0;
    t->is_of_input = 0;
    rc = step_run(&t->step, last, out, err);
    spans_end(traced_ns, "step", "step");
    if (rc < 0)
        return rc;
    wall_ns = clock_mono_ns() - start_ns;
    busy_ns = max_i64(0, wall_ns - (step_waited_ns(&t->step) - waited_ns));
    t->hooks.stepped(t->hooks.arg, wall_ns, busy_ns);
    balance_note(&t->balance, t->state->at.step, busy_ns);
    return 0;
}
