/* Timelines that the operator asks for: all ranks of the formation are told to record, each from
 * its next step on.  Their records come as reports (driver_report.c).
 *
 * One such timeline is under way at a time, because a rank notes one request: another one would
 * take the place of a request that it has not come to yet. */
#include <stdlib.h>

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

/* Another timeline is under way: say until when, or for which rank it waits. */
static int refuse_second(const struct driver *d, struct err *err)
{
    const double asked_s = 1e-9 * (double)d->watch.trace.duration_ns;
    const int64_t left_ns = d->watch.trace.until_ns - d->now_ns;
    int rank = 0;
    char *who;

    if (left_ns > 0)
        return err_set(
            err, ERR_REFUSED,
            "another request's timeline of %.3g s is recorded for %.3g s more; ask again "
            "when the driver's log names its file",
            asked_s, 1e-9 * (double)left_ns);
    while (!trace_owes(&d->seats[rank], d->watch.trace.n))
        rank++;
    who = driver_label(d, rank);
    err_set(err, ERR_REFUSED,
            "another request's timeline of %.3g s waits for the record of %s, which comes when its "
            "step is done; ask again when the driver's log names the file",
            asked_s, who);
    free(who);
    return err->code;
}

static int trace_check_job(const struct driver *d, struct err *err)
{
    const int64_t step = d->seats[0].at.step;

    if (!d->watch.trace.is_job_open || step < d->o.trace_first || step >= d->o.trace_end)
        return 0;
    return err_set(err, ERR_REFUSED,
                   "report.trace has steps %lld to %lld recorded, and step %lld is under way; ask "
                   "again after step %lld",
                   (long long)d->o.trace_first, (long long)d->o.trace_end - 1, (long long)step,
                   (long long)d->o.trace_end - 1);
}

static int trace_check_request(const struct driver *d, int64_t duration_ns, struct err *err)
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
    return d->watch.trace.is_open ? refuse_second(d, err) : trace_check_job(d, err);
}

int driver_trace(struct driver *d, int64_t now_ns, int64_t duration_ns, int *n_ranks,
                 struct err *err)
{
    driver_enter(d, now_ns);
    int rc = trace_check_request(d, duration_ns, err);
    *n_ranks = d->membership.n_ranks;
    if (rc == 0) {
        const int64_t number = trace_begin(&d->watch, duration_ns);
        queue_put(d->out, &(struct action){.kind = ACTION_TRACE, .trace = {number, duration_ns}});
        for (int k = 1; k < d->membership.n_ranks; k++)
            trace_rank(d, k, number, duration_ns);
    }
    driver_leave(d);
    return rc;
}
