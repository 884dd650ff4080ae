/* Going on with a run that another driver led.
 *
 * A driver with --resume opens the newest checkpoint and gathers.  Followers that lost the driver
 * before come with the state that they kept; their Hello names the run and the step.  The formation
 * takes the newest state that any rank holds, as after every loss.  So the checkpoint is used only
 * if no follower kept a newer state.  The event `recovered` says which of the two it was.
 *
 * The step held says how to go on.  In the middle of an epoch, the rest of this epoch is trained;
 * the epoch's sums are part of the state.  If the state is that of an epoch's last step, and newer
 * than the checkpoint, the driver before may have died anywhere between that step and the
 * checkpoint.  So the epoch is ended again (its report, validation, checkpoint), but its line is
 * not written again if events.jsonl has it.  An epoch whose line lacks a validation that was due is
 * also ended again, and its line is written with the validation.
 *
 * Each driver that leads a run has a higher term than the one before.  A follower sends the highest
 * term that it has obeyed.  A driver with a lower term has been replaced, and ends (end_deposed).
 *
 * If not all ranks come within cluster.driver_timeout, the run goes on with cluster.min_ranks of
 * them.  A driver goes on alone only if that is 1.
 *
 * The driver before may have died after the last checkpoint, and before it told its followers that
 * the job is finished.  Then events.jsonl has no `done` after the last formation.  The followers
 * look for a driver, so this driver waits for them and tells them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

/* ---- Hello ---- */

/* 1: the follower's engine opened the same job as this driver has. */
static int has_same_job(const struct driver *d, const Wire__Hello *h)
{
    char text[HASH_TEXT_LEN];
    hash_to_text(hash_of(d->o.job, d->o.job_len), text);
    return !strcmp(h->run_job, text);
}

/* The reason why the state that the follower kept cannot be used, or NULL. */
static const char *why_stale(const struct driver *d, const Wire__Hello *h)
{
    if (!d->o.run || strcmp(h->run, d->o.run) != 0)
        return "it kept the state of another run";
    if (!has_same_job(d, h))
        return "it kept the state of this run with other options of the job, under which only a "
               "checkpoint can go on";
    if (h->formed > d->formation.generation && d->stage != STAGE_GATHER)
        return "it was in a formation that this driver does not know";
    return NULL;
}

/* 1: the follower has obeyed a driver that led this run after this one. */
static int is_of_later_leader(const struct driver *d, const Wire__Hello *h)
{
    return d->o.run && !strcmp(h->run, d->o.run) && h->term > d->o.term;
}

int lead_hears(struct membership *m, struct conn *c, const Wire__Hello *h, struct decision *out)
{
    const struct driver *d = m->d;
    if (is_of_later_leader(d, h)) {
        char *by = xasprintf("another driver leads this run: the one at %s, with term %lld, while "
                             "this one has %lld; so says the %s on %s",
                             h->leader, (long long)h->term, (long long)d->o.term,
                             *h->standby ? "standby" : "follower", h->host);
        *out = (struct decision){.kind = DECIDE_DEPOSED, .text = by};
        return 0;
    }
    const char *why = *h->run ? why_stale(d, h) : NULL;
    if (!why)
        return 1;
    gather_refuse(m, c, WIRE__REASON__REASON_STALE, why);
    return 0;
}

/* Generations go on from the newest that any rank has seen, because a rank takes no older Prepare
 * (DECIDE_JOINED). */
void lead_seated(struct membership *m, int rank, const Wire__Hello *h)
{
    struct seat *s = &m->seats[rank];
    ASSERT(rank > 0 && s->is_taken);
    s->kept = -1;
    if (!*h->run)
        return;
    s->has_state = 1;
    s->kept = h->step;
    m->lead.newest = max_i64(m->lead.newest, h->step + h->in_step);
    succession_seated(m, rank, h);
}

/* ---- forming ---- */

int lead_may_begin(const struct driver *d)
{
    if (succession_all_are_here(d) && d->seats[0].opened)
        return 1;
    return d->membership.lead.is_taking_over && d->o.cluster.min_ranks > 0 &&
           d->o.cluster.driver_timeout_ms > 0 && d->seats[0].opened &&
           d->now_ms - d->stage_ms >= d->o.cluster.driver_timeout_ms &&
           recover_n_ready(d) >= recover_min_ranks(d);
}

/* The newest step that a rank with state can hold. */
static int64_t newest_possible(const struct driver *d)
{
    int64_t steps = d->run.steps_per_epoch, all = d->o.n_epochs * steps;
    if (d->o.max_steps > 0)
        all = min_i64(all, d->o.max_steps);
    if (d->formation.has_formed)
        all = min_i64(all, max_i64(d->run.step, d->run.epoch * steps));
    return max_i64(all, d->run.step);
}

struct decision lead_check_claims(struct membership *m)
{
    const struct driver *d = m->d;
    ASSERT(d->stage == STAGE_PREPARE && d->formation.n_answers == m->n_ranks);
    for (int k = 1; k < m->n_ranks; k++) {
        int64_t step = d->seats[k].answer->prepared.step;
        int64_t most = d->seats[k].has_state ? newest_possible(d) : 0;
        if (step > most)
            return decide_misbehaved(k, "it claims to hold step %lld, want at most %lld",
                                     (long long)step, (long long)most);
    }
    for (int k = 0; k < m->n_ranks; k++)
        m->seats[k].has_state = 1; /* it may hold it from Form on, even if it never answers */
    return decide(DECIDE_NOTHING);
}

/* 1: the epoch's line lacks a validation that was due.  If a job was given up during a validation,
 * the line has none.  A job's last step is always validated.  Another line inside an epoch is that
 * of a stop, which validates nothing. */
static int lacks_validation(const struct driver *d, int64_t step)
{
    int64_t every = d->o.validate_every, steps = d->run.steps_per_epoch;
    int is_due = every > 0 && d->seats[0].opened->opened.n_validation > 0 &&
                 (step == d->o.max_steps || step == d->o.n_epochs * steps ||
                  (step % steps == 0 && step / steps % every == 0));
    ASSERT(steps > 0 && d->seats[0].opened);
    return is_due && d->o.led.epoch_step == step && d->o.led.validated_step < step;
}

int lead_lacks_validation(const struct driver *d)
{
    return d->membership.lead.is_taking_over && lacks_validation(d, d->run.step);
}

/* 1: the state is one that followers kept.  0: rank 0 loaded it from a checkpoint, as it opened or
 * because the followers' divided state was not whole. */
static int is_of_followers(const struct driver *d)
{
    return d->run.step > d->seats[0].opened->opened.step &&
           !d->seats[0].answer->formed.from_checkpoint;
}

const char *lead_source(const struct driver *d)
{
    return is_of_followers(d) ? "followers" : "checkpoint";
}

int64_t lead_newest(const struct driver *d)
{
    return max_i64(d->membership.lead.newest, is_of_followers(d) ? 0 : d->o.led.step);
}

int lead_ends_epoch_again(const struct driver *d)
{
    int64_t step = d->run.step;
    return step % d->run.steps_per_epoch == 0 && (is_of_followers(d) || lacks_validation(d, step));
}

int lead_formed(struct membership *m)
{
    const struct driver *d = m->d;
    ASSERT(d->stage == STAGE_FORM && d->run.steps_per_epoch > 0);
    if (!m->lead.is_taking_over)
        return 0;
    m->lead.is_taking_over = 0;
    if (d->run.step > 0 && !lacks_validation(d, d->run.step))
        m->lead.told_step = min_i64(d->o.led.epoch_step, d->run.step);
    return d->run.step != 0;
}

/* ---- a finished job ---- */

/* The job is finished, or is where train.stop_after stops it.  The text names the limits that were
 * reached, because to train longer all of them must be raised. */
static struct decision lead_finish(const struct driver *d)
{
    if (!run_nothing_to_do(d, d->run.step))
        return run_stop_again(d);
    int64_t spe = d->run.steps_per_epoch, step = d->run.step, epochs = d->o.n_epochs;
    int is_past_epochs = step / spe >= epochs;
    char by_epochs[96] = "", by_steps[64] = "", what[224];
    ASSERT(spe > 0 && run_nothing_to_do(d, step));
    if (is_past_epochs)
        snprintf(by_epochs, sizeof by_epochs, "train.epochs is %lld (of %lld steps each)",
                 (long long)epochs, (long long)spe);
    if (d->o.max_steps > 0 && step >= d->o.max_steps)
        snprintf(by_steps, sizeof by_steps, "train.max_steps is %lld", (long long)d->o.max_steps);
    if (d->run.stops_early)
        snprintf(what, sizeof what,
                 "train.early_stop ended the run there; a new run can begin with its weights "
                 "(model.init.name=file)");
    else
        snprintf(what, sizeof what, "%s%s%s; raise %s to go on", by_epochs,
                 *by_epochs && *by_steps ? ", and " : "", by_steps,
                 *by_epochs && *by_steps ? "both" : "it");
    return decide_finished(
        &(struct session_event){.kind = EVENT_DONE,
                                .rank = -1,
                                .step = step,
                                .phase = PHASE_COUNT,
                                .done = {.reason = run_reason(d),
                                         .seconds = 1e-9 * (double)(d->now_ns - d->o.start_ns)}},
        "nothing to do: %lld steps are done, and %s", (long long)step, what);
}

/* The time in which followers come that were not told of the job's end.  Each notices within the
 * heartbeat's timeout that its driver is gone, and then dials at least every two seconds. */
static int64_t release_ms(const struct driver *d)
{
    enum { DIAL_MS = 2000 };
    int is_told = d->o.led.is_done || d->o.led.generation == 0;
    int has_followers = d->membership.lead.is_taking_over && d->o.n_ranks > 1 && d->o.run;
    if (!has_followers || is_told)
        return 0;
    return min_i64(min_i64(d->timeout_ms + DIAL_MS, d->o.cluster.driver_timeout_ms),
                   d->o.cluster.deadlines.gather_ms);
}

struct decision lead_nothing_to_do(struct membership *m)
{
    const struct driver *d = m->d;
    int64_t ms = release_ms(d);
    ASSERT(d->stage == STAGE_GATHER && m->lead.release_ms == 0);
    if (ms == 0)
        return lead_finish(d);
    m->lead.release_ms = d->now_ms + ms;
    queue_log(d->out, LOG_INFO,
              "the job has ended, and its driver before may not have told its followers: waiting "
              "up to %g s for them",
              1e-3 * (double)ms);
    return decide(DECIDE_NOTHING);
}

struct decision lead_releases(struct membership *m)
{
    const struct driver *d = m->d;
    ASSERT(d->stage == STAGE_GATHER && m->lead.release_ms > 0);
    if (d->now_ms >= m->lead.release_ms || (m->n_here == m->n_ranks && succession_is_here(d)))
        return lead_finish(d);
    return decide(DECIDE_NOTHING);
}

struct decision lead_release_now(struct membership *m)
{
    ASSERT(m->d->stage == STAGE_GATHER && m->lead.release_ms > 0);
    m->lead.release_ms = m->d->now_ms;
    return lead_finish(m->d);
}
