/* The deadlines of a job, and the rank that is at fault when one has passed.
 *
 * Each stage has one deadline, which the job sets (cluster.deadlines).  In training it counts from
 * the last progress of the slowest rank, and while rank 0 writes a checkpoint, from the start of
 * that.  An engine that was told to leave a formation has a deadline of its own, by what it was
 * doing.  deadline_passed names the rank that the others wait for and accuses it (driver_end.c).
 * If that rank is silent, and so will soon be lost or heard, it waits for that. */
#include <stdlib.h>

#include "base/util.h"
#include "session/driver_impl.h"

/* The time when a rank last moved on, as it must in training; INT64_MAX if it has finished. */
static int64_t moved_ms(const struct driver *d, int rank)
{
    return d->seats[rank].answer ? INT64_MAX : d->seats[rank].moved_ms;
}

/* A rank that has been silent since another rank progressed may have progressed, too: only ranks
 * heard since then count. */
static int64_t oldest_move(const struct driver *d)
{
    int64_t oldest = INT64_MAX, newest = INT64_MIN;
    for (int k = 0; k < d->membership.n_ranks; k++)
        newest = max_i64(newest, d->seats[k].moved_ms);
    for (int k = 0; k < d->membership.n_ranks; k++)
        if (k == 0 || d->seats[k].heard_ms >= newest)
            oldest = min_i64(oldest, moved_ms(d, k));
    return oldest;
}

static const struct {
    const char *name; /* the key of cluster.deadlines */
    size_t offset;    /* in struct cluster_deadlines */
} deadlines[STAGE_COUNT] = {
    [STAGE_GATHER] = {"gather", offsetof(struct cluster_deadlines, gather_ms)},
#define X(KIND, name, ANSWER, deadline) \
    [STAGE_##KIND] = {#deadline, offsetof(struct cluster_deadlines, deadline##_ms)},
    STAGE_LIST(X)
#undef X
};

static int is_readying(const struct driver *d)
{
    return d->stage == STAGE_GATHER && d->membership.gather.full_ms >= 0;
}

static const char *deadline_name(const struct driver *d)
{
    if (run_is_saving(d))
        return deadlines[STAGE_CHECKPOINT].name;
    return is_readying(d) ? "ready" : deadlines[d->stage].name;
}

/* A follower sends its progress once in an interval of heartbeats, so a step's deadline is at least
 * this many intervals. */
enum { LEAST_BEATS = 3 };

int64_t deadline_ms(const struct driver *d)
{
    if (is_readying(d))
        return d->o.cluster.deadlines.ready_ms;
    if (run_is_saving(d))
        return d->o.cluster.deadlines.checkpoint_ms;
    if (d->stage == STAGE_TRAIN)
        return max_i64(d->o.cluster.deadlines.step_ms, LEAST_BEATS * d->beat_ms);
    return *(const int64_t *)((const char *)&d->o.cluster.deadlines + deadlines[d->stage].offset);
}

int64_t deadline_of_stage(const struct driver *d)
{
    if (d->stage == STAGE_WAIT)
        return pause_is_on(d) ? INT64_MAX : recover_deadline(d);
    if (!deadlines[d->stage].name)
        return INT64_MAX;
    int64_t since = d->stage_ms;
    if (is_readying(d))
        since = d->membership.gather.full_ms;
    else if (run_is_saving(d))
        since = d->seats[0].moved_ms;
    else if (d->stage == STAGE_TRAIN)
        since = oldest_move(d);
    return since == INT64_MAX ? INT64_MAX : since + deadline_ms(d);
}

int64_t deadline_of_leaving(const struct driver *d, enum phase phase)
{
    if (phase == PHASE_FORM || phase_is_collective(phase))
        return max_i64(d->timeout_ms, LEAST_BEATS * d->beat_ms) + 2 * d->beat_ms;
    if (phase_is_step(phase))
        return max_i64(d->o.cluster.deadlines.step_ms, LEAST_BEATS * d->beat_ms);
    if (phase == PHASE_VALIDATE)
        return d->o.cluster.deadlines.validate_ms;
    return phase == PHASE_CHECKPOINT ? d->o.cluster.deadlines.checkpoint_ms : INT64_MAX;
}

/* Of the ranks whose engine has not left the last formation's command, the one that must do so
 * first, and the time.  Only in STAGE_PREPARE; -1: all have left. */
static int first_to_leave(const struct driver *d, int64_t *until_ms)
{
    int found = -1;
    *until_ms = INT64_MAX;
    for (int k = 0; k < d->membership.n_ranks && d->stage == STAGE_PREPARE; k++) {
        const struct seat *s = &d->seats[k];
        int64_t ms = s->answer ? INT64_MAX : deadline_of_leaving(d, s->at.phase);
        if (ms >= *until_ms - d->stage_ms)
            continue;
        *until_ms = d->stage_ms + ms;
        found = k;
    }
    return found;
}

int64_t deadline_due(const struct driver *d)
{
    int64_t leave_until_ms;
    first_to_leave(d, &leave_until_ms);
    return min_i64(leave_until_ms, deadline_of_stage(d));
}

int64_t deadline_to_look(const struct driver *d)
{
    if (d->stage == STAGE_TRAIN)
        return INT64_MAX;
    if (d->stage == STAGE_WAIT)
        return pause_is_on(d) ? INT64_MAX : d->formation.recovery.wait_until_ms;
    return deadline_of_stage(d);
}

/* 1: gathering waits for this rank: for a follower, or once all seats are taken for its Ready. */
static int deadline_is_missing(const struct driver *d, int rank)
{
    const struct seat *s = &d->seats[rank];
    return is_readying(d) ? !s->opened : !s->is_taken;
}

static int first_missing(const struct driver *d)
{
    for (int k = 0; k < d->membership.n_ranks; k++)
        if (deadline_is_missing(d, k))
            return k;
    return -1;
}

static void name_missing(const struct driver *d, struct buf *b)
{
    int n = 0;
    for (int k = 0; k < d->membership.n_ranks; k++) {
        const struct seat *s = &d->seats[k];
        if (!deadline_is_missing(d, k) || ++n > 8)
            continue;
        buf_printf(b, n > 1 ? ", rank %d" : "rank %d", k);
        if (!s->is_taken)
            continue;
        buf_printf(b, " (%s: in %s", s->host, phase_name(s->at.phase));
        if (k > 0)
            buf_printf(b, ", heard %.1f s ago", 1e-3 * (double)(d->now_ms - s->heard_ms));
        buf_printf(b, ")");
    }
    if (n > 8)
        buf_printf(b, " and %d more", n - 8);
}

static struct decision gather_too_long(const struct driver *d)
{
    ASSERT(d->stage == STAGE_GATHER);
    if (d->membership.lead.release_ms) /* the job is finished, so nobody is needed any more */
        return decide(DECIDE_RELEASE);
    int rank = first_missing(d);
    struct cause c = {.rank = rank, .code = ERR_TIMEOUT, .phase = PHASE_COUNT, .step = d->run.step};
    struct buf missing = {0};

    if (rank < 0) /* all are ready, and the votes are not enough: driver_succession.c has a limit */
        return decide(DECIDE_NOTHING);
    if (d->seats[rank].is_taken)
        c = watch_cause_at(d, rank, ERR_TIMEOUT);
    name_missing(d, &missing);
    struct decision x = decide_accuse(
        c, "%s took longer than %g s (cluster.deadlines.%s); missing: %s", deadline_name(d),
        1e-3 * (double)deadline_ms(d), deadline_name(d), buf_cstr(&missing));
    buf_fini(&missing);
    return x;
}

/* 1: the rank is silent, and will soon be lost or heard again, so its deadline can wait until then.
 */
static int is_soon_lost(const struct driver *d, int rank)
{
    enum { SOON_MS = 3000 };
    return rank > 0 && watch_is_silent(d, rank) &&
           d->seats[rank].heard_ms + d->timeout_ms - d->now_ms <= SOON_MS;
}

/* While all ranks connect, one that hangs cannot be distinguished from the others.  It can be when
 * all are to form again, because its engine does not leave the formation. */
static struct decision accuse_who_hangs(const struct driver *d)
{
    int64_t until_ms;
    int rank = first_to_leave(d, &until_ms);
    if (rank < 0 || d->now_ms < until_ms || is_soon_lost(d, rank))
        return decide(DECIDE_NOTHING);
    const char *phase = phase_name(d->seats[rank].at.phase);
    char *who = driver_label(d, rank);
    struct decision x = decide_accuse(watch_cause_at(d, rank, ERR_TIMEOUT),
                                      "%s hangs in %s: it was told to leave it %.1f s ago", who,
                                      phase, 1e-3 * (double)(d->now_ms - d->stage_ms));
    free(who);
    return x;
}

/* The cause of a deadline that has passed.  While ranks connect, or while all wait in the same
 * all-reduce, no rank can be named. */
static struct cause cause_of(const struct driver *d, const struct watch_view *v)
{
    struct cause c = watch_cause_at(d, max_i64(v->first, 0), ERR_TIMEOUT);
    c.is_consequence = v->first < 0;
    if (v->first < 0)
        c.rank = -1;
    return c;
}

struct decision deadline_passed(struct watch *w)
{
    const struct driver *d = w->d;
    ASSERT(d->stage >= STAGE_GATHER && d->stage < STAGE_ENDING);
    if (d->stage == STAGE_GATHER)
        return gather_too_long(d);
    struct decision x = accuse_who_hangs(d);
    if (x.kind != DECIDE_NOTHING)
        return x;
    struct watch_view v = watch_look(d);
    struct buf line = {0};
    if (is_soon_lost(d, v.first))
        return x;
    double seconds = 1e-3 * (double)deadline_ms(d);
    watch_put_line(d, &v, &line);
    incident_begin(w, buf_cstr(&line));
    if (d->stage == STAGE_TRAIN)
        x = decide_accuse(cause_of(d, &v), "no progress for %g s (cluster.deadlines.%s): %s",
                          seconds, deadline_name(d), buf_cstr(&line));
    else
        x = decide_accuse(cause_of(d, &v), "%s took longer than %g s (cluster.deadlines.%s): %s",
                          deadline_name(d), seconds, deadline_name(d), buf_cstr(&line));
    buf_fini(&line);
    return x;
}
