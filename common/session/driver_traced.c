/* Timelines under way: a rank owes its part from the request on, or by report.trace from the
 * formation on, until it has sent the last piece, or is lost. */
#include "base/util.h"
#include "session/driver_impl.h"

int trace_owes(const struct seat *s, int64_t number)
{
    return number ? s->owes_trace == number : s->job_trace == JOB_TRACE_OWED;
}

static int trace_is_owed(const struct driver *d, int64_t number)
{
    for (int k = 0; k < d->membership.n_ranks; k++)
        if (trace_owes(&d->seats[k], number))
            return 1;
    return 0;
}

void trace_formed(struct watch *w)
{
    const struct driver *d = w->d;

    if (d->run.step >= d->o.trace_end || d->o.evaluate || w->trace.is_job_over)
        return;
    w->trace.is_job_open = 1;
    for (int k = 0; k < d->membership.n_ranks; k++)
        if (w->seats[k].job_trace == JOB_TRACE_NOT)
            w->seats[k].job_trace = JOB_TRACE_OWED;
}

int trace_take(struct watch *w, int rank, const struct spans_piece *p)
{
    struct seat *s = &w->seats[rank];

    if (!trace_owes(s, p->number))
        return 0;
    if (p->is_last && p->number)
        s->owes_trace = 0;
    else if (p->is_last)
        s->job_trace = JOB_TRACE_SENT;
    return 1;
}

static int trace_is_whole(const struct watch *w, int64_t number)
{
    if (trace_is_owed(w->d, number))
        return 0;
    driver_event(w->d, &(struct session_event){.kind = EVENT_TRACED,
                                               .rank = -1,
                                               .phase = PHASE_COUNT,
                                               .traced = {number, w->d->membership.n_ranks}});
    return 1;
}

void trace_check(struct watch *w)
{
    if (w->trace.is_open && trace_is_whole(w, w->trace.n))
        w->trace.is_open = 0;
    if (w->trace.is_job_open && trace_is_whole(w, 0)) {
        w->trace.is_job_open = 0;
        w->trace.is_job_over = 1;
    }
}

int64_t trace_begin(struct watch *w, int64_t duration_ns)
{
    w->trace.n++;
    w->trace.is_open = 1;
    w->trace.duration_ns = duration_ns;
    w->trace.until_ns = w->d->now_ns + duration_ns;
    for (int k = 0; k < w->d->membership.n_ranks; k++)
        w->seats[k].owes_trace = w->trace.n;
    return w->trace.n;
}
