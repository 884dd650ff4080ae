/* flight - the steps under way on a device: queueing them ahead, and dealing with their results.
 *
 * A device should never wait for the host.  So while the device does step n, the host queues step
 * n+1.  It reads the result of n when n is done.  At most two steps are under way: n, and its
 * follower n+1 (strategy/async.c counts on that).  The follower is queued on the presumption that n
 * will be clean: that n is applied, and that no rank asks for anything.
 *
 * If the presumption proves wrong (n was not finite, or a rank asked to stop, to regroup or to
 * write a checkpoint), n+1 is void: it changes nothing.  Each device finds that out by itself
 * before it reduces (op/seal.c, op/control_pack.c), and leaves parameters, statistics and loss
 * scale alone. The host waits until n+1 has ended.  With nothing under way it then does what step n
 * asked for, on the state of step n, and queues n+1 anew.  So a request takes effect at the same
 * step as if only one step were under way, and costs the time of one step.  All ranks decide alike
 * without a message, because they decide by the reduced control vector.
 *
 * All ranks must queue the same collectives.  So whether n has a follower depends only on the job,
 * the strategy and n (has_follower).  A rank that has to look at its state between the two steps
 * (for a checkpoint of its own, or for faults on purpose) may queue the follower later.  It must
 * queue the follower even if it knows by then that the follower counts as nothing (drop_follower).
 * With accumulation, with fixed shares, with divided state, while buckets are measured
 * (step/watch.h), and on the CPU, one step is under way.  With divided state a rank that did not
 * make the last step's update makes it after the loss, from gradients that a follower would have
 * overwritten (state/shards.h).
 *
 * Failure modes
 *
 * A collective fails because a rank left or because of an abort.  Then the oldest step either ended
 * without being applied, or was applied before the failure: flight_settle() finds out which.  The
 * step queued after it meets the failure at the next call, and is treated in the same way.  So a
 * lost rank costs the step that was being computed, whatever was queued after it.
 *
 * The follower cannot be queued, because its data cannot be read.  The error is returned when the
 * follower's turn comes; or at once (step_leave) if training ends at the step before it, because
 * the other ranks did queue it and wait for this rank.
 *
 * A device calls a step void although the step before it was clean.  Then coll_abort stopped the
 * device, an instant before coll_poll could say so.
 *
 * None of this has run on a GPU yet, and its gain has not been measured.  tests/cudasim runs it
 * with each call of the runtime failing, tests/fakegpu with several ranks. */
#include <unistd.h>

#include "base/util.h"
#include "coll/device.h"
#include "state/drain.h"
#include "state/shards.h"
#include "step/step_impl.h"

/* The first BUSY_POLLS polls have no pause between them, which is enough for a step of a small
 * model.  Later ones have a pause of POLL_US. */
enum { BUSY_POLLS = 4000, POLL_US = 20 };

enum { FIRST_MARK = 2 * FEED_MARKS }; /* after the marks of both feeds: one for each slot */

static float *results_of(const struct stepper *t, const struct flight *f)
{
    return t->buffers->results + flight_slot(f->step) * SEALED_LEN;
}

int64_t step_waited_ns(const struct stepper *t)
{
    struct coll_stats s;

    coll_stats(t->coll, &s);
    return coll_is_device(t->coll) ? t->waited_ns : s.wait_ns;
}

int64_t step_summed_ns(const struct stepper *t)
{
    struct coll_stats s;

    coll_stats(t->coll, &s);
    return coll_is_device(t->coll) ? -1 : s.busy_ns;
}

/* ---- queueing ---- */

static int has_follower(const struct stepper *t, int64_t step, int64_t last)
{
    return backend_queues(t->backend) && t->job->train.accumulate == 1 &&
           t->sampler->n_shares == 0 && step + 1 < last &&
           reducer_promises(t->reducer)->collectives_are_equal && !t->state->shards &&
           !t->hooks.rests(t->hooks.arg, step) && !watch_holds_up(&t->watch);
}

/* 1: this rank itself needs its state at rest when `step` is done. */
static int looks_at_state(const struct stepper *t, int64_t step)
{
    return faults_n(t->faults) || t->hooks.looks(t->hooks.arg, step);
}

/* Mark the collectives of the oldest step as running in the record.  Those of its follower cannot
 * be. */
static void begin_handed(struct stepper *t)
{
    exchange_ran(reducer_exchange(t->reducer), t->flight[0].handed);
}

static void end_handed(struct stepper *t, const struct flight *f, int is_failed)
{
    if (f->handed.first)
        exchange_ended(reducer_exchange(t->reducer), f->handed, is_failed);
}

/* Queue the step that follows those under way.  after: as in step_scalars. */
static void flight_fly(struct stepper *t, float after)
{
    const int64_t step = t->state->at.step + t->n_flights;
    struct flight *f = &t->flight[t->n_flights++];

    *f = (struct flight){.step = step, .after = after};
    results_of(t, f)[SEALED_STAMP] = 0;
    f->rc = step_queue(t, f, &f->err);
    f->handed = reducer_end(t->reducer);
    if (f->rc == 0)
        f->rc = backend_mark(t->backend, LANE_MAIN, FIRST_MARK + flight_slot(step), &f->err);
    if (t->n_flights == 1)
        begin_handed(t);
}

/* The oldest step has ended: mark its collectives in the record, and remove it. */
static void flight_land(struct stepper *t, int is_failed)
{
    end_handed(t, &t->flight[0], is_failed);
    for (int i = 1; i < t->n_flights; i++)
        t->flight[i - 1] = t->flight[i];
    if (--t->n_flights > 0)
        begin_handed(t);
}

/* ---- waiting ---- */

/* Wait until the device has passed `mark`. */
static int flight_wait_for(struct stepper *t, int mark, struct err *err)
{
    int rc;

    for (int n = 0; (rc = backend_passed(t->backend, mark, err)) == 1; n++) {
        if (t->coll && coll_poll(t->coll, err) < 0)
            return err->code;
        if (n >= BUSY_POLLS)
            usleep(POLL_US);
    }
    if (rc == 0 && t->coll)
        rc = coll_poll(t->coll, err);
    return rc;
}

int step_wait(struct stepper *t, struct err *err) { return drain_device(t->coll, t->backend, err); }

static int wait_flight(struct stepper *t, const struct flight *f, struct err *err)
{
    if (f->rc < 0)
        *err = f->err;
    if (f->rc < 0 || !backend_queues(t->backend))
        return f->rc;
    return flight_wait_for(t, FIRST_MARK + flight_slot(f->step), err);
}

/* After a failure: stop all that runs on the device.  <0: the device itself has failed, too. */
static int stop_device(struct stepper *t)
{
    enum { UNDER_WAY_MS = 500 };
    struct err other;

    if (coll_is_device(t->coll))
        (void)coll_device_quiesce(t->coll, UNDER_WAY_MS, &other);
    return backend_sync(t->backend, &other);
}

/* If state is divided: the step broke off, and nothing runs any more.  If its sums of
 * gradients came to this rank as a whole, the step is prepared. */
static void flight_note_prepared(struct stepper *t, const struct flight *f)
{
    const struct step_numbers *n = t->buffers->numbers;
    struct err err;
    float summed[2];

    _Static_assert(sizeof summed == sizeof n->summed, "a stamp and is_void");
    if (t->state->shards &&
        backend_copy_out(t->backend, summed, &n->summed, sizeof summed, &err) == 0 &&
        summed[0] == step_stamp(f->step) && !(summed[1] > 0))
        t->state->shards->prepared_step = f->step;
}

/* The oldest step broke off, as *err says.  Returns 0 if it was done all the same.  Then all of its
 * collectives were done, all ranks read the same verdict whether it was applied, and the next step
 * meets the failure again.  A step is done once this rank has made its update, even if an exchange
 * of parameters failed after that: with shards (state/shards.h), and where ranks exchange them now
 * and then, which then stay as the update left them.  Numbers that are not finite are this rank's
 * own failure, which the next step would not meet. */
static int flight_settle(struct stepper *t, struct err *err)
{
    const struct flight *f = &t->flight[0];
    const float *r = results_of(t, f);

    if ((backend_queues(t->backend) && stop_device(t) < 0) || err->code == ERR_NUMERIC)
        return err->code;
    if (r[SEALED_STAMP] == step_stamp(f->step) && !(r[SEALED_CONTROL + CONTROL_VOID] > 0))
        return 0;
    flight_note_prepared(t, f);
    return err->code;
}

/* ---- results ---- */

static int is_clean(const struct step_result *s)
{
    return s->applied && !s->control.n_stop && !s->control.n_checkpoint && !s->control.n_regroup;
}

/* The norm of the gradient of the mean loss.  The summed gradient is multiplied by the loss scale.
 * It belongs to a loss that was divided by the number of all targets, instead of the weight of
 * those that were seen (update_scale in op/update.h). */
static double grad_norm(const struct stepper *t, const struct flight *f, const float *r)
{
    const double seen = control_weight(r + SEALED_CONTROL);
    const int64_t all = sampler_at(t->sampler, f->step).n * sample_n_predictions(t->spec);
    const double scale = t->layout->has_scaler ? t->loss_scale : 1;

    return seen > 0 ? (double)r[SEALED_GRAD_NORM] / scale * (double)all / seen : 0;
}

/* If state is divided: keep the check by which the shards were updated, for a rank that could not
 * make this update. */
static int flight_keep_check(struct stepper *t, struct err *err)
{
    struct shards *s = t->state->shards;

    return s ? backend_copy_out(t->backend, s->check, t->buffers->numbers->check, sizeof s->check,
                                err)
             : 0;
}

static int read_result(struct stepper *t, struct step_result *out, struct err *err)
{
    const struct flight *f = &t->flight[0];
    const float *r = results_of(t, f);

    if (r[SEALED_STAMP] != step_stamp(f->step))
        return err_set(err, ERR_DEVICE, "the result of step %lld is not there: its mark is %g",
                       (long long)f->step, (double)r[SEALED_STAMP]);
    control_read(r + SEALED_CONTROL, &out->control);
    if (out->control.is_void)
        return err_set(err, ERR_CANCELED, "its collectives were stopped");
    out->has_bad_losses = r[SEALED_BAD_LOSSES] > 0;
    out->has_bad_grad = r[SEALED_BAD_GRAD] != 0;
    out->is_spike =
        out->control.is_spike && out->control.n_nonfinite == 0 && r[SEALED_BAD_GRAD] == 0;
    out->applied =
        out->control.n_nonfinite == 0 && r[SEALED_BAD_GRAD] == 0 && !out->control.is_spike;
    out->grad_norm = grad_norm(t, f, r);
    t->waited_ns += (int64_t)r[SEALED_WAITED_NS];
    t->loss_scale = t->layout->has_scaler ? (double)r[SEALED_SCALER + SCALER_SCALE] : 0;
    out->overflowed = t->layout->has_scaler && !out->applied && out->control.n_nonfinite == 0 &&
                      r[SEALED_SCALER + SCALER_STUCK] == 0.0f;
    out->n_kept = out->lowest_kept = 0;
    if (out->applied && r[SEALED_KEPT] > 0) {
        out->n_kept = (int64_t)r[SEALED_KEPT];
        out->lowest_kept = (int64_t)r[SEALED_KEPT_HIGH] << 24 | (int64_t)r[SEALED_KEPT_LOW];
    }
    return flight_keep_check(t, err);
}

/* The oldest step was not clean, so its follower, which all ranks queue, is void: remove it.  If
 * the follower could not be queued, it stays, because its error is to be reported. */
static void drop_follower(struct stepper *t, int is_broken)
{
    struct err err;

    if (t->n_flights == 1 && coll_size(t->coll) > 1 && !is_broken)
        flight_fly(t, step_stamp(t->flight[0].step));
    if (t->n_flights == 1 || t->flight[1].rc < 0)
        return;
    if (wait_flight(t, &t->flight[1], &err) < 0)
        (void)stop_device(t); /* the next step meets the failure again */
    end_handed(t, &t->flight[1], 0);
    t->n_flights = 1;
    t->is_batch_held = 1;
}

/* ---- a step ---- */

static int check_standing(struct stepper *t, struct err *err)
{
    return t->hooks.canceled(t->hooks.arg) ? err_set(err, ERR_CANCELED, "training was canceled")
                                           : coll_poll(t->coll, err);
}

static void queue_more(struct stepper *t, int64_t last)
{
    const int64_t step = t->state->at.step;

    if (t->n_flights == 0)
        flight_fly(t, 0);
    if (t->flight[0].rc == 0 && has_follower(t, step, last) && !looks_at_state(t, step))
        flight_fly(t, step_stamp(step));
    if (backend_queues(t->backend))
        feed_ahead(t->feed);
}

static int flight_finish(struct stepper *t, int64_t last, int is_broken, struct step_result *out,
                         struct err *err)
{
    int rc = read_result(t, out, err);

    if (rc < 0)
        return rc;
    if (!is_clean(out) && has_follower(t, t->flight[0].step, last))
        drop_follower(t, is_broken);
    return 0;
}

static void show_step(struct stepper *t)
{
    const int64_t step = t->state->at.step;

    if (backend_queues(t->backend))
        t->hooks.at(t->hooks.arg, PHASE_STEP, step / t->steps_per_epoch + 1, step, -1);
}

/* The oldest step has ended, or broke off, as rc and *err say. */
static int flight_conclude(struct stepper *t, int64_t last, int rc, struct step_result *out,
                           struct err *err)
{
    const int is_broken = rc < 0;

    if (is_broken)
        rc = flight_settle(t, err);
    if (rc == 0)
        rc = flight_finish(t, last, is_broken, out, err);
    do
        flight_land(t, rc < 0);
    while (rc < 0 && t->n_flights > 0);
    if (t->n_flights == 0 && !t->is_batch_held)
        feed_done(t->feed);
    return rc;
}

int step_run(struct stepper *t, int64_t last, struct step_result *out, struct err *err)
{
    int rc;

    ASSERT(t->coll && t->tapes && t->programs);
    rc = check_standing(t, err);
    if (rc < 0 && t->n_flights == 0)
        return rc;
    if (t->n_flights > 0)
        show_step(t);
    if (rc == 0) {
        queue_more(t, last);
        show_step(t);
        rc = wait_flight(t, &t->flight[0], err);
    }
    return flight_conclude(t, last, rc, out, err);
}

int step_leave(struct stepper *t, struct err *err)
{
    const int is_left = t->n_flights > 0;

    ASSERT(!is_left || (t->n_flights == 1 && t->flight[0].rc < 0));
    if (is_left)
        flight_land(t, 1);
    if (!is_left || coll_size(t->coll) == 1)
        return 0;
    *err = t->flight[0].err;
    return err_wrap(err, "step %lld", (long long)t->flight[0].step);
}
