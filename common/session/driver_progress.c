/* Progress: notes where each rank is, by its heartbeats and answers, and by the commands that it
 * gets.  driver_watch.c and driver_deadline.c draw the conclusions. */
#include "session/driver_impl.h"

void watch_begin(struct watch *w, enum phase phase)
{
    for (int k = 0; k < w->d->members.n_ranks; k++) {
        struct seat *s = &w->seats[k];
        s->moved_ms = s->since_ms = w->d->now_ms;
        s->at.phase = phase; /* until the rank sends something newer */
    }
}

void watch_at_step(struct watch *w, int64_t step)
{
    for (int k = 0; k < w->d->members.n_ranks; k++)
        w->seats[k].at.step = step;
}

void watch_heard(struct watch *w, int rank) { w->seats[rank].heard_ms = w->d->now_ms; }

void watch_in_phase(struct watch *w, int rank, enum phase phase)
{
    w->seats[rank].at.phase = phase;
}

void watch_since(struct watch *w, int rank, int64_t since_ms)
{
    w->seats[rank].since_ms = since_ms;
}

int watch_moved(struct watch *w, int rank, const struct progress *p)
{
    const struct driver *d = w->d;
    struct seat *s = &w->seats[rank];
    if (p->generation != d->formation.generation)
        return 0;
    if (rank == 0 && run_is_saving(d) && p->phase != PHASE_CHECKPOINT)
        for (int k = 0; k < d->members.n_ranks;
             k++) /* ranks that waited for the disk are not late */
            w->seats[k].moved_ms = d->now_ms;
    if (p->epoch != s->at.epoch || p->step != s->at.step || p->phase != s->at.phase ||
        p->bucket != s->at.bucket)
        s->moved_ms = s->since_ms = d->now_ms;
    if (rank == 0 && p->since_ns > 0)
        s->since_ms = d->now_ms - (d->now_ns - p->since_ns) / 1000000;
    pace_note(w, rank, p);
    s->at = *p;
    s->told_ms = d->now_ms;
    return 1;
}
