/* spike - train.on_spike: steps whose loss is far above those before.
 *
 * A step's loss is the mean over the global batch, which all ranks read in the control vector, so
 * all decide alike without a message.  The losses of the last CKPT_RECENT steps are part of the
 * position (ckpt_state): they are saved, resumed and broadcast, and so are the decisions.  A spike
 * enters them as the limit that it exceeded: one odd step hardly changes the mean, and a loss that
 * stays higher is soon no spike any more.
 *
 * Going back, all ranks take the state of the newest checkpoint, but not its position: the samples
 * of the steps since then are left out, as Chowdhery and others did (2022, "PaLM", section 5.1).
 * The losses are those of the checkpoint, too, since the next ones are to be like them.  Only
 * planned checkpoints count (ckpt/plan.h): those of a stop or of an operator would make a resumed
 * run, or one that is computed again, go back elsewhere.  The newest planned one is kept beyond
 * checkpoint.keep.
 *
 * On CPUs the spike's own update is left out in any case.  So if a rank is lost while all go back,
 * each other rank holds either the state before the step, and makes it again, or as rank 0 the
 * state after going back, which is newer, so that all take it. */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "train/trainer_impl.h"

enum { SPIKE_LEAST = 32 }; /* steps before any is judged */

/* A deviation below this part of the mean is taken as that part: where losses hardly change, each
 * change would be a spike. */
static const double spike_least_deviation = 0.01;
static const char *const spike_words[] = {SPIKE_LIST(WORD_NAME)};

int spike_check(const struct trainer *t, struct err *err)
{
    const enum spike on_spike = t->job->train.on_spike;
    const struct strategy_promises *p = &trainer_strategy(t)->promises;

    if (on_spike == SPIKE_SKIP && t->o.plugin)
        return err_set(err, ERR_CONFIG,
                       "train.on_spike is skip, but a GPU makes the update before the host knows "
                       "the loss; want rewind, warn or none");
    if (on_spike == SPIKE_REWIND &&
        (p->n_holders > 0 || !p->replicas_are_equal || p->updates_are_own))
        return err_set(err, ERR_CONFIG,
                       "train.on_spike is rewind, which needs the whole state on each rank, and "
                       "with this strategy a rank has a part of it or its own; want warn, none, or "
                       "strategy.name allreduce without strategy.zero");
    return 0;
}

struct spike_course { /* of the losses before a step */
    double mean, deviation;
};

static struct spike_course spike_course(const struct ckpt_state *at)
{
    const double n = (double)at->n_recent;
    struct spike_course c = {0, 0};

    for (int64_t i = 0; i < at->n_recent; i++)
        c.mean += at->recent_loss[i] / n;
    for (int64_t i = 0; i < at->n_recent; i++)
        c.deviation += (at->recent_loss[i] - c.mean) * (at->recent_loss[i] - c.mean) / n;
    c.deviation = fmax(sqrt(c.deviation), spike_least_deviation * fabs(c.mean));
    return c;
}

double spike_limit(const struct trainer *t)
{
    const struct spike_course c = spike_course(&t->state->at);

    return t->state->at.n_recent < SPIKE_LEAST
               ? HUGE_VAL
               : c.mean + t->job->train.spike_deviations * c.deviation;
}

static void spike_remember(struct ckpt_state *at, double loss)
{
    if (at->n_recent == CKPT_RECENT)
        memmove(at->recent_loss, at->recent_loss + 1,
                (size_t)--at->n_recent * sizeof *at->recent_loss);
    at->recent_loss[at->n_recent++] = loss;
}

/* Rank 0 tells of the spike of the step; back_to: -1: the job does not go back. */
static void spike_tell(struct trainer *t, const struct spike_told *told, int64_t back_to)
{
    struct report *r;

    if (t->rank != 0)
        return;
    r = report_new(REPORT_SPIKE, 0);
    r->spike = *told;
    r->spike.back_to = back_to;
    t->hooks.report(t->hooks.arg, r);
}

int spike_judge(struct trainer *t, struct step_result *s)
{
    const enum spike on_spike = t->job->train.on_spike;
    struct ckpt_state *at = &t->state->at;
    const double loss = control_mean_loss(s->control.loss, control_weight_kept(s->control.weight));
    double limit;
    struct spike_course c;

    if (on_spike == SPIKE_NONE || isnan(loss) || (!s->applied && !s->is_spike))
        return 0;
    limit = spike_limit(t);
    c = spike_course(at);
    if (on_spike >= SPIKE_SKIP && !t->o.plugin ? !s->is_spike : !(loss > limit)) {
        if (isfinite(loss))
            spike_remember(at, loss);
        return 0;
    }
    t->spike_at = *at;
    t->spike = (struct spike_told){.step = at->step,
                                   .loss = loss,
                                   .mean = c.mean,
                                   .deviation = c.deviation,
                                   .action = spike_words[on_spike]};
    spike_remember(at, limit);
    if (on_spike != SPIKE_REWIND) {
        spike_tell(t, &t->spike, -1);
        return 0;
    }
    s->applied = 0;
    s->is_spike = 1;
    return 1;
}

/* The position after going back from `here`: that of `here`, with the sums of the checkpoint as far
 * as they are of the same epoch. */
static void spike_go_on(struct ckpt_state *at, const struct ckpt_state *here)
{
    const struct ckpt_state then = *at;
    const int64_t begun = (here->step - 1) / here->steps_per_epoch * here->steps_per_epoch;

    *at = *here;
    at->n_updates = then.n_updates;
    at->average_first = then.average_first;
    at->n_recent = then.n_recent;
    memcpy(at->recent_loss, then.recent_loss, sizeof at->recent_loss);
    at->epoch_loss = at->epoch_correct = at->epoch_targets = at->epoch_samples = 0;
    at->epoch_weight = 0;
    at->epoch_skipped = here->step - max_i64(begun, then.step);
    if (then.step <= begun)
        return;
    at->epoch_loss = then.epoch_loss;
    at->epoch_correct = then.epoch_correct;
    at->epoch_targets = then.epoch_targets;
    at->epoch_samples = then.epoch_samples;
    at->epoch_weight = then.epoch_weight;
    at->epoch_skipped += then.epoch_skipped;
}

void spike_make_due(struct trainer *t)
{
    const int64_t next = t->state->at.step + 1;

    if (ckpt_plan_newest(&t->state->plan, next) == next)
        trainer_make_checkpoint_due(t, next);
}

int spike_rewind(struct trainer *t, struct err *err)
{
    const struct ckpt_state here = t->state->at;
    int64_t back_to = ckpt_plan_newest(&t->state->plan, t->spike.step);
    int is_loaded, rc = trainer_go_back(t, back_to, &is_loaded, err);

    if (rc < 0 && !is_loaded) {
        t->state->at = t->o.plugin ? here : t->spike_at;
        return err_wrap(err, "going back after a spike of the loss in step %lld",
                        (long long)t->spike.step);
    }
    back_to = t->state->at.step;
    spike_go_on(&t->state->at, &here);
    spike_tell(t, &t->spike, back_to);
    if (rc == 0)
        t->met_step = t->state->at.step;
    return rc;
}
