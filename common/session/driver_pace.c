/* Measures how fast each rank is, and finds ranks that are slower than the others
 * (session/straggler.h).  Ranks are compared over a window of cluster.straggler_window, which
 * begins anew with each formation. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"
#include "session/straggler.h"

void pace_note(struct watch *w, int rank, const struct progress *p)
{
    struct seat *s = &w->seats[rank];
    int64_t n = p->n_steps - s->at.n_steps;
    if (n > 0)
        s->pace.step_ms = 1e-6 * (double)(p->wall_ns - s->at.wall_ns) / (double)n;
}

static void begin_window(struct watch *w)
{
    const struct driver *d = w->d;
    ASSERT(d->stage >= STAGE_TRAIN && d->stage < STAGE_ENDING);
    w->pace_since_ms = d->now_ms;
    w->pace_generation = d->formation.generation;
    for (int k = 0; k < d->membership.n_ranks; k++) {
        w->seats[k].pace.from_steps = w->seats[k].at.n_steps;
        w->seats[k].pace.from_busy_ns = w->seats[k].at.busy_ns;
    }
}

static void say_slow(const struct driver *d, int rank, const struct work *w, double median_ns)
{
    const struct seat *s = &d->seats[rank];
    ASSERT(w->factor > 0 && median_ns >= 0);
    queue_log(d->out, LOG_WARN,
              "rank %d (%s, pid %lld) is slow: %.2f times the median of the ranks, over %.0f s "
              "(%.1f ms of its own in a step, the median %.1f ms; cluster.straggler_factor is %g)",
              rank, s->host, (long long)s->pid, w->factor,
              1e-3 * (double)(d->now_ms - d->watch.pace_since_ms),
              1e-6 * (double)w->busy_ns / (double)w->n_steps, 1e-6 * median_ns,
              d->o.cluster.straggler_factor);
    driver_event(d, &(struct session_event){.kind = EVENT_STRAGGLER,
                                            .rank = rank,
                                            .step = s->at.step,
                                            .phase = PHASE_COUNT,
                                            .straggler = {w->factor}});
}

static void pace_judge(struct watch *w, int rank, const struct work *work, double median_ns)
{
    const struct driver *d = w->d;
    struct seat *s = &w->seats[rank];
    int is_slow = straggler_is(s->pace.is_slow, work->factor, d->o.cluster.straggler_factor);
    ASSERT(work->n_steps >= STRAGGLER_LEAST_STEPS);
    s->pace.factor = work->factor;
    if (is_slow && !s->pace.is_slow)
        say_slow(d, rank, work, median_ns);
    else if (!is_slow && s->pace.is_slow)
        queue_log(d->out, LOG_INFO, "rank %d (%s, pid %lld) keeps up again: %.2f times the median",
                  rank, s->host, (long long)s->pid, work->factor);
    s->pace.is_slow = is_slow;
}

void pace_check(struct watch *w)
{
    const struct driver *d = w->d;
    double median_ns;
    if (d->stage < STAGE_TRAIN || d->stage >= STAGE_ENDING || d->membership.n_ranks < 2 ||
        d->o.cluster.straggler_factor <= 0)
        return;
    if (w->pace_generation != d->formation.generation)
        begin_window(w);
    if (d->now_ms - w->pace_since_ms < d->o.cluster.straggler_window_ms)
        return;
    struct work *work = xcalloc((size_t)d->membership.n_ranks, sizeof *work);
    for (int k = 0; k < d->membership.n_ranks; k++) {
        const struct seat *s = &d->seats[k];
        work[k].n_steps = s->at.n_steps - s->pace.from_steps;
        work[k].busy_ns = s->at.busy_ns - s->pace.from_busy_ns;
    }
    if (straggler_compare(work, d->membership.n_ranks, &median_ns)) {
        for (int k = 0; k < d->membership.n_ranks; k++)
            pace_judge(w, k, &work[k], median_ns);
        begin_window(w);
    }
    free(work);
}
