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

int recover_is_ready(const struct seat *s) { return s->is_taken && s->opened && !s->leaving; }

/* The number of seats from..to-1 whose rank could be in the next formation. */
static int n_ready(const struct driver *d, int from, int to)
{
    int n = 0;
    for (int k = from; k < to; k++)
        n += recover_is_ready(&d->seats[k]);
    return n;
}

int recover_n_ready(const struct driver *d) { return n_ready(d, 0, d->n_seats); }

/* 1: the rank could be in the next formation, or was drained, which can be taken back. */
static int could_stay(const struct seat *s)
{
    return s->is_taken && s->opened && (!s->leaving || s->is_drained);
}

int recover_is_possible(const struct driver *d, int rank)
{
    int left = 0;
    if (d->o.cluster.replace_timeout_ms > 0)
        return 1;
    for (int k = 0; k < d->n_seats; k++)
        left += k != rank && could_stay(&d->seats[k]);
    return left >= recover_min_ranks(d);
}

/* ---- who takes part ---- */

static int ready_spare(const struct driver *d)
{
    for (int k = d->n_ranks; k < d->n_seats; k++)
        if (recover_is_ready(&d->seats[k]))
            return k;
    return -1;
}

static void fill_seats(struct driver *d)
{
    for (int k = 1; k < d->n_ranks; k++) {
        int spare = d->seats[k].is_taken ? -1 : ready_spare(d);
        if (spare < 0)
            continue;
        queue_log(&d->out, LOG_INFO, "spare %d (%s) takes the place of rank %d",
                  spare - d->n_ranks + 1, d->seats[spare].host, k);
        d->seats[spare].named = k;
        seat_move(d, spare, k);
    }
}

/* The number of ranks that the next formation should have. */
static int n_wanted(const struct driver *d)
{
    int n = recover_n_ready(d);
    int64_t beyond = min_i64(n - d->o.cluster.spares, d->o.cluster.max_ranks);
    return (int)max_i64(beyond, min_i64(n, d->o.n_ranks));
}

void recover_grow(struct driver *d)
{
    int before = d->n_ranks, wanted = n_wanted(d);
    while (d->n_ranks < wanted) {
        int spare = ready_spare(d);
        ASSERT(spare >= 0);
        if (spare > d->n_ranks &&
            d->seats[d->n_ranks].is_taken) { /* by a follower that is not ready yet */
            struct seat unready = d->seats[d->n_ranks];
            seat_move(d, spare, d->n_ranks);
            d->seats[spare] = unready;
            unready.conn->rank = spare;
        } else if (spare > d->n_ranks) {
            seat_move(d, spare, d->n_ranks);
        }
        d->n_ranks++;
    }
    seats_changed(d);
    if (d->n_ranks > before)
        queue_log(&d->out, LOG_INFO, "growing from %d to %d ranks", before, d->n_ranks);
}

/* Close up the seats: ready ranks in order, then all others, as spares. */
void recover_shrink(struct driver *d)
{
    struct seat *old = d->seats;
    int n = 0, next = 0;

    d->seats = xcalloc((size_t)d->n_seats, sizeof(*old));
    for (int k = 0; k < d->n_ranks; k++)
        if (k == 0 || recover_is_ready(&old[k])) {
            d->recovery.n_fruitless_at[n] = d->recovery.n_fruitless_at[k];
            d->seats[n++] = old[k];
        }
    memset(&d->recovery.n_fruitless_at[n], 0,
           (size_t)(d->n_seats - n) * sizeof(*d->recovery.n_fruitless_at));
    next = n;
    for (int k = 1; k < d->n_seats; k++)
        if (old[k].is_taken && (k >= d->n_ranks || !recover_is_ready(&old[k])))
            d->seats[next++] = old[k];
    for (int k = 1; k < next; k++)
        d->seats[k].conn->rank = k;
    d->n_ranks = n;
    seats_changed(d);
    free(old);
}

/* ---- taking leave of a rank ---- */

static void say_lost(struct driver *d, int rank, int64_t pid, int64_t step, const char *why)
{
    driver_event(d, &(struct session_event){.kind = EVENT_LOST,
                                            .rank = rank,
                                            .pid = pid,
                                            .step = step,
                                            .phase = PHASE_COUNT,
                                            .text = xstrdup(why)});
}

/* Free the seat of a lost rank.  If its connection is still there, it is told why it has to go. */
static void remove_lost(struct driver *d, const struct cause *c)
{
    struct conn *conn = d->seats[c->rank].conn;
    const struct seat *s = &d->seats[c->rank];

    say_lost(d, c->rank, seat_is_here(d, s) ? s->pid : 0, c->step, c->text);
    if (conn->state == CONN_MEMBER)
        end_send_abort(d, c->text, conn, ABORT_FAILED);
    conn->rank = -1;
    seat_clear(d, c->rank);
}

void recover_farewell(struct driver *d, struct conn *c, const char *text)
{
    end_send_stop(d, WIRE__OUTCOME__OUTCOME_STOPPED, text, c);
    driver_leave(d, c, REFUSED_MS);
}

static void note_first_cause(struct driver *d, const struct cause *c)
{
    struct recovery *r = &d->recovery;
    if (r->since_ns)
        return;
    r->since_ns = d->now_ns;
    free(r->cause.text);
    free(r->cause.host);
    r->cause = *c;
    r->cause.text = xstrdup(c->text);
    const char *host = c->rank >= 0 ? d->seats[c->rank].host : NULL;
    r->cause.host = host ? xstrdup(host) : NULL;
    r->newest_step = 0;
    r->is_midstep = 0;
    r->steps_lost = 0;
}

/* Let the leaving ranks go.  No other rank needs them at this moment. */
static void let_go(struct driver *d)
{
    drain_take_back(d);
    for (int k = 1; k < d->n_ranks; k++) {
        struct seat *s = &d->seats[k];
        if (!s->leaving)
            continue;
        char *who = driver_label(d, k);
        struct cause c = {
            .rank = k, .code = ERR_CANCELED, .phase = PHASE_COUNT, .step = d->run.step};
        c.text = xasprintf("%s %s", who, s->leaving);
        queue_log(&d->out, LOG_INFO, "%s, after step %lld", c.text, (long long)d->run.step);
        note_first_cause(d, &c);
        say_lost(d, k, 0, d->run.step, c.text);
        recover_farewell(d, s->conn,
                         s->is_drained ? "drained by the operator of the driver"
                                       : "stopped: its place in the job is free now");
        s->conn->rank = -1;
        seat_clear(d, k);
        free(c.text);
        free(who);
    }
}

/* ---- waiting ---- */

static int64_t last_candidate_ms(const struct driver *d)
{
    int64_t last = INT64_MIN;
    for (int k = 1; k < d->n_ranks; k++) {
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
    return max_i64(d->recovery.wait_until_ms, last_candidate_ms(d));
}

static void go_on(struct driver *d)
{
    recover_grow(d);
    form_prepare(d);
}

static void go_on_with_fewer(struct driver *d)
{
    recover_shrink(d);
    queue_log(&d->out, LOG_WARN, "%s %d rank%s",
              d->ending.n_stops        ? "stopping: the checkpoint is written by"
              : d->recovery.is_orderly ? "going on with"
                                       : "no replacement came: going on with",
              d->n_ranks, d->n_ranks == 1 ? "" : "s");
    go_on(d);
}

static void give_up(struct driver *d)
{
    struct cause c = d->recovery.cause;
    c.is_final = 1;
    end_accuse(d, c, 0, "%s; no replacement came within %g s (cluster.replace_timeout)", c.text,
               1e-3 * (double)d->o.cluster.replace_timeout_ms);
}

static void say_waiting(struct driver *d, int n)
{
    if (!d->recovery.is_wait_said && d->o.cluster.replace_timeout_ms > 0)
        queue_log(&d->out, LOG_INFO,
                  "waiting up to %g s for a replacement (cluster.replace_timeout); %d of %d ranks "
                  "keep their state",
                  1e-3 * (double)d->o.cluster.replace_timeout_ms, n, d->n_ranks);
    d->recovery.is_wait_said = 1;
}

void recover_try(struct driver *d)
{
    if (d->now_ms < d->recovery.settled_ms && d->ending.n_stops == 0)
        return;
    let_go(d);
    fill_seats(d);
    if (succession_holds_up(d))
        return;
    int n = n_ready(d, 0, d->n_ranks);
    if (n == d->n_ranks)
        go_on(d);
    else if (d->now_ms < recover_deadline(d))
        say_waiting(d, n);
    else if (n >= recover_min_ranks(d) ||
             d->ending.n_stops > 0) /* to end in order there is no minimum of ranks */
        go_on_with_fewer(d);
    else
        give_up(d);
}

/* Wait for replacements.  is_orderly: the missing ranks left in order, or were about to. */
static void enter_wait(struct driver *d, int is_orderly)
{
    drain_take_back(d);
    int is_enough = recover_n_ready(d) >= recover_min_ranks(d);
    int64_t ms = is_orderly && is_enough ? 0 : d->o.cluster.replace_timeout_ms;
    if (d->stage != STAGE_WAIT) {
        d->gather.next_missing_ms = d->now_ms + MISSING_LINE_MS;
        d->recovery.is_wait_said = 0;
    }
    stage_enter(d, STAGE_WAIT);
    d->recovery.wait_until_ms = d->now_ms + ms;
    d->recovery.is_orderly = ms == 0 && d->o.cluster.replace_timeout_ms > 0;
    recover_try(d);
}

/* ---- a loss ---- */

/* Count the recovery.  1: there were too many without a completed step.  Losses that come together,
 * such as those of a whole machine, count once. */
static int is_fruitless(struct driver *d, const struct cause *c)
{
    if (d->stage == STAGE_WAIT)
        return 0;
    d->recovery.n_fruitless++;
    return ++d->recovery.n_fruitless_at[max_i64(c->rank, 0)] > MOST_FRUITLESS ||
           d->recovery.n_fruitless > MOST_FRUITLESS + d->n_seats;
}

static void note_progress(struct driver *d)
{
    struct recovery *r = &d->recovery;
    if (d->stage >= STAGE_TRAIN)
        r->resume = d->stage;
    r->is_midstep |= d->stage == STAGE_TRAIN && d->formation.n_answers < d->n_ranks;
    r->newest_step = max_i64(r->newest_step, d->run.step);
    for (int k = 0; k < d->n_ranks; k++)
        r->newest_step = max_i64(r->newest_step, d->seats[k].at.step);
}

/* Wait until no more losses come.  A large job loses whole machines, one connection after another,
 * and the others should form again once, not after each loss. */
static void settle(struct driver *d)
{
    enum { RANKS_PER_MS = 64, LONGEST_MS = 1000 };
    struct recovery *r = &d->recovery;
    if (d->stage != STAGE_WAIT)
        r->latest_ms = d->now_ms + LONGEST_MS;
    r->settled_ms = min_i64(d->now_ms + d->n_ranks / RANKS_PER_MS, r->latest_ms);
}

int recover_from(struct driver *d, const struct cause *c, char **why_not)
{
    int is_blamed = c->rank > 0 && !c->is_consequence;
    if (d->stage < STAGE_WAIT || c->is_final || (c->rank <= 0 && !c->is_consequence) ||
        !recover_is_possible(d, is_blamed ? c->rank : -1))
        return 0;
    if (is_fruitless(d, c)) {
        *why_not = xasprintf("given up after %d recoveries without a completed step",
                             d->recovery.n_fruitless - 1);
        return 0;
    }
    queue_log(&d->out, LOG_WARN, "%s", c->text);
    note_first_cause(d, c);
    note_progress(d);
    int is_orderly = d->stage != STAGE_WAIT && (!is_blamed || d->seats[c->rank].leaving);
    if (is_blamed)
        remove_lost(d, c);
    settle(d);
    if (d->stage != STAGE_WAIT) {
        end_send_abort(d, c->text, NULL, ABORT_RECOVERS);
        queue_abort(&d->out);
    }
    end_forget_pending(d);
    enter_wait(d, is_orderly);
    return 1;
}

/* The rank has no seat, so its host is not known. */
static char *say_absent(struct driver *d, int rank)
{
    char *text = xasprintf("rank %d was lost together with the driver: it did not come to the "
                           "standby, which leads now, when the others did",
                           rank);
    queue_log(&d->out, LOG_WARN, "%s", text);
    say_lost(d, rank, 0, d->lead.newest, text);
    return text;
}

/* For a driver that was the standby: the ranks of the last formation that have not come were lost
 * together with the driver before. */
void recover_absent(struct driver *d)
{
    struct cause c = {.is_lost = 1,
                      .code = ERR_PEER,
                      .phase = PHASE_COUNT,
                      .step = d->lead.newest,
                      .text = xstrdup("some ranks did not come to the standby, which leads now")};
    int n = (int)min_i64(d->n_ranks, succession_n_ranks(d));
    for (int k = n - 1; k > 0; k--) {
        if (d->seats[k].is_taken)
            continue;
        free(c.text);
        c.text = say_absent(d, k);
        c.rank = k;
    }
    c.rank = c.rank > 0 ? c.rank : -1;
    note_first_cause(d, &c);
    settle(d);
    enter_wait(d, 0);
    free(c.text);
}

/* ---- and back ---- */

/* Warn that ranks reduced different things, and that the first such step is not known: their sums
 * were last compared at the formation or at the epoch's start, whichever was later. */
static void say_suspect(struct driver *d)
{
    int64_t from = d->recovery.suspect_from;
    if (from < 0)
        return;
    d->recovery.suspect_from = -1;
    const char *safe = d->run.saved_step <= from ? d->run.saved_path : NULL;
    char *text = xasprintf("ranks had reduced different things: the sums of the steps from %lld "
                           "to %lld may be wrong, and training goes on from them%s%s",
                           (long long)from, (long long)d->run.step,
                           safe ? "; the newest checkpoint before them is " : "", safe ? safe : "");
    queue_log(&d->out, LOG_WARN, "%s", text);
    driver_event(d, &(struct session_event){.kind = EVENT_WARNING,
                                            .rank = -1,
                                            .step = d->run.step,
                                            .phase = PHASE_COUNT,
                                            .text = text});
}

static void say_recovered(struct driver *d)
{
    struct recovery *r = &d->recovery;
    double seconds = 1e-9 * (double)(d->now_ns - r->since_ns);
    if (!r->since_ns)
        return;
    r->since_ns = 0;
    const char *source = d->lead.source;
    d->lead.source = NULL;
    queue_log(&d->out, LOG_INFO,
              "recovered after %.2f s%s%s: generation %lld, %d rank%s, %lld step%s lost", seconds,
              source ? " from the state of the " : "", source ? source : "",
              (long long)d->formation.generation, d->n_ranks, d->n_ranks == 1 ? "" : "s",
              (long long)r->steps_lost, r->steps_lost == 1 ? "" : "s");
    driver_event(d, &(struct session_event){.kind = EVENT_RECOVERED,
                                            .rank = -1,
                                            .step = d->run.step,
                                            .phase = PHASE_COUNT,
                                            .generation = d->formation.generation,
                                            .n_ranks = d->n_ranks,
                                            .seconds = seconds,
                                            .steps_lost = r->steps_lost,
                                            .text = source ? xstrdup(source) : NULL});
    say_suspect(d);
}

/* The ranks have formed.  If no training follows, no step will end the recovery, so end it now. */
void recover_formed(struct driver *d)
{
    struct recovery *r = &d->recovery;
    d->formation.has_formed = 1;
    d->formation.formed_ms = d->now_ms;
    r->steps_lost = max_i64(r->is_midstep, r->newest_step - d->run.step);
    if (r->resume != STAGE_TRAIN)
        say_recovered(d);
}

void recover_done(struct driver *d)
{
    d->recovery.n_fruitless = 0;
    memset(d->recovery.n_fruitless_at, 0, (size_t)d->n_seats * sizeof(*d->recovery.n_fruitless_at));
    say_recovered(d);
}

void recover_fini(struct driver *d)
{
    free(d->recovery.n_fruitless_at);
    free(d->recovery.cause.text);
    free(d->recovery.cause.host);
}

/* ---- leaving and joining in order ---- */

int recover_wants_regroup(const struct driver *d)
{
    for (int k = 1; k < d->n_ranks; k++)
        if (d->seats[k].leaving)
            return 1;
    return succession_wants_regroup(d) ||
           (d->now_ms - d->formation.formed_ms >= d->o.cluster.join_interval_ms &&
            d->n_ranks < n_wanted(d));
}

void recover_ask_regroup(struct driver *d)
{
    if (d->stage == STAGE_TRAIN && d->formation.n_answers == 0 && recover_wants_regroup(d))
        queue_put(&d->out, &(struct action){.kind = ACTION_REQUEST, .request = REQUEST_REGROUP});
}

void recover_regroup(struct driver *d)
{
    d->recovery.resume = STAGE_TRAIN;
    enter_wait(d, 1);
}

void recover_let_leave(struct driver *d)
{
    if (d->stage == STAGE_WAIT)
        recover_try(d);
    else
        recover_ask_regroup(d);
}
