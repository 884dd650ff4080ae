/* checkpoint - decides when a checkpoint is written, and by which ranks.
 *
 * Rank 0 writes a state that it holds, by its saver (state/saver.h).  If the state is divided among
 * several ranks, all write it together (state/joint.h). */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "state/shards.h"
#include "train/trainer_impl.h"

int trainer_is_divided(const struct trainer *t)
{
    return t->state->shards && t->state->shards->now.size > 1;
}

/* 1: the job asks for checkpoints besides the last one. */
static int saves_while_training(const struct job *j)
{
    return j->checkpoint.every_epochs > 0 || j->checkpoint.every_steps > 0 ||
           j->train.best.goal != GOAL_NONE;
}

int trainer_open_savers(struct trainer *t, struct err *err)
{
    const int keep = (int)t->job->checkpoint.keep;
    const struct joint_options o = {.state = t->state,
                                    .saver = t->saver,
                                    .run_dir = t->o.run_dir,
                                    .keep = keep,
                                    .window_bytes = t->o.window_bytes,
                                    .moment_ms = t->o.moment_ms,
                                    .is_apart = t->o.window_bytes > 0 && t->rank > 0};
    int rc = t->saver ? saver_open(t->saver, t->state, keep, saves_while_training(t->job), err) : 0;

    return rc == 0 && t->state->shards ? joint_open(t->joint, &o, err) : rc;
}

/* Rank 0's decision when all ranks are about to begin a checkpoint of a divided state. */
enum { SAVE_LATER, SAVE_NOW, SAVE_NEVER };

/* ---- by all ranks ---- */

/* These collectives make no entries in the record, so all of one call together get one. */
static int checkpoint_recorded(struct trainer *t,
                               int (*work)(struct trainer *t, void *arg, struct err *err),
                               void *arg, struct err *err)
{
    const int64_t id =
        ring_hand(t->ring, t->state->at.step, RING_STATE, 0, PHASE_CHECKPOINT, RING_OF_STATE);
    int rc;

    ring_run(t->ring, id, clock_mono_ns());
    rc = work(t, arg, err);
    ring_end(t->ring, id, clock_mono_ns(), rc < 0);
    return rc;
}

/* Rank 0 sends it to all ranks. */
struct beginning {
    uint8_t answer;
    uint8_t is_last; /* 1: all ranks wait until the checkpoint is written; only rank 0 has the
                        driver's word for that */
};

/* All ranks get rank 0's answer.  After SAVE_NOW a checkpoint is under way.  The copies of
 * shards are compared before that, so that a wrong state is not saved. */
static int begin_joint(struct trainer *t, void *arg, struct err *err)
{
    struct beginning *b = arg;
    struct ring_head head;
    int rc = coll_broadcast(t->step.coll, b, sizeof *b, 0, err);

    if (rc == 0 && b->answer == SAVE_NOW)
        rc = shards_prove(t->state, t->step.coll, err);
    ring_head(t->ring, &head);
    if (rc == 0 && b->answer == SAVE_NOW)
        rc = joint_begin(t->joint, t->step.coll, b->is_last, head.generation, err);
    return rc;
}

static int poll_joint(struct trainer *t, void *arg, struct err *err)
{
    (void)arg;
    return joint_poll(t->joint, t->step.coll, err);
}

static int finish_joint(struct trainer *t, void *arg, struct err *err)
{
    (void)arg;
    return joint_finish(t->joint, t->step.coll, err);
}

/* The last checkpoint: wait until all ranks have written it, and rank 0 until it is in place. */
static int await_joint(struct trainer *t, int64_t since_ns, struct report *done, struct err *err)
{
    const int rc = checkpoint_recorded(t, finish_joint, NULL, err);

    return rc == 0 && t->saver ? saver_await(t->saver, since_ns, done, err) : rc;
}

/* For CMD_CHECKPOINT, which all ranks get.  Nothing is written if the state's step is on disk. */
static int checkpoint_jointly(struct trainer *t, int is_last, struct report *done, struct err *err)
{
    const int64_t since_ns = clock_mono_ns();
    struct beginning b = {SAVE_NEVER, is_last != 0};
    int wants = 0, rc = checkpoint_recorded(t, finish_joint, NULL, err);

    if (rc == 0 && t->saver)
        rc = saver_wants(t->saver, &wants, err);
    if (wants)
        b.answer = SAVE_NOW;
    if (rc == 0)
        rc = checkpoint_recorded(t, begin_joint, &b, err);
    if (rc == 0 && b.is_last && b.answer == SAVE_NOW)
        rc = await_joint(t, since_ns, done, err);
    if (rc < 0 && t->saver)
        saver_disown(t->saver); /* it may have begun */
    return rc;
}

void trainer_make_checkpoint_due(struct trainer *t, int64_t step)
{
    if (!t->is_checkpoint_due)
        t->checkpoint_due_since = step;
    t->is_checkpoint_due = 1;
}

/* A checkpoint of `step` begins on this rank.  Those that were due before it and had to wait are
 * not written any more, so it stands for them, too. */
static void begin_due(struct trainer *t, int64_t step)
{
    const int64_t since = t->is_checkpoint_due ? t->checkpoint_due_since : step;

    if (faults_n(t->o.faults))
        faults_reach_any(t->o.faults, INJECTION_AT_CHECKPOINT, since, step);
    t->is_checkpoint_due = 0;
}

void trainer_give_up_checkpoint(struct trainer *t)
{
    int64_t step = 0;
    struct report *r;

    if (t->saver)
        (void)saver_under_way(t->saver, &step, NULL);
    if (!joint_give_up(t->joint))
        return;
    trainer_make_checkpoint_due(t, t->state->at.step);
    if (!t->saver)
        return;
    r = report_new(REPORT_WARNING, 0);
    r->warning.step = step;
    r->warning.text = xasprintf("the checkpoint of step %lld was given up, because a rank was lost "
                                "while all ranks wrote it; the ranks that form anew write another",
                                (long long)step);
    t->hooks.report(t->hooks.arg, r);
}

/* ---- between epochs, and at the end ---- */

int trainer_checkpoint(struct trainer *t, int is_last, struct report *done, struct err *err)
{
    done->checkpoint.step = t->state->at.step;
    begin_due(t, t->state->at.step);
    spike_make_due(t);
    if (!t->saver && !trainer_is_divided(t))
        return 0;
    t->hooks.at(t->hooks.arg, PHASE_CHECKPOINT, 0, t->state->at.step, -1);
    if (trainer_is_divided(t))
        return checkpoint_jointly(t, is_last, done, err);
    return is_last ? saver_save(t->saver, t->n_ranks, done, err)
                   : saver_begin(t->saver, t->n_ranks, err);
}

static void report_unsaved(struct trainer *t, const struct err *err)
{
    struct report *r = report_new(REPORT_CHECKPOINT, 0);

    r->checkpoint.step = trainer_step(t);
    r->checkpoint.error = xstrdup(err->msg);
    r->checkpoint.is_unasked = 1;
    t->hooks.report(t->hooks.arg, r);
}

void trainer_finish(struct trainer *t, int saves)
{
    struct err err;
    int wants = 0;

    if (!t->saver)
        return;
    t->hooks.at(t->hooks.arg, PHASE_CHECKPOINT, 0, trainer_step(t), -1);
    trainer_give_up_checkpoint(t);
    saver_finish(t->saver);
    if (!saves || !t->state || trainer_step(t) <= t->loaded_step)
        return;
    trainer_leave(t); /* nothing that is queued may change the state any more */
    if (trainer_is_divided(t) && saver_wants(t->saver, &wants, &err) == 0 && !wants)
        return;
    if (trainer_is_divided(t)) {
        err_set(&err, ERR_PEER,
                "the optimizer's state is divided among the ranks (strategy.zero), "
                "which are not connected any more");
        report_unsaved(t, &err);
    } else if (saver_begin_last(t->saver, t->n_ranks, &err) < 0)
        report_unsaved(t, &err);
    saver_finish(t->saver);
}

void trainer_interrupt(struct trainer *t)
{
    if (t->saver)
        saver_interrupt(t->saver);
    joint_interrupt(t->joint);
}

/* ---- inside an epoch ---- */

/* Steps do not wait for a disk that hangs, so warn the user of it. */
static void warn_slow_disk(struct trainer *t, int64_t step, double seconds)
{
    double most = 1e-3 * (double)t->job->cluster.deadlines.checkpoint_ms;
    struct report *r;

    if (step == t->warned_step || seconds < most)
        return;
    t->warned_step = step;
    r = report_new(REPORT_WARNING, 0);
    r->warning.step = step;
    r->warning.text = xasprintf("the checkpoint of step %lld has been under way for %.0f s "
                                "(cluster.deadlines.checkpoint: %g s): training goes on, newer "
                                "ones have to wait; is the disk of %s in order?",
                                (long long)step, seconds, most, t->o.run_dir);
    t->hooks.report(t->hooks.arg, r);
}

/* Rank 0's answer: a checkpoint has to wait while the one before is under way. */
static uint8_t answer_now(struct trainer *t)
{
    int64_t step;
    double seconds;

    if (!t->saver)
        return SAVE_NEVER;
    /* With own updates the ranks have just met for this checkpoint, so it cannot come later.  Nor
     * can one to which all ranks may go back, since that must not depend on the disk's speed.
     * saver_begin waits for the one under way. */
    if (reducer_promises(t->step.reducer)->updates_are_own ||
        t->job->train.on_spike == SPIKE_REWIND || !saver_under_way(t->saver, &step, &seconds))
        return SAVE_NOW;
    warn_slow_disk(t, step, seconds);
    return SAVE_LATER;
}

/* 1: the state stays as it is until the next update. */
static int state_rests(const struct trainer *t)
{
    return !backend_queues(t->backend) && reducer_promises(t->step.reducer)->state_rests;
}

/* Begin a checkpoint inside an epoch, or leave it for a later step. */
static int begin_if_idle(struct trainer *t, struct err *err)
{
    struct beginning b = {.answer = t->rank == 0 ? answer_now(t) : SAVE_LATER};
    const int64_t traced_ns = spans_begin();
    int rc = 0;

    if (trainer_is_divided(t) && checkpoint_recorded(t, begin_joint, &b, err) < 0)
        return err->code;
    if (b.answer == SAVE_LATER)
        return 0;
    t->hooks.at(t->hooks.arg, PHASE_CHECKPOINT, 0, t->state->at.step, -1);
    begin_due(t, t->state->at.step);
    if (t->saver && !trainer_is_divided(t))
        rc = state_rests(t) ? saver_begin_beside(t->saver, t->n_ranks, err)
                            : saver_begin(t->saver, t->n_ranks, err);
    spans_end(traced_ns, "copy the state", "checkpoint");
    return rc;
}

int trainer_save_if_due(struct trainer *t, const struct step_result *s, int64_t last,
                        struct err *err)
{
    int64_t every = t->job->checkpoint.every_steps, step = t->state->at.step;

    if ((every > 0 && step % every == 0) || s->control.n_checkpoint > 0)
        trainer_make_checkpoint_due(t, step);
    if (s->control.n_checkpoint > 0 && t->hooks.saved)
        t->hooks.saved(t->hooks.arg);
    if (!t->saver && !trainer_is_divided(t)) { /* rank 0 writes it, now or later, by itself */
        if (t->is_checkpoint_due && step != last)
            begin_due(t, step);
        return 0;
    }
    if (t->step.n_flights > 0)
        return 0;
    if (joint_is_under_way(t->joint)) {
        if (t->rank == 0 && t->is_checkpoint_due)
            (void)answer_now(t); /* a slow disk is told */
        return checkpoint_recorded(t, poll_joint, NULL, err);
    }
    return t->is_checkpoint_due && step != last ? begin_if_idle(t, err) : 0;
}
