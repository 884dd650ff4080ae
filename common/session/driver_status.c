/* Makes the live table of ranks (session/status.h) for --status and SIGUSR1.
 * It changes nothing. */
#include "session/status.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

const char *status_role_name(enum status_role role)
{
    static const char *const names[] = {
        [STATUS_MEMBER] = "member", [STATUS_JOINING] = "joining", [STATUS_READY] = "ready",
        [STATUS_SPARE] = "spare",   [STATUS_LEAVING] = "leaving", [STATUS_MISSING] = "missing",
    };
    return names[role];
}

static enum status_role role_of(const struct driver *d, int seat)
{
    const struct seat *s = &d->seats[seat];
    if (!s->is_taken)
        return STATUS_MISSING;
    if (s->leaving)
        return STATUS_LEAVING;
    if (seat >= d->membership.n_ranks)
        return s->opened ? STATUS_SPARE : STATUS_JOINING;
    if (s->is_member)
        return STATUS_MEMBER;
    return s->opened ? STATUS_READY : STATUS_JOINING;
}

static void status_fill(const struct driver *d, int64_t now_ms, int seat, struct status_rank *r)
{
    const struct seat *s = &d->seats[seat];
    *r = (struct status_rank){
        .rank = seat < d->membership.n_ranks ? seat : -1,
        .spare = seat < d->membership.n_ranks ? 0 : seat - d->membership.n_ranks + 1,
        .role = role_of(d, seat)};
    if (r->role == STATUS_MISSING)
        return;
    r->host = s->host;
    r->device = seat == 0 ? d->o.device : s->device;
    r->pid = s->pid;
    r->is_here = seat_is_here(d, s);
    r->phase = s->at.phase;
    r->step = s->at.step;
    r->bucket = s->at.phase == PHASE_BACKWARD || s->at.phase == PHASE_REDUCE ? s->at.bucket : -1;
    r->generation = s->at.generation;
    r->phase_s = 1e-3 * (double)max_i64(0, now_ms - s->since_ms);
    r->heard_s = seat > 0 ? 1e-3 * (double)max_i64(0, now_ms - s->heard_ms) : 0;
    r->step_ms = s->pace.step_ms;
    r->factor = s->pace.factor;
    r->is_straggler = s->pace.is_slow;
    r->usage = s->used;
    for (int i = 0; i < ENERGY_KINDS; i++)
        r->energy.mj[i] = s->energy.of[i].told_mj;
}

static void status_fill_account(const struct driver *d, int64_t now_ns, struct status *out)
{
    out->account = account_at(&d->account, now_ns);
    out->cost = ledger_cost(d, &out->account);
    out->cost_forecast = ledger_forecast(d, &out->account);
    out->energy = d->watch.energy.sums;
}

void driver_summary(const struct driver *d, int64_t now_ns, struct status *out)
{
    int64_t now_ms = (now_ns - d->clock.stalled_ns) / 1000000;
    *out = (struct status){
        .stage = stage_name(d->stage),
        .stage_s = 1e-3 * (double)(now_ms - d->stage_ms),
        .generation = d->formation.generation,
        .epoch = d->run.epoch,
        .step = max_i64(d->run.step, d->seats[0].at.step),
        .n_ranks = d->membership.n_ranks,
        .n_here = d->membership.n_here,
        .data_wait_share = d->run.data_wait_share,
        .data_wait_cause = d->run.data_wait_cause,
        .standby = d->membership.succession.conn ? d->membership.succession.told : NULL,
        .standby_votes = succession_votes(d),
        .name = d->o.name,
        .run_dir = d->o.run_dir,
        .latest = *d->latest,
        .step_age_s = d->latest->step_ns ? 1e-9 * (double)(now_ns - d->latest->step_ns) : -1,
        .eta_s = latest_eta_s(d->latest, now_ns),
        .n_incidents = d->watch.n_incidents - (d->watch.incident ? 1 : 0),
    };
    status_fill_account(d, now_ns, out);
}

void driver_status(const struct driver *d, int64_t now_ns, struct status *out)
{
    int64_t now_ms = (now_ns - d->clock.stalled_ns) / 1000000;
    driver_summary(d, now_ns, out);
    out->no_energy = ledger_no_energy(d);
    out->rank = xcalloc((size_t)d->n_seats, sizeof(struct status_rank));
    for (int k = 0; k < d->n_seats; k++)
        if (k < d->membership.n_ranks || d->seats[k].is_taken)
            status_fill(d, now_ms, k, &out->rank[out->n++]);
}

void status_fini(struct status *s)
{
    free(s->rank);
    free(s->no_energy);
    s->no_energy = NULL;
    s->rank = NULL;
    s->n = 0;
}
