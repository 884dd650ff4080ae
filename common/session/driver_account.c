/* The account of the wall time, fed by what happens to the job (account.h).
 *
 * Until the first step of this process has ended, the time is that of the start, apart from the
 * time in which rank 0 was ready and waited for followers.  From the moment at which a loss is
 * known until the end of the next step, it is lost: as the `seconds` of the event `recovered`. Else
 * it goes to what the stage is for. */
#include <math.h>

#include "base/util.h"
#include "session/driver_impl.h"

static enum account_kind account_kind_of(const struct driver *d)
{
    const int has_stepped = d->run.first_step_s >= 0;
    switch (d->stage) {
    case STAGE_VALIDATE:
        return ACCOUNT_VALIDATION;
    case STAGE_CHECKPOINT:
        return ACCOUNT_CHECKPOINT;
    case STAGE_ENDING:
    case STAGE_OVER:
        return ACCOUNT_WAITING;
    default:
        break;
    }
    if (d->formation.recovery.since_ns)
        return ACCOUNT_LOST;
    if (d->stage == STAGE_TRAIN)
        return has_stepped ? ACCOUNT_PRODUCTIVE : ACCOUNT_START;
    if (d->stage == STAGE_GATHER)
        return d->seats[0].opened ? ACCOUNT_WAITING : ACCOUNT_START;
    return has_stepped ? ACCOUNT_WAITING : ACCOUNT_START;
}

void ledger_init(struct driver *d) { account_init(&d->account, &d->o.led.account, d->o.start_ns); }

void ledger_write(const struct driver *d, int64_t out[ACCOUNT_NUMBERS])
{
    struct account_times t = account_at(&d->account, d->now_ns);
    account_write(&t, max_i64(d->run.step, d->seats[0].at.step), out);
}

void ledger_note_ranks(struct driver *d)
{
    account_ranks(&d->account, d->now_ns, d->stage < STAGE_OVER ? d->membership.n_here : 0);
}

double ledger_cost(const struct driver *d, const struct account_times *t)
{
    return d->o.price_per_rank_hour * account_rank_hours(t);
}

/* train.early_stop may end the run before; the price forecast is that of all epochs. */
double ledger_forecast(const struct driver *d, const struct account_times *t)
{
    int64_t all = d->o.n_epochs * d->run.steps_per_epoch;
    int64_t done = max_i64(d->run.step, d->seats[0].at.step);
    if (d->o.max_steps > 0)
        all = min_i64(all, d->o.max_steps);
    if (d->stage >= STAGE_ENDING)
        all = done;
    return fmax(0, d->o.price_per_rank_hour * account_forecast(t, done, all - done));
}

void ledger_turn(struct driver *d)
{
    account_turn(&d->account, d->now_ns, account_kind_of(d));
    if (d->stage == STAGE_TRAIN)
        account_begin_share(&d->account, d->now_ns);
}

void ledger_moved(struct driver *d, const struct progress *p)
{
    if (d->stage == STAGE_TRAIN && d->account.now == ACCOUNT_PRODUCTIVE &&
        p->generation == d->formation.generation && p->step > 0)
        account_step(&d->account, d->now_ns, p->step);
}

void ledger_stepped(struct driver *d, const struct report *step)
{
    if (d->stage != STAGE_TRAIN)
        return;
    account_turn(&d->account, d->now_ns, account_kind_of(d));
    account_step(&d->account, d->now_ns, step->step.step);
    account_wait(&d->account, d->now_ns, step->step.data_wait_share);
}

void ledger_trained(struct driver *d)
{
    const struct report *own = d->seats[0].answer;
    double share = 0;
    ASSERT(d->stage == STAGE_TRAIN && own->kind == REPORT_EPOCH);
    for (int k = 0; k < d->membership.n_ranks; k++)
        if (d->seats[k].answer->epoch.data_wait_share > share)
            share = d->seats[k].answer->epoch.data_wait_share;
    account_turn(&d->account, d->now_ns, ACCOUNT_PRODUCTIVE);
    account_step(&d->account, d->now_ns, own->epoch.step);
    account_wait(&d->account, d->now_ns, share);
}

void ledger_formed(struct driver *d)
{
    const struct recovery *r = &d->formation.recovery;
    int64_t n_lost = 0;
    ASSERT(d->stage == STAGE_FORM);
    if (r->since_ns)
        n_lost = max_i64(r->is_midstep, r->newest_step - d->run.step);
    else if (!d->formation.has_formed)
        n_lost = d->o.led.step - d->run.step;
    account_back(&d->account, d->run.step, n_lost);
}

/* The engine stood still for it in the middle of training. */
void ledger_saved(struct driver *d, const struct report *r)
{
    if (d->stage == STAGE_TRAIN && d->account.now == ACCOUNT_PRODUCTIVE && !r->checkpoint.error)
        account_halt(&d->account, d->now_ns, (int64_t)(1e9 * r->checkpoint.exposed_seconds));
}
