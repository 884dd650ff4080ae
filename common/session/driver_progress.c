/* Progress: notes where each rank is, by its heartbeats and answers, and by the commands that it
 * gets.  driver_watch.c and driver_deadline.c draw the conclusions. */
#include <string.h>

#include "base/hash.h"
#include "base/util.h"
#include "session/driver_impl.h"

void watch_begin(struct watch *w, enum phase phase)
{
    ASSERT(phase < PHASE_COUNT);
    for (int k = 0; k < w->d->membership.n_ranks; k++) {
        struct seat *s = &w->seats[k];
        s->moved_ms = s->since_ms = w->d->now_ms;
        s->at.phase = phase; /* until the rank sends something newer */
    }
}

void watch_at_step(struct watch *w, int64_t step)
{
    ASSERT(step >= 0 && w->d->stage == STAGE_TRAIN);
    for (int k = 0; k < w->d->membership.n_ranks; k++)
        w->seats[k].at.step = step;
}

void watch_joined(struct watch *w, int rank)
{
    struct seat *s = &w->seats[rank];
    s->heard_ms = s->moved_ms = w->d->now_ms;
    s->at.phase = PHASE_OPEN;
}

void watch_heard(struct watch *w, int rank) { w->seats[rank].heard_ms = w->d->now_ms; }

void watch_in_phase(struct watch *w, int rank, enum phase phase)
{
    ASSERT(phase < PHASE_COUNT && w->seats[rank].is_taken);
    w->seats[rank].at.phase = phase;
}

void watch_since(struct watch *w, int rank, int64_t since_ms)
{
    w->seats[rank].since_ms = since_ms;
}

void watch_clock(struct watch *w, int rank, const Wire__Heartbeat *h)
{
    (void)offset_add(&w->seats[rank].clock, w->d->now_ns, h->clock_ns, h->echo_ns, h->held_ns);
}

/* 1: the rank has got somewhere since its last sign.  A step may reduce several times in the same
 * phase, as when ranks vote, and a sign may find the rank in that phase each time.  So collectives
 * that it has handed over count, too.  Those that have ended do not: the others may end them while
 * the rank hangs. */
static int watch_has_moved(const struct progress *from, const struct progress *to)
{
    return to->epoch != from->epoch || to->step != from->step || to->phase != from->phase ||
           to->bucket != from->bucket || to->head.n_handed != from->head.n_handed;
}

int watch_moved(struct watch *w, int rank, const struct progress *p)
{
    const struct driver *d = w->d;
    struct seat *s = &w->seats[rank];
    ASSERT(rank >= 0 && rank < d->n_seats && s->is_taken);
    if (p->generation != d->formation.generation)
        return 0;
    if (rank == 0 && run_is_saving(d) && p->phase != PHASE_CHECKPOINT)
        for (int k = 0; k < d->membership.n_ranks;
             k++) /* ranks that waited for the disk are not late */
            w->seats[k].moved_ms = d->now_ms;
    if (watch_has_moved(&s->at, p))
        s->moved_ms = s->since_ms = d->now_ms;
    if (rank == 0 && p->since_ns > 0)
        s->since_ms = d->now_ms - (d->now_ns - p->since_ns) / 1000000;
    pace_note(w, rank, p);
    s->at = *p;
    s->told_ms = d->now_ms;
    return 1;
}

/* Ranks of one machine read the same counter of packages, and slices of one GPU that GPU's. */
static uint64_t watch_meter_of(const struct seat *s, enum energy_kind kind)
{
    struct hash128 key = hash_of(s->host_id, strlen(s->host_id));
    if (kind == ENERGY_GPU && s->gpu_bus && *s->gpu_bus)
        key.lo ^= hash_of(s->gpu_bus, strlen(s->gpu_bus)).hi;
    else if (kind == ENERGY_GPU && s->gpu)
        key = hash_of(s->gpu, strlen(s->gpu));
    return key.lo;
}

int watch_is_metered(const struct driver *d, int rank, enum energy_kind kind)
{
    const struct seat *s = &d->seats[rank];
    return s->used.mj[kind] > 0 ||
           (s->host_id && energy_has(&d->watch.energy, kind, watch_meter_of(s, kind)));
}

void watch_used(struct watch *w, int rank, const struct usage *u)
{
    struct seat *s = &w->seats[rank];
    if (!s->is_taken || !s->host_id)
        return;
    s->used = *u;
    for (int i = 0; i < ENERGY_KINDS; i++)
        if (u->mj[i] > 0)
            energy_heard(&w->energy, &s->energy, i, watch_meter_of(s, i), u->mj[i], w->d->now_ns);
}
