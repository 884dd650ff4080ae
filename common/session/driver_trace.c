/* Timelines that the operator asks for: all ranks of the formation are told to record, each from
 * its next step on.  Their records come as reports (driver_report.c). */
#include "base/util.h"
#include "session/driver_impl.h"

static void trace_rank(const struct driver *d, int rank, int64_t number, int64_t duration_ns)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Trace trace = WIRE__TRACE__INIT;
    ASSERT(rank > 0 && d->seats[rank].conn);
    trace.number = number;
    trace.duration_ns = duration_ns;
    m.generation = d->formation.generation;
    m.body_case = WIRE__CONTROL__BODY_TRACE;
    m.trace = &trace;
    driver_send(d, d->seats[rank].conn, &m);
}

static int trace_check(const struct driver *d, int64_t duration_ns, struct err *err)
{
    if (duration_ns < 1 || duration_ns > DRIVER_LONGEST_TRACE_NS)
        return err_set(err, ERR_REFUSED, "a timeline of %.3g s: want more than 0, at most %.3g",
                       1e-9 * (double)duration_ns, 1e-9 * (double)DRIVER_LONGEST_TRACE_NS);
    if (d->o.evaluate)
        return err_set(err, ERR_REFUSED, "nothing is trained here, and a timeline is of steps");
    if (d->stage >= STAGE_ENDING)
        return err_set(err, ERR_REFUSED, "the job is ending");
    if (d->stage < STAGE_TRAIN)
        return err_set(err, ERR_REFUSED,
                       "training has not begun, or the ranks form again now; "
                       "try again when they train");
    return 0;
}

int driver_trace(struct driver *d, int64_t now_ns, int64_t duration_ns, int *n_ranks,
                 struct err *err)
{
    driver_enter(d, now_ns);
    int rc = trace_check(d, duration_ns, err);
    *n_ranks = d->membership.n_ranks;
    if (rc == 0) {
        const int64_t number = watch_trace(&d->watch);
        queue_put(d->out, &(struct action){.kind = ACTION_TRACE, .trace = {number, duration_ns}});
        for (int k = 1; k < d->membership.n_ranks; k++)
            trace_rank(d, k, number, duration_ns);
    }
    driver_leave(d);
    return rc;
}
