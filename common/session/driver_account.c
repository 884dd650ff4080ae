/* The account of the wall time, fed by what happens to the job (account.h).
 *
 * Until the first step of this process has ended, the time is that of the start, apart from the
 * time in which rank 0 was ready and waited for followers.  From the moment at which a loss is
 * known until the end of the next step, it is lost: as the `seconds` of the event `recovered`. Else
 * it goes to what the stage is for. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
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

/* A rank that was silent for three heartbeats does not tell of a counter any more that another rank
 * reads, too. */
void ledger_init(struct driver *d)
{
    account_init(&d->account, &d->o.led.account, d->o.start_ns);
    energy_init(&d->watch.energy, &d->o.led.energy, d->n_seats, 3 * d->beat_ms * 1000000);
    d->epoch = xcalloc(1, sizeof *d->epoch);
    d->epoch->energy = d->o.led.energy;
    d->epoch->cost = ledger_cost(d, &d->account.times);
}

void ledger_fini(struct driver *d)
{
    energy_fini(&d->watch.energy);
    free(d->epoch);
}

void ledger_write(const struct driver *d, Wire__Heartbeat *h, int64_t account[ACCOUNT_NUMBERS])
{
    struct account_times t = account_at(&d->account, d->now_ns);
    account_write(&t, max_i64(d->run.step, d->seats[0].at.step), account);
    h->n_account = ACCOUNT_NUMBERS;
    h->account = account;
    h->package_mj = d->watch.energy.sums.mj[ENERGY_PACKAGE];
    h->gpu_mj = d->watch.energy.sums.mj[ENERGY_GPU];
}

void ledger_stamp(const struct driver *d, struct session_event *ev)
{
    ev->account = account_at(&d->account, d->now_ns);
    ev->cost = ledger_cost(d, &ev->account);
    ev->energy = d->watch.energy.sums;
    if (ev->kind != EVENT_EPOCH)
        return;
    ev->epoch_cost = ev->cost - d->epoch->cost;
    ev->epoch_energy = energy_since(&ev->energy, &d->epoch->energy);
    *d->epoch = (struct ledger_mark){ev->cost, ev->energy};
}

/* Of the ranks that have told what they use, and should have such a counter, which a rank without a
 * GPU should not: all, or those of whose counter nothing is known. */
static int ledger_n_ranks(const struct driver *d, enum energy_kind kind, int is_missing)
{
    int n = 0;
    for (int k = 0; k < d->membership.n_ranks; k++)
        n += d->seats[k].used.resident_kib > 0 && (kind == ENERGY_PACKAGE || d->seats[k].gpu) &&
             (!is_missing || !watch_is_metered(d, k, kind));
    return n;
}

/* The reason is that of rank 0's machine, and is told if no machine has a counter: most are alike.
 */
static char *ledger_no_packages(const struct driver *d)
{
    const int n = ledger_n_ranks(d, ENERGY_PACKAGE, 0),
              missing = ledger_n_ranks(d, ENERGY_PACKAGE, 1);
    if (missing == 0)
        return NULL;
    if (missing == n && d->o.no_energy)
        return xstrdup(d->o.no_energy);
    return xasprintf("no counter of packages for %d of %d ranks", missing, n);
}

char *ledger_no_energy(const struct driver *d)
{
    const int n_gpus = ledger_n_ranks(d, ENERGY_GPU, 0), missing = ledger_n_ranks(d, ENERGY_GPU, 1);
    char *packages = ledger_no_packages(d), *both;
    if (missing == 0)
        return packages;
    both = xasprintf("no counter of GPUs for %d of %d ranks%s%s", missing, n_gpus,
                     packages ? "; " : "", packages ? packages : "");
    free(packages);
    return both;
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
