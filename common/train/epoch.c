/* epoch - the work between steps: epochs and their figures.
 *
 * trainer_train is here.  A step itself is in step/, validation in validate.c, and checkpoints are
 * in checkpoint.c. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "session/action.h" /* NOT_MEASURED */
#include "state/shards.h"
#include "step/timing.h"
#include "train/dump.h"
#include "train/hashes.h"
#include "train/listing.h"
#include "train/meet.h"
#include "train/statistics.h"
#include "train/trainer_impl.h"

enum { REPORT_INTERVAL_MS = 200 };

/* NaN (null in events.jsonl) if nothing was counted, because all steps were skipped. */
static double epoch_mean(double sum, int64_t n) { return n > 0 ? sum / (double)n : NAN; }

static enum wait_cause wait_cause(const struct trainer *t, const struct timing *m)
{
    const struct effort now = feed_effort(t->step.feed);
    const struct effort since = {now.wall_ns - m->effort.wall_ns, now.cpu_ns - m->effort.cpu_ns,
                                 now.queued_ns - m->effort.queued_ns};

    return timing_wait_cause(m, &since, t->train_set->n_workers, t->n_processors);
}

static void report_step(struct trainer *t, struct timing *m, int64_t epoch)
{
    int64_t now = clock_mono_ns();
    struct ckpt_state *at = &t->state->at;
    struct report *r;

    if (t->has_stepped && now - m->report_ns < REPORT_INTERVAL_MS * (int64_t)1000000)
        return;
    m->report_ns = now;
    r = report_new(REPORT_STEP, 0);
    r->step.epoch = epoch;
    r->step.step = at->step;
    r->step.loss = control_mean_loss(at->epoch_loss, at->epoch_weight);
    r->step.samples_per_second = timing_rate(m);
    r->step.data_wait_share = timing_data_share(m);
    r->step.data_wait_cause = wait_cause(t, m);
    r->step.first = !t->first_step_done;
    r->step.rss_mib = rss_mib();
    t->first_step_done = t->has_stepped = 1;
    t->hooks.report(t->hooks.arg, r);
}

/* ---- epochs ---- */

static int epoch_is_cut(int64_t units)
{
    return units == CONTROL_LOSS_CUT || units == -CONTROL_LOSS_CUT;
}

/* Add losses or weights in fixed point.  The sum of a diverging run stops at the end of the range,
 * as a step's own sum does, and stays there. */
static int64_t add_units(int64_t sum, int64_t more)
{
    int64_t out;

    if (epoch_is_cut(sum) || epoch_is_cut(more))
        return epoch_is_cut(sum) ? sum : more;
    if (__builtin_add_overflow(sum, more, &out))
        return more < 0 ? -CONTROL_LOSS_CUT : CONTROL_LOSS_CUT;
    return out;
}

/* Add a step's result to the sums of the epoch and of the row.  n_samples: of the global batch. */
static void add_up(struct ckpt_state *at, const struct step_result *s, int64_t n_samples)
{
    const int64_t weight = control_weight_kept(s->control.weight);

    at->step++;
    at->row_steps++;
    at->grad_norm = s->grad_norm;
    at->step_loss = s->applied ? s->control.loss : 0;
    at->step_weight = s->applied ? weight : 0;
    if (!s->applied) {
        at->epoch_skipped++;
        return;
    }
    at->n_updates++;
    at->epoch_loss = add_units(at->epoch_loss, s->control.loss);
    at->row_loss = add_units(at->row_loss, s->control.loss);
    at->epoch_weight = add_units(at->epoch_weight, weight);
    at->row_weight = add_units(at->row_weight, weight);
    at->row_targets += s->control.n_targets;
    at->epoch_correct += s->control.n_correct;
    at->epoch_targets += s->control.n_targets;
    at->epoch_samples += n_samples;
}

/* The rank that saw why a step was not applied says so.  Rank 0, whose log is the job's, says at
 * least that it was left out. */
static void warn_skipped(struct trainer *t)
{
    struct report *r;

    if (!t->note[0] && t->rank != 0)
        return;
    r = report_new(REPORT_WARNING, 0);
    r->warning.step = t->state->at.step;
    r->warning.text =
        xasprintf("step %lld was not applied: rank %d: %s", (long long)t->state->at.step, t->rank,
                  t->note[0] ? t->note
                             : "another rank's loss or gradient is not finite; that "
                               "rank's log says where");
    t->hooks.report(t->hooks.arg, r);
}

/* ---- rows of metrics.csv ---- */

static int is_row_due(const struct trainer *t)
{
    const int64_t every = t->job->report.every_steps;

    return every > 0 && t->state->at.step % every == 0;
}

static void clear_row(struct trainer *t)
{
    struct ckpt_state *at = &t->state->at;

    at->row_loss = at->row_targets = at->row_weight = at->row_steps = t->row_ns = t->row_samples =
        0;
}

/* Before a step is added up: clear the sums if the step before ended a row.  They are not cleared
 * earlier, because a driver that takes over needs them to report the row again, which the driver
 * before may not have written. */
static void begin_row(struct trainer *t)
{
    if (t->job->report.every_steps == 0 || is_row_due(t))
        clear_row(t);
}

/* 1: the sums belong to the row under way.  They do not after a resume with another
 * report.every_steps. */
static int has_row(const struct trainer *t)
{
    const int64_t every = t->job->report.every_steps;
    const int64_t since = every > 0 ? t->state->at.step % every : 0;

    return t->state->at.row_steps == (since > 0 ? since : every);
}

static void report_row(struct trainer *t)
{
    const struct ckpt_state *at = &t->state->at;
    struct report *r;

    if (t->rank != 0 || at->step == 0 || !is_row_due(t))
        return;
    r = report_new(REPORT_ROW, 0);
    r->row = (struct metrics_row){
        .step = at->step,
        .epoch = (at->step - 1) / t->steps_per_epoch + 1,
        .loss = control_mean_loss(at->row_loss, at->row_weight),
        .learning_rate = step_rate(&t->step, at->step - 1),
        .grad_norm = at->grad_norm,
        .samples_per_second = epoch_mean((double)t->row_samples * 1e9, t->row_ns),
    };
    t->hooks.report(t->hooks.arg, r);
}

/* The strategy finishes what it has under way, and the ranks meet: all hold the same state. */
static int come_together(struct trainer *t, struct err *err)
{
    const int rc = reducer_epoch_end(t->step.reducer, err);

    return rc == 0 ? meet(t, err) : rc;
}

/* 1: a checkpoint is due before the step `last`.  A checkpoint holds one state, so the ranks meet
 * before it.  All ranks compute this from the same values, so all meet. */
static int is_meeting_due(const struct trainer *t, const struct step_result *s, int64_t last)
{
    const int64_t every = t->job->checkpoint.every_steps, step = t->state->at.step;

    return step != last && ((every > 0 && step % every == 0) || s->control.n_checkpoint > 0);
}

/* The step counts, and the ranks may meet. */
static int end_step(struct trainer *t, const struct step_result *s, int64_t last, struct err *err)
{
    int rc = 0;

    reducer_agree(t->step.reducer, t->state->at.step - 1, s->control.n_ready);
    if (is_meeting_due(t, s, last))
        rc = come_together(t, err);
    return rc < 0 ? err_wrap(err, "after step %lld", (long long)t->state->at.step - 1) : 0;
}

/* Write what report.gradients and report.operators want of the n_steps-th step. */
static int dump_step(struct trainer *t, int64_t n_steps, double loss_scale, struct err *err)
{
    const int rc = dump_gradients(t, n_steps, loss_scale, err);

    return rc == 0 ? listing_tell(t, n_steps, err) : rc;
}

/* The step has ended, and does not count yet.  One that is not applied has its gradients written
 * before the reason is looked for, because that computes in their place.  *dumped: the result of
 * writing; below 0: the ranks lost each other, so the reason is not looked for, and the caller
 * fails with *err once the step counts: other ranks may have counted it. */
static int explain_step(struct trainer *t, const struct step_result *s, double loss_scale,
                        int *dumped, struct err *err)
{
    *dumped = s->applied ? 0 : dump_step(t, t->state->at.step + 1, loss_scale, err);
    return *dumped < 0 ? 0 : trainer_explain_step(t, s, err);
}

/* 1: train.stop_after is reached.  The ranks agree on that in the step itself (step_scalars).  They
 * come back here if one of them is lost before all have told the driver. */
static int is_past_stop(const struct trainer *t)
{
    const int64_t after = t->job->train.stop_after;

    return after > 0 && t->state->at.step >= after;
}

/* Run steps until the epoch or the job ends, or until the ranks agree to end here. */
static int run_epoch(struct trainer *t, int64_t epoch, struct timing *m, enum epoch_end *end,
                     struct err *err)
{
    int64_t epoch_end = epoch * t->steps_per_epoch;
    int64_t last = min_i64(epoch_end, t->total_steps);
    struct ckpt_state *at = &t->state->at;

    *end = last < epoch_end ? EPOCH_MAX_STEPS : EPOCH_WHOLE;
    if (at->step < last && is_past_stop(t)) {
        *end = EPOCH_STOPPED;
        return 0;
    }
    while (at->step < last) {
        const int64_t n_samples = sampler_at(&t->sampler, at->step).n;
        const double loss_scale = t->step.loss_scale; /* of this step */
        struct step_result s;
        int was_applied, dumped = 0, is_rewound, rc = buckets_if_due(t, last, err);

        if (rc == 0)
            rc = balance_if_due(t, last, err);
        if (rc == 0)
            rc = inspect_before_step(t, err);
        if (rc < 0)
            return err->code;
        tracing_before_step(t);
        rc = trainer_run_step(t, last, &s, err);
        if (rc == 0)
            rc = explain_step(t, &s, loss_scale, &dumped, err);
        if (rc < 0)
            return err_wrap(err, "step %lld", (long long)at->step);
        if (!s.applied && !s.overflowed && !s.is_spike &&
            t->job->train.on_nonfinite == NONFINITE_STOP) {
            *end = EPOCH_NONFINITE;
            return dumped < 0 ? dumped : step_leave(&t->step, err);
        }
        if (!s.applied && !s.is_spike &&
            (!s.overflowed || t->rank == 0)) /* all ranks see the same overflow */
            warn_skipped(t);
        was_applied = s.applied;
        is_rewound = spike_judge(t, &s);
        begin_row(t);
        add_up(at, &s, n_samples);
        if (t->step.live_lr > 0 && at->step > t->step.live_step)
            at->live_lr = t->step.live_lr;
        if (is_rewound)
            rc = spike_rewind(t, err);
        if (rc < 0)
            return rc;
        if (t->step.average)
            average_note(t->step.average);
        rc = was_applied ? dump_step(t, at->step, loss_scale, err) : dumped;
        if (rc == 0)
            rc = end_step(t, &s, last, err);
        if (rc == 0)
            rc = inspect_replicas(t, err);
        if (rc < 0)
            return rc;
        t->row_ns += timing_step(m, step_waited_ns(&t->step), step_summed_ns(&t->step),
                                 feed_waited_ns(t->step.feed), n_samples);
        t->row_samples += n_samples;
        report_row(t); /* the loop takes it with the next REPORT_STEP */
        if (at->step < last && hashes_tell(t, err) < 0)
            return err->code;
        report_step(t, m, epoch);
        rc = trainer_save_if_due(t, &s, last, err);
        if (rc < 0)
            return rc;
        tracing_after_step(t);
        if (s.control.n_stop > 0 && at->step < last) {
            *end = EPOCH_STOPPED;
            return step_leave(&t->step, err);
        }
        if (s.control.n_regroup > 0 && at->step < last) {
            *end = EPOCH_REGROUP;
            return step_leave(&t->step, err);
        }
    }
    return 0;
}

/* The number of the epoch's samples that could not be read, in the steps that were applied.  A data
 * set that leaves out such samples ignores no label for another reason, so each ignored target
 * belongs to such a sample. */
static int64_t epoch_n_left_out(const struct trainer *t)
{
    const struct ckpt_state *at = &t->state->at;

    return t->train_set->leaves_out
               ? at->epoch_samples - at->epoch_targets / sample_n_predictions(t->spec)
               : 0;
}

static void warn_left_out(struct trainer *t, int64_t epoch)
{
    const int64_t n = epoch_n_left_out(t);
    struct report *r;

    if (n == 0 || n == t->state->at.epoch_samples || t->rank != 0)
        return;
    r = report_new(REPORT_WARNING, 0);
    r->warning.step = t->state->at.step;
    r->warning.text =
        xasprintf("epoch %lld: %lld of %lld samples could not be read and were left "
                  "out (data.on_corrupt: skip); the log names files",
                  (long long)epoch, (long long)n, (long long)t->state->at.epoch_samples);
    t->hooks.report(t->hooks.arg, r);
}

/* Fail if no target of the epoch counted, because then nothing was trained. */
static int check_read(const struct trainer *t, int64_t epoch, struct err *err)
{
    const struct ckpt_state *at = &t->state->at;

    if (at->epoch_samples == 0 || at->epoch_targets > 0 || at->epoch_skipped > 0)
        return 0;
    if (!t->train_set->leaves_out)
        return err_set(err, ERR_CONFIG,
                       "epoch %lld trained nothing: all its labels are ignored; want labels other "
                       "than train.ignore_index, %lld",
                       (long long)epoch, (long long)t->job->data.ignore_index);
    return err_set(err, ERR_CORRUPT,
                   "no sample of epoch %lld could be read (data.on_corrupt: skip); the log names "
                   "the files: mend them, or set data.path",
                   (long long)epoch);
}

/* Fill the figures of OF_RANK_0 (session/figures.h). */
static void fill_figures(const struct trainer *t, struct timing *m, struct report *r)
{
    const struct ckpt_state *at = &t->state->at;
    const int64_t kept = min_i64(m->n, m->cap);

    r->epoch.train_loss = control_mean_loss(at->epoch_loss, at->epoch_weight);
    r->epoch.train_accuracy = trainer_has_accuracy(t)
                                  ? epoch_mean((double)at->epoch_correct, at->epoch_targets)
                                  : NOT_MEASURED;
    r->epoch.n_samples = at->epoch_samples;
    r->epoch.n_skipped = at->epoch_skipped;
    r->epoch.n_left_out = epoch_n_left_out(t);
    r->epoch.loss_scale = t->step.loss_scale;
    r->epoch.is_mean = reducer_promises(t->step.reducer)->updates_are_own && t->n_ranks > 1;
    r->epoch.train_seconds = clock_since_s(m->start_ns);
    r->epoch.samples_per_second = timing_rate(m);
    if (sample_has_places(t->spec) && t->job->model.loss != LOSS_CONTRASTIVE)
        r->epoch.tokens_per_second = timing_rate(m) * (double)sample_n_predictions(t->spec);
    r->epoch.step_ms_median = timing_median(m->step_ms, kept);
    r->epoch.comm_exposed_ms_median = timing_median(m->exposed_ms, kept);
    r->epoch.comm_hidden_share = timing_hidden_share(m);
}

static void fill_epoch(struct trainer *t, int64_t epoch, enum epoch_end end, struct timing *m,
                       struct report *r)
{
    r->epoch.epoch = epoch;
    r->epoch.step = t->state->at.step;
    r->epoch.end = end;
    if (t->rank == 0)
        fill_figures(t, m, r);
    r->epoch.data_wait_ms_median = timing_median(m->data_ms, min_i64(m->n, m->cap));
    r->epoch.data_wait_share = timing_data_share(m);
    r->epoch.data_wait_cause = wait_cause(t, m);
    r->epoch.rss_mib = rss_mib();
    r->epoch.peak_rss_mib = peak_rss_mib();
    if (end == EPOCH_NONFINITE && t->note[0]) {
        r->epoch.note = xasprintf("%s", t->note);
        r->epoch.is_of_input = t->is_of_input;
    }
}

/* If this epoch was broken off before, count the time and the samples that it took so far. */
static void continue_timing(struct trainer *t, int64_t epoch, struct timing *m)
{
    if (t->timed_epoch != epoch) {
        t->timed_epoch = epoch;
        t->epoch_start_ns = m->start_ns;
        t->epoch_n_samples = t->epoch_data_ns = t->epoch_exposed_ns = t->epoch_summed_ns = 0;
    }
    m->start_ns = t->epoch_start_ns;
    m->n_samples = t->epoch_n_samples;
    m->n_data_ns = t->epoch_data_ns;
    m->exposed_ns = t->epoch_exposed_ns;
    m->summed_ns = t->epoch_summed_ns;
}

/* Without synchronised batch norm each rank has running statistics of its own samples.  Validation,
 * checkpoints and the comparison of replicas need one set, so all ranks take rank 0's.  With fixed
 * shares each step leaves all ranks the same. */
static int broadcast_stats(struct trainer *t, struct err *err)
{
    if (t->job->model.sync_batch_norm || t->n_ranks == 1 || t->shares.n > 0)
        return 0;
    return state_broadcast_stats(t->state, t->step.coll, err);
}

/* Compare the copies of shards.  If ranks are about to leave, the checkpoint under way is finished
 * before, and rank 0 gets the whole state. */
static int end_shards(struct trainer *t, enum epoch_end end, struct err *err)
{
    int64_t id;
    int rc;

    if (!trainer_is_divided(t))
        return 0;
    id = ring_hand(t->ring, t->state->at.step, RING_STATE, 0, PHASE_UPDATE, RING_OF_STATE);
    ring_run(t->ring, id, clock_mono_ns());
    rc = shards_prove(t->state, t->step.coll, err);
    if (rc == 0 && end == EPOCH_REGROUP)
        rc = joint_finish(t->joint, t->step.coll, err);
    if (rc == 0 && end == EPOCH_REGROUP)
        rc = shards_collect(t->state, t->step.coll, err);
    ring_end(t->ring, id, clock_mono_ns(), rc < 0);
    return rc;
}

/* Renew the statistics of averaged weights.  The time of that does not count as the epoch's. */
static int renew_statistics(struct trainer *t, int64_t epoch, struct timing *m, struct err *err)
{
    const int64_t since_ns = clock_mono_ns();
    const int rc = statistics_renew(t, epoch, err);

    m->start_ns += clock_mono_ns() - since_ns;
    return rc;
}

/* Hash the state, and compare it.  The time of that does not count as the epoch's. */
static int inspect_end(struct trainer *t, struct report *done, struct timing *m, struct err *err)
{
    const int64_t since_ns = clock_mono_ns();
    const int rc = inspect_epoch_end(t, done, err);

    m->start_ns += clock_mono_ns() - since_ns;
    return rc;
}

void trainer_set_rate(struct trainer *t, double lr, int64_t step)
{
    t->step.live_lr = lr;
    t->step.live_step = step;
}

int trainer_train(struct trainer *t, int64_t epoch, struct report *done, struct err *err)
{
    struct ckpt_state *at = &t->state->at;
    int64_t last = min_i64(epoch * t->steps_per_epoch, t->total_steps);
    int64_t n = max_i64(last - at->step, 1);
    enum epoch_end end;
    struct timing m;
    int is_again = epoch >= 1 && at->step == epoch * t->steps_per_epoch;
    int rc;

    if (epoch < 1 || (at->step / t->steps_per_epoch + 1 != epoch && !is_again))
        return err_set(err, ERR_PROTO,
                       "asked to train epoch %lld while holding step %lld of %lld "
                       "steps an epoch",
                       (long long)epoch, (long long)at->step, (long long)t->steps_per_epoch);
    if (at->step % t->steps_per_epoch == 0 && !is_again)
        at->epoch_loss = at->epoch_correct = at->epoch_targets = at->epoch_weight =
            at->epoch_samples = at->epoch_skipped = 0;
    rc = timing_start(&m, n, err);
    continue_timing(t, epoch, &m);
    if (rc == 0 && !t->has_stepped)
        rc = hashes_tell(t, err);
    if (rc == 0 && at->step < last && !is_past_stop(t))
        rc = trainer_start_feed(t, last, err);
    m.wait_ns = step_waited_ns(&t->step);
    m.sum_ns = step_summed_ns(&t->step);
    m.data_ns = feed_waited_ns(t->step.feed);
    m.effort = feed_effort(t->step.feed);
    t->step.is_batch_held = 0;
    if (has_row(t))
        report_row(t);
    else
        clear_row(t);
    if (rc == 0)
        rc = run_epoch(t, epoch, &m, &end, err);
    if (t->saver)
        saver_copied(t->saver); /* all that follows may change the state */
    if (rc == 0 && (end == EPOCH_WHOLE || end == EPOCH_MAX_STEPS)) {
        rc = check_read(t, epoch, err);
        warn_left_out(t, epoch);
    }
    if (rc == 0)
        rc = come_together(t, err);
    if (rc == 0)
        rc = end_shards(t, end, err);
    if (rc == 0)
        rc = broadcast_stats(t, err);
    if (rc == 0 && (end == EPOCH_WHOLE || end == EPOCH_MAX_STEPS))
        rc = renew_statistics(t, epoch, &m, err);
    if (rc == 0)
        rc = inspect_end(t, done, &m, err);
    if (rc == 0 && at->step == last)
        rc = hashes_tell(t, err);
    if (rc == 0)
        fill_epoch(t, epoch, end, &m, done);
    if (rc == 0)
        tracing_if_over(t, end != EPOCH_WHOLE && end != EPOCH_REGROUP);
    free(m.step_ms);
    t->epoch_n_samples = m.n_samples;
    t->epoch_data_ns = m.n_data_ns;
    t->epoch_exposed_ns = m.exposed_ns;
    t->epoch_summed_ns = m.summed_ns;
    return rc;
}
