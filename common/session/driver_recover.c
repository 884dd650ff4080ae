/* Losing ranks and going on.
 *
 * Happy path: a rank is lost.  The others are told to abort their command and to keep their state
 * (Abort with `recover`).  A spare that is ready takes the free seat, and Prepare of the next
 * generation is sent at once; in a job of thousands of ranks, when no more losses come.  Endpoints
 * say which step each rank holds, and Form names a rank with the newest step as the source.  Then
 * the stage that was broken off is done again: training goes on from the step held.
 *
 * Without a spare: STAGE_WAIT for up to replace_timeout, until a follower has joined and is ready.
 * After that the job goes on with fewer ranks, renumbered without gaps, if min_ranks allows.  Else
 * it fails with the first cause.  More ranks may be lost at any point of this; each loss only adds
 * a free seat.
 *
 * A rank that fails every time could make this go on for ever.  So recoveries are counted, for each
 * rank at fault, until a step is completed.  When the ranks are renumbered, each rank keeps its own
 * count.
 *
 * Leaving and joining in order need no Abort: rank 0's engine asks for a regroup, all ranks end
 * training at the same step, and then form as above.  But if min_ranks allows, the job does not
 * wait for the replacement of a rank that left in order, or that was lost before it could leave.
 * Followers that are ready join up to --nranks.  Beyond that, up to max_ranks, only those join that
 * are not needed as spares. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

int recover_min_ranks(const struct driver *d)
{
    return d->o.cluster.min_ranks > 0 ? (int)d->o.cluster.min_ranks : d->o.n_ranks;
}

int recover_n_ready(const struct driver *d) { return seats_n_ready(d, 0, d->n_seats); }

/* 1: the rank could be in the next formation, or was drained, which can be taken back. */
static int could_stay(const struct seat *s)
{
    return s->is_taken && s->opened && (!s->leaving || s->is_drained);
}

int recover_is_possible(const struct driver *d, int rank)
{
    int left = 0, want = recover_min_ranks(d);
    if (d->o.cluster.replace_timeout_ms > 0)
        return 1;
    for (int k = 0; k < d->n_seats && left < want; k++)
        left += k != rank && could_stay(&d->seats[k]);
    return left >= want;
}

/* ---- who takes part ---- */

/* The number of ranks that the next formation should have. */
int recover_n_wanted(const struct driver *d)
{
    int n = recover_n_ready(d);
    int64_t beyond = min_i64(n - d->o.cluster.spares, d->o.cluster.max_ranks);
    ASSERT(n <= d->n_seats);
    return (int)max_i64(beyond, min_i64(n, d->o.n_ranks));
}

/* ---- taking leave of a rank ---- */

void recover_say_lost(const struct driver *d, int rank, int64_t pid, int64_t step, const char *why)
{
    ASSERT(rank > 0 && rank < d->n_seats && why);
    driver_event(d, &(struct session_event){.kind = EVENT_LOST,
                                            .rank = rank,
                                            .lost = {.pid = pid},
                                            .step = step,
                                            .phase = PHASE_COUNT,
                                            .text = xstrdup(why)});
}

static void recover_blame(struct formation *f, const struct cause *c)
{
    struct cause *kept = &f->recovery.cause;
    const char *host = c->rank >= 0 ? f->d->seats[c->rank].host : NULL;
    ASSERT(c->text && c->rank >= -1 && c->rank < f->d->n_seats);
    free(kept->text);
    free(kept->host);
    *kept = *c;
    kept->text = xstrdup(c->text);
    kept->host = host ? xstrdup(host) : NULL;
}

void recover_note(struct formation *f, const struct cause *c)
{
    struct recovery *r = &f->recovery;
    if (!r->since_ns || !r->cause.text) /* a driver that took over recovers without a cause */
        recover_blame(f, c);
    if (r->since_ns)
        return;
    r->since_ns = f->d->now_ns;
    r->newest_step = 0;
    r->is_noted = 0;
    r->is_midstep = 0;
    r->steps_lost = 0;
}

void recover_leave(struct formation *f, int rank, char *why, int is_drained)
{
    struct seat *s = &f->seats[rank];
    ASSERT(rank > 0 && s->is_taken && s->is_member);
    ASSERT(why || !is_drained);
    free(s->leaving);
    s->leaving = why;
    s->is_drained = is_drained;
}

/* ---- waiting ---- */

static int64_t last_candidate_ms(const struct driver *d)
{
    int64_t last = INT64_MIN;
    for (int k = 1; k < d->membership.n_ranks; k++) {
        const struct seat *s = &d->seats[k];
        if (s->is_taken && !s->opened)
            last = max_i64(last, s->joined_ms + d->o.cluster.deadlines.ready_ms);
    }
    return last;
}

/* The end of the wait.  A follower that came in time has its own deadline to open its data. */
int64_t recover_deadline(const struct driver *d)
{
    if (d->ending.n_stops > 0)
        return d->now_ms;
    return max_i64(d->formation.recovery.wait_until_ms, last_candidate_ms(d));
}

static struct decision go_on_with_fewer(const struct driver *d, int n)
{
    struct decision x = decide(DECIDE_PREPARE);
    ASSERT(n >= 1 && n < d->membership.n_ranks);
    x.text = xasprintf("%s %d rank%s",
                       d->ending.n_stops                  ? "stopping: the checkpoint is written by"
                       : d->formation.recovery.is_orderly ? "going on with"
                                                          : "no replacement came: going on with",
                       n, n == 1 ? "" : "s");
    return x;
}

static struct decision recover_give_up(const struct driver *d)
{
    struct cause c = d->formation.recovery.cause;
    ASSERT(d->formation.recovery.cause.text);
    c.is_final = 1;
    return decide_accuse(c, "%s; no replacement came within %g s (cluster.replace_timeout)", c.text,
                         1e-3 * (double)d->o.cluster.replace_timeout_ms);
}

static void say_waiting(struct formation *f, int n)
{
    const struct driver *d = f->d;
    if (!f->recovery.is_wait_said && d->o.cluster.replace_timeout_ms > 0)
        queue_log(d->out, LOG_INFO,
                  "waiting up to %g s for a replacement (cluster.replace_timeout); %d of %d ranks "
                  "keep their state",
                  1e-3 * (double)d->o.cluster.replace_timeout_ms, n, d->membership.n_ranks);
    f->recovery.is_wait_said = 1;
}

struct decision recover_choose(struct formation *f)
{
    const struct driver *d = f->d;
    int n = seats_n_ready(d, 0, d->membership.n_ranks);
    ASSERT(d->stage == STAGE_WAIT);
    if (n == d->membership.n_ranks)
        return decide(DECIDE_PREPARE);
    if (d->now_ms < recover_deadline(d)) {
        say_waiting(f, n);
        return decide(DECIDE_NOTHING);
    }
    if (n >= recover_min_ranks(d) ||
        d->ending.n_stops > 0) /* to end in order there is no minimum of ranks */
        return go_on_with_fewer(d, n);
    return recover_give_up(d);
}

void recover_wait(struct formation *f, int is_orderly)
{
    const struct driver *d = f->d;
    int is_enough = is_orderly && recover_n_ready(d) >= recover_min_ranks(d);
    int64_t ms = is_enough ? 0 : d->o.cluster.replace_timeout_ms;
    if (d->stage != STAGE_WAIT)
        f->recovery.is_wait_said = 0;
    f->recovery.wait_until_ms = d->now_ms + ms;
    f->recovery.is_orderly = ms == 0 && d->o.cluster.replace_timeout_ms > 0;
    ASSERT(f->recovery.wait_until_ms >= d->now_ms);
}

/* ---- a loss ---- */

/* Count the recovery.  1: there were too many without a completed step.  Losses that come together,
 * such as those of a whole machine, count once. */
int recover_is_fruitless(struct formation *f, const struct cause *c)
{
    const struct driver *d = f->d;
    ASSERT(!c->is_final && c->rank < d->n_seats);
    if (d->stage == STAGE_WAIT)
        return 0;
    f->recovery.n_fruitless++;
    return ++f->recovery.n_fruitless_at[max_i64(c->rank, 0)] > MOST_FRUITLESS ||
           f->recovery.n_fruitless > MOST_FRUITLESS + d->n_seats;
}

void recover_note_progress(struct formation *f)
{
    const struct driver *d = f->d;
    struct recovery *r = &f->recovery;
    ASSERT(d->stage >= STAGE_WAIT && d->stage < STAGE_ENDING);
    ASSERT(r->since_ns != 0);
    if (d->stage >= STAGE_TRAIN)
        r->resume = d->stage;
    r->is_midstep |= d->stage == STAGE_TRAIN && d->formation.n_answers < d->membership.n_ranks;
    r->newest_step = max_i64(r->newest_step, d->run.step);
    if (d->stage == STAGE_WAIT && r->is_noted)
        return; /* recover_moved has noted what ranks have told since then */
    r->is_noted = 1;
    for (int k = 0; k < d->membership.n_ranks; k++)
        r->newest_step = max_i64(r->newest_step, d->seats[k].at.step);
}

void recover_moved(struct formation *f, int rank)
{
    struct recovery *r = &f->recovery;
    ASSERT(rank >= 0 && rank < f->d->n_seats);
    if (r->since_ns != 0 && r->is_noted)
        r->newest_step = max_i64(r->newest_step, f->d->seats[rank].at.step);
}

/* A large job loses whole machines, one connection after another, and the others should form again
 * once, not after each loss. */
void recover_settle(struct formation *f)
{
    enum { RANKS_PER_MS = 64, LONGEST_MS = 1000 };
    const struct driver *d = f->d;
    struct recovery *r = &f->recovery;
    ASSERT(f->recovery.since_ns != 0);
    if (d->stage != STAGE_WAIT)
        r->latest_ms = d->now_ms + LONGEST_MS;
    r->settled_ms = min_i64(d->now_ms + d->membership.n_ranks / RANKS_PER_MS, r->latest_ms);
    ASSERT(r->settled_ms >= d->now_ms || r->settled_ms == r->latest_ms);
}

/* The rank has no seat, so its host is not known. */
static char *say_absent(const struct driver *d, int rank)
{
    char *text = xasprintf("rank %d was lost together with the driver: it did not come to the "
                           "standby, which leads now, when the others did",
                           rank);
    queue_log(d->out, LOG_WARN, "%s", text);
    recover_say_lost(d, rank, 0, d->membership.lead.newest, text);
    return text;
}

struct cause recover_absent(const struct driver *d)
{
    struct cause c = {.is_lost = 1,
                      .code = ERR_PEER,
                      .phase = PHASE_COUNT,
                      .step = d->membership.lead.newest,
                      .text = xstrdup("some ranks did not come to the standby, which leads now")};
    int n = (int)min_i64(d->membership.n_ranks, succession_n_ranks(d));
    ASSERT(d->stage == STAGE_GATHER && d->o.standby_id);
    for (int k = n - 1; k > 0; k--) {
        if (d->seats[k].is_taken)
            continue;
        free(c.text);
        c.text = say_absent(d, k);
        c.rank = k;
    }
    c.rank = c.rank > 0 ? c.rank : -1;
    return c;
}

int recover_may(const struct driver *d, const struct cause *c)
{
    int is_blamed = c->rank > 0 && !c->is_consequence;
    return d->stage >= STAGE_WAIT && !c->is_final && (c->rank > 0 || c->is_consequence) &&
           recover_is_possible(d, is_blamed ? c->rank : -1);
}

void recover_suspect(struct formation *f, int64_t step)
{
    ASSERT(step >= 0);
    if (f->recovery.suspect_from < 0)
        f->recovery.suspect_from = step;
}

void recover_resume_training(struct formation *f) { f->recovery.resume = STAGE_TRAIN; }

void recover_taken_over(struct formation *f, int64_t newest, const char *source)
{
    ASSERT(source && newest >= 0);
    ASSERT(f->d->stage == STAGE_FORM && !f->has_formed);
    f->recovery.since_ns = max_i64(f->d->o.start_ns, 1); /* 0: no recovery is under way */
    f->recovery.newest_step = newest;
    f->recovery.source = source;
}

void recover_renumber(struct formation *f, const int *was)
{
    int *at = f->recovery.n_fruitless_at, n = f->d->membership.n_ranks;
    ASSERT(was[0] == 0);
    for (int k = 0; k < n; k++)
        at[k] = at[was[k]]; /* was[k] >= k */
    memset(&at[n], 0, (size_t)(f->d->n_seats - n) * sizeof *at);
}

/* ---- and back ---- */

/* Warn that ranks reduced different things, and that the first such step is not known: their sums
 * were last compared at the formation or at the epoch's start, whichever was later. */
static void say_suspect(struct formation *f)
{
    const struct driver *d = f->d;
    int64_t from = f->recovery.suspect_from;
    if (from < 0)
        return;
    f->recovery.suspect_from = -1;
    const char *safe = d->run.saved_step <= from ? d->run.saved_path : NULL;
    char *text = xasprintf("ranks had reduced different things: the sums of the steps from %lld "
                           "to %lld may be wrong, and training goes on from them%s%s",
                           (long long)from, (long long)d->run.step,
                           safe ? "; the newest checkpoint before them is " : "", safe ? safe : "");
    queue_log(d->out, LOG_WARN, "%s", text);
    driver_event(d, &(struct session_event){.kind = EVENT_WARNING,
                                            .rank = -1,
                                            .step = d->run.step,
                                            .phase = PHASE_COUNT,
                                            .text = text});
}

static void say_recovered(struct formation *f)
{
    const struct driver *d = f->d;
    struct recovery *r = &f->recovery;
    double seconds = 1e-9 * (double)(d->now_ns - r->since_ns);
    if (!r->since_ns)
        return;
    r->since_ns = 0;
    const char *source = r->source;
    r->source = NULL;
    queue_log(d->out, LOG_INFO,
              "recovered after %.2f s%s%s: generation %lld, %d rank%s, %lld step%s lost", seconds,
              source ? " from the state of the " : "", source ? source : "",
              (long long)d->formation.generation, d->membership.n_ranks,
              d->membership.n_ranks == 1 ? "" : "s", (long long)r->steps_lost,
              r->steps_lost == 1 ? "" : "s");
    driver_event(d, &(struct session_event){.kind = EVENT_RECOVERED,
                                            .rank = -1,
                                            .step = d->run.step,
                                            .phase = PHASE_COUNT,
                                            .recovered = {.n_ranks = d->membership.n_ranks,
                                                          .generation = d->formation.generation,
                                                          .seconds = seconds,
                                                          .steps_lost = r->steps_lost},
                                            .text = source ? xstrdup(source) : NULL});
    say_suspect(f);
}

/* The ranks have formed.  If no training follows, no step will end the recovery, so end it now. */
void recover_formed(struct formation *f)
{
    struct recovery *r = &f->recovery;
    ASSERT(f->has_formed && f->formed_ms == f->d->now_ms);
    r->steps_lost = max_i64(r->is_midstep, r->newest_step - f->d->run.step);
    if (r->resume != STAGE_TRAIN)
        say_recovered(f);
    ASSERT(r->steps_lost >= 0);
}

void recover_done(struct formation *f)
{
    ASSERT(f->has_formed && f->d->stage >= STAGE_TRAIN);
    f->recovery.n_fruitless = 0;
    memset(f->recovery.n_fruitless_at, 0,
           (size_t)f->d->n_seats * sizeof *f->recovery.n_fruitless_at);
    say_recovered(f);
}

void recover_fini(struct formation *f)
{
    free(f->recovery.n_fruitless_at);
    free(f->recovery.cause.text);
    free(f->recovery.cause.host);
}

/* ---- leaving and joining in order ---- */

int recover_wants_regroup(const struct driver *d)
{
    for (int k = 1; k < d->membership.n_ranks; k++)
        if (d->seats[k].leaving)
            return 1;
    return d->ending.hands_over || succession_wants_regroup(d) || pause_is_on(d) ||
           d->run.is_live_new ||
           (d->now_ms - d->formation.formed_ms >= d->o.cluster.join_interval_ms &&
            d->membership.n_ranks < recover_n_wanted(d));
}

void recover_ask_regroup(const struct driver *d)
{
    if (d->stage == STAGE_TRAIN && d->formation.n_answers == 0 && recover_wants_regroup(d))
        queue_put(d->out, &(struct action){.kind = ACTION_REQUEST, .request = REQUEST_REGROUP});
}
