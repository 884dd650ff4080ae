/* Asserts on the driver's state as a whole.
 *
 * A machine asserts what it needs where it needs it.  Here is what holds between machines, and
 * would break far from its cause: driver_check at both ends of each event, at no cost that grows
 * with the ranks; driver_check_ranks whenever a command goes to all of them. */
#include "base/util.h"
#include "session/driver_impl.h"

static int is_formed_stage(enum stage s) { return s >= STAGE_TRAIN && s < STAGE_ENDING; }

static void check_membership(const struct driver *d)
{
    const struct membership *m = &d->membership;
    ASSERT(m->n_ranks >= 1 && m->n_ranks <= m->n_seats);
    ASSERT(m->n_here >= 1 && m->n_here <= m->n_ranks);
    ASSERT(m->free_from >= 1);
    ASSERT(d->seats == m->seats && d->n_seats == m->n_seats);
    ASSERT(d->seats[0].is_taken && !d->seats[0].conn);
    ASSERT(d->stage != STAGE_GATHER || m->gather.full_ms < 0 || m->n_here == m->n_ranks);
    ASSERT(m->strangers.n_said >= 0 && m->strangers.n_unsaid >= 0);
}

static void check_succession(const struct driver *d)
{
    const struct succession *s = &d->membership.succession;
    ASSERT(s->n >= 0 && s->n <= MOST_FORMATIONS);
    ASSERT(!s->conn || d->stage >= STAGE_ENDING || s->conn->state == CONN_STANDBY);
    ASSERT(!s->conn || (s->id[0] && s->told));
    ASSERT(!s->is_elected || d->o.standby_id);
    ASSERT(s->next.generation <= d->formation.generation);
}

static void check_formation(const struct driver *d)
{
    const struct formation *f = &d->formation;
    ASSERT(f->generation >= d->o.led.generation);
    ASSERT(f->n_answers >= 0 && f->n_answers <= d->membership.n_ranks);
    ASSERT(!f->has_formed || f->generation >= 1);
    ASSERT(f->recovery.n_fruitless >= 0 && f->recovery.n_fruitless_at[0] >= 0);
    ASSERT(f->recovery.resume >= STAGE_TRAIN && f->recovery.resume <= STAGE_CHECKPOINT);
    ASSERT(d->stage != STAGE_WAIT || f->recovery.settled_ms <= f->recovery.latest_ms);
    ASSERT(f->recovery.since_ns == 0 || !f->recovery.source || !d->membership.lead.is_taking_over);
}

static void check_run_stage(const struct driver *d)
{
    const struct run *r = &d->run;
    ASSERT(r->step >= 0 && r->epoch >= 0);
    ASSERT(r->saved_step < 0 || r->saved_path);
    ASSERT(d->stage != STAGE_TRAIN || r->is_epoch_open);
    ASSERT(!is_formed_stage(d->stage) || r->steps_per_epoch > 0);
    ASSERT(!r->last.figures || r->last.figures == r->figures);
    ASSERT(!r->is_first_step_said || r->first_step_s >= 0);
}

static void check_watch(const struct driver *d)
{
    const struct watch *w = &d->watch;
    ASSERT(w->n_incidents >= 0);
    ASSERT(!w->incident || w->incident->number == w->n_incidents);
    ASSERT(!w->incident || w->incident->generation <= d->formation.generation);
    ASSERT(w->pace_generation <= d->formation.generation);
}

static void check_ending(const struct driver *d)
{
    const struct ending *e = &d->ending;
    ASSERT(!e->n_stops == !e->stop_why);
    ASSERT(!e->hands_over || e->n_stops == 0);
    ASSERT((d->stage >= STAGE_ENDING) == (e->text != NULL));
    ASSERT(!e->is_deposed || e->is_silent);
    ASSERT(!e->is_silent || d->stage >= STAGE_ENDING);
    ASSERT(!e->pending.text || e->pending.is_consequence);
    ASSERT(d->stage != STAGE_OVER || d->membership.conns.n == 0);
}

void driver_check(const struct driver *d)
{
    ASSERT(d->stage < STAGE_COUNT);
    ASSERT(d->unsent->code == 0);
    /* A stage that all have answered is over, unless the standby has yet to acknowledge it. */
    ASSERT(d->stage < STAGE_FORM || d->stage >= STAGE_ENDING ||
           d->formation.n_answers < d->membership.n_ranks);
    ASSERT(!is_formed_stage(d->stage) || d->formation.has_formed);
    check_membership(d);
    check_succession(d);
    check_formation(d);
    check_run_stage(d);
    check_watch(d);
    account_check(&d->account);
    check_ending(d);
}

static void session_check_rank(const struct driver *d, int rank)
{
    const struct seat *s = &d->seats[rank];
    ASSERT(s->is_taken && s->is_member && s->opened && s->host);
    ASSERT(!s->answer);
    ASSERT((rank == 0) == !s->conn);
    ASSERT(rank == 0 || (s->conn->state == CONN_MEMBER && s->conn->rank == rank));
    ASSERT(s->named == seat_name(d, rank) || d->stage != STAGE_PREPARE || rank == 0);
    ASSERT(!s->is_drained || s->leaving);
}

static void check_spare(const struct driver *d, int seat)
{
    const struct seat *s = &d->seats[seat];
    if (s->is_taken) {
        ASSERT(s->conn && s->conn->rank == seat && s->conn->state == CONN_MEMBER);
        ASSERT(s->host && s->device);
        ASSERT(!s->is_member && !s->leaving);
    } else {
        ASSERT(!s->conn && !s->host && !s->opened && !s->answer);
        ASSERT(!s->is_member && !s->is_said && !s->votes_in);
    }
}

void driver_check_ranks(const struct driver *d)
{
    int n_here = 0;
    ASSERT(d->stage >= STAGE_PREPARE && d->stage < STAGE_ENDING);
    ASSERT(d->formation.generation >= 1 && d->formation.n_answers == 0);
    for (int k = 0; k < d->membership.n_ranks; k++) {
        session_check_rank(d, k);
        n_here += d->seats[k].is_taken;
    }
    for (int k = d->membership.n_ranks; k < d->n_seats; k++)
        check_spare(d, k);
    ASSERT(n_here == d->membership.n_here && n_here == d->membership.n_ranks);
}
