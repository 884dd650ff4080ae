/* Watching: which rank keeps the others waiting.
 *
 * In training all ranks hand over the same collectives in the same order (session/ring.h).  So a
 * rank is behind if it has handed over fewer than the number of the collective that others wait in.
 * The driver knows the place of a rank from its last heartbeat.  That is enough, because a rank
 * that waits does not move on, and neither does one that is behind.
 *
 * A rank that itself waits in an earlier collective than others is not at fault: the rank that
 * stopped in the middle of that collective may have served only some of the others.  A rank that is
 * done with the epoch, but has handed over fewer collectives than the others wait in, has left some
 * out; so its collectives met others with other numbers.
 *
 * In stages other than training, a rank that has not answered is behind.  While the ranks connect,
 * each may wait for any other, so a rank is named only if it is the only one left.
 *
 * The resulting line is a warning once a rank has used up half of a deadline, or has been silent
 * for half of the time after which it is lost.  Later the line is part of the error. */

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

enum { MOST_NAMED = 8 };

/* ---- where the ranks are ---- */

static const struct ring_head *watch_head_of(const struct driver *d, int rank)
{
    static const struct ring_head none;
    const struct ring_head *h = &d->seats[rank].at.head;
    ASSERT(rank >= 0 && rank < d->n_seats);
    return h->generation == d->formation.generation ? h : &none;
}

static int watch_is_missing(const struct driver *d, int rank)
{
    return !d->seats[rank].is_taken || !d->seats[rank].answer;
}

int watch_is_silent(const struct driver *d, int rank)
{
    const struct seat *s = &d->seats[rank];
    return rank > 0 && s->is_taken && d->now_ms - s->heard_ms > 2 * d->beat_ms + d->beat_ms / 4;
}

/* A rank in the latest collective that has not ended; others may not have handed that one over yet.
 * -1: there is none. */
static int latest_waiting(const struct driver *d)
{
    int found = -1;
    for (int k = 0; k < d->membership.n_ranks; k++)
        if (watch_is_missing(d, k) && watch_head_of(d, k)->at.number > 0 &&
            (found < 0 || watch_head_of(d, k)->at.number > watch_head_of(d, found)->at.number))
            found = k;
    return found;
}

static int is_in_collective(const struct driver *d, int rank)
{
    return phase_is_collective(d->seats[rank].at.phase) && watch_head_of(d, rank)->at.number > 0 &&
           !watch_is_silent(d, rank);
}

/* The number of collectives that this rank, which is done, left out, as far as its heartbeats show.
 */
static int64_t watch_n_left_out(const struct driver *d, const struct watch_view *v, int rank)
{
    const struct seat *s = &d->seats[rank];
    if (d->stage != STAGE_TRAIN || watch_is_missing(d, rank) || v->waiting < 0 ||
        s->told_ms <= s->answered_ms || s->at.head.generation != d->formation.generation)
        return 0;
    return max_i64(0, watch_head_of(d, v->waiting)->at.number - s->at.head.n_handed);
}

int watch_is_behind(const struct driver *d, const struct watch_view *v, int rank)
{
    if (!watch_is_missing(d, rank))
        return v->sign != WATCH_SILENCE && watch_n_left_out(d, v, rank) > 0;
    if (v->sign == WATCH_SILENCE)
        return watch_is_silent(d, rank);
    if (d->stage != STAGE_TRAIN && d->stage != STAGE_FORM)
        return 1;
    if (v->waiting < 0)
        return !phase_is_collective(d->seats[rank].at.phase);
    return watch_head_of(d, rank)->n_handed < watch_head_of(d, v->waiting)->at.number &&
           (v->sign == WATCH_EARLIER || !is_in_collective(d, rank));
}

static int is_further(const struct seat *a, const struct seat *b)
{
    int64_t x = a->at.head.n_handed, y = b->at.head.n_handed;
    if (x != y)
        return x < y;
    return a->at.step != b->at.step ? a->at.step < b->at.step : a->since_ms < b->since_ms;
}

static void count_behind(const struct driver *d, struct watch_view *v)
{
    v->first = -1;
    v->n_behind = 0;
    for (int k = 0; k < d->membership.n_ranks; k++) {
        if (!watch_is_behind(d, v, k))
            continue;
        v->n_behind++;
        if (v->first < 0 || is_further(&d->seats[k], &d->seats[v->first]))
            v->first = k;
    }
    ASSERT((v->first < 0) == (v->n_behind == 0) && v->n_behind <= d->membership.n_ranks);
}

struct watch_view watch_look(const struct driver *d)
{
    struct watch_view v = {.waiting = latest_waiting(d)};
    for (int sign = 0; sign < WATCH_SIGNS && v.n_behind == 0; sign++) {
        v.sign = (enum watch_sign)sign;
        count_behind(d, &v);
    }
    if (d->stage == STAGE_FORM && v.n_behind > 1)
        v.first = -1;
    return v;
}

/* ---- saying it ---- */

/* "rank 3", "ranks 0 1 4-9": the ranks that are behind, or (behind == 0) those that are not,
 * except `but`. */
static int put_ranks(struct buf *b, const struct driver *d, const struct watch_view *v, int behind,
                     int but)
{
    struct buf list = {0};
    int n = 0, n_items = 0;
    for (int k = 0, end; k < d->membership.n_ranks; k = end) {
        for (end = k;
             end < d->membership.n_ranks && end != but && watch_is_behind(d, v, end) == behind;
             end++)
            ;
        n += end - k;
        if (end > k && n_items++ < MOST_NAMED)
            buf_printf(&list, end - k > 2 ? " %d-%d" : end - k == 2 ? " %d %d" : " %d", k, end - 1);
        end += end == k;
    }
    if (n > 0)
        buf_printf(b, "rank%s%s%s", n > 1 ? "s" : "", buf_cstr(&list),
                   n_items > MOST_NAMED ? " and more" : "");
    buf_fini(&list);
    return n;
}

static void put_who(struct buf *b, const struct driver *d, int rank)
{
    const struct seat *s = &d->seats[rank];
    if (s->is_taken)
        buf_printf(b, "rank %d (%s, pid %lld)", rank, s->host, (long long)s->pid);
    else
        buf_printf(b, "rank %d", rank);
}

/* The step that a rank is known to be in.  If others wait in a later step, the rank must have taken
 * part in all steps before that one. */
static int64_t known_step(const struct driver *d, const struct watch_view *v, int rank)
{
    int64_t step = d->seats[rank].at.step;
    if (d->stage != STAGE_TRAIN || v->waiting < 0 || !watch_is_silent(d, rank))
        return step;
    return max_i64(step, watch_head_of(d, v->waiting)->at.step);
}

/* "in backward of step 118, bucket 3, for 12.1 s" */
static void put_where(struct buf *b, const struct driver *d, const struct watch_view *v, int rank)
{
    const struct seat *s = &d->seats[rank];
    const struct progress *p = &s->at;
    int has_step =
        phase_is_step(p->phase) || (p->phase == PHASE_CHECKPOINT && d->stage == STAGE_TRAIN);
    int has_bucket = p->phase == PHASE_BACKWARD || p->phase == PHASE_REDUCE;
    int64_t step = known_step(d, v, rank), left_out = watch_n_left_out(d, v, rank);
    if (left_out > 0) {
        buf_printf(b,
                   "done with %lld collective%s fewer than the others, so that they did not reduce "
                   "the same",
                   (long long)left_out, left_out > 1 ? "s" : "");
        return;
    }
    if (step > p->step) {
        buf_printf(b, "in step %lld, silent for %.1f s (before, in %s%s %lld)", (long long)step,
                   1e-3 * (double)(d->now_ms - s->heard_ms), phase_name(p->phase),
                   phase_of(p->phase), (long long)p->step);
        return;
    }
    buf_printf(b, p->phase == PHASE_IDLE ? "%s" : "in %s", phase_name(p->phase));
    if (has_step)
        buf_printf(b, "%s %lld", phase_of(p->phase), (long long)p->step);
    if (has_bucket && p->bucket >= 0)
        buf_printf(b, ", bucket %lld,", (long long)p->bucket);
    buf_printf(b, " for %.1f s", 1e-3 * (double)(d->now_ms - s->since_ms));
    if (watch_is_silent(d, rank))
        buf_printf(b, ", silent for %.1f s", 1e-3 * (double)(d->now_ms - s->heard_ms));
}

/* " in bucket 3 of step 118"; the step is left out if it equals `step`. */
static void put_collective(struct buf *b, const struct collective *c, int64_t step)
{
    if (c->number == 0)
        return;
    if (c->bucket >= 0)
        buf_printf(b, " in bucket %lld", (long long)c->bucket);
    else
        buf_printf(b, c->bucket == RING_SYNC ? " in batch statistics" : " in sharing the state");
    if (c->bucket != RING_STATE && c->step != step)
        buf_printf(b, " of step %lld", (long long)c->step);
}

static const struct collective *waited_in(const struct driver *d, const struct watch_view *v)
{
    static const struct collective none;
    return v->waiting >= 0 ? &watch_head_of(d, v->waiting)->at : &none;
}

/* 1: training goes on, so a rank that lost only its connection with the driver may still train. */
static int is_going_on(const struct driver *d)
{
    return d->stage == STAGE_TRAIN && !d->seats[0].answer &&
           d->now_ms - d->seats[0].moved_ms < d->beat_ms;
}

/* "; ranks 0 1 3 wait for it in bucket 3" */
static void put_waiters(struct buf *b, const struct driver *d, const struct watch_view *v)
{
    struct buf who = {0};
    int n = put_ranks(&who, d, v, 0, -1);
    if (is_going_on(d) && watch_n_left_out(d, v, v->first) == 0) {
        buf_printf(b, "; training goes on");
    } else if (n > 0) {
        buf_printf(b, "; %s %s for %s", buf_cstr(&who), n > 1 ? "wait" : "waits",
                   v->n_behind > 1 ? "them" : "it");
        put_collective(b, waited_in(d, v), known_step(d, v, v->first));
    }
    buf_fini(&who);
}

static void put_nobody(struct buf *b, const struct driver *d, const struct watch_view *v)
{
    buf_printf(b, "all that have not finished wait for each other");
    put_collective(b, waited_in(d, v), -1);
    buf_printf(b, d->stage == STAGE_FORM
                      ? ": they do not reach each other (--iface names the network to use)"
                      : ", and none is behind: look at the network between them");
}

/* The rank with which rank k has no link yet, or -1. */
static int unlinked_with(const struct driver *d, int k)
{
    const struct progress *p = &d->seats[k].at;
    int other = p->unlinked - 1;
    return p->generation == d->formation.generation && other < d->membership.n_ranks && other != k
               ? other
               : -1;
}

/* While ranks form: "; rank 2 (hostC) does not reach rank 1 (hostB) at 10.0.0.2".  The higher rank
 * of a pair connects to the lower one (coll/tcp.h). */
static void put_unlinked(struct buf *b, const struct driver *d)
{
    enum { MOST_SAID = 3 };
    int n = 0;
    for (int k = 0; d->stage == STAGE_FORM && k < d->membership.n_ranks; k++) {
        int other = unlinked_with(d, k);
        if (other < 0 || (other < k && unlinked_with(d, other) == k) || ++n > MOST_SAID)
            continue; /* there is none, or the pair was named already */
        buf_printf(b, "; ");
        put_who(b, d, other > k ? other : k);
        buf_printf(b, " does not reach ");
        put_who(b, d, other > k ? k : other);
        buf_printf(b, " at %s", form_address(d, other > k ? k : other));
    }
    if (n > MOST_SAID)
        buf_printf(b, "; so it is with %d more ranks", n - MOST_SAID);
}

static void put_behind(const struct driver *d, const struct watch_view *v, struct buf *b)
{
    ASSERT(v->first >= 0 && v->n_behind > 0);
    put_who(b, d, v->first);
    buf_printf(b, " is ");
    put_where(b, d, v, v->first);
    if (v->n_behind > 1) {
        buf_printf(b, ", ");
        put_ranks(b, d, v, 1, v->first);
        buf_printf(b, " likewise");
    }
    put_waiters(b, d, v);
}

void watch_put_line(const struct driver *d, const struct watch_view *v, struct buf *b)
{
    if (v->first < 0)
        put_nobody(b, d, v);
    else
        put_behind(d, v, b);
    put_unlinked(b, d);
}

void watch_put_waiters_for(const struct driver *d, int rank, struct buf *b)
{
    struct watch_view v = watch_look(d);
    if (d->stage > STAGE_WAIT && rank < d->membership.n_ranks && watch_is_behind(d, &v, rank)) {
        v.first = rank;
        put_waiters(b, d, &v);
    }
}

struct cause watch_cause_at(const struct driver *d, int rank, int code)
{
    const struct progress *p = &d->seats[rank].at;
    ASSERT(rank >= 0 && rank < d->n_seats && code < 0);
    return (struct cause){.rank = rank,
                          .code = code,
                          .phase = p->phase,
                          .step = d->stage == STAGE_TRAIN ? p->step : d->run.step};
}

/* ---- before it is too late ---- */

static struct watch_view look_for_silence(const struct driver *d)
{
    struct watch_view v = {.waiting = latest_waiting(d), .sign = WATCH_SILENCE};
    count_behind(d, &v);
    return v;
}

static void watch_warn(const struct driver *d, const struct watch_view *v)
{
    struct buf b = {0};
    watch_put_line(d, v, &b);
    queue_log(d->out, LOG_WARN, "%s", buf_cstr(&b));
    driver_event(d, &(struct session_event){.kind = EVENT_WARNING,
                                            .rank = v->first,
                                            .step = d->stage == STAGE_TRAIN && v->first >= 0
                                                        ? d->seats[v->first].at.step
                                                        : d->run.step,
                                            .phase = PHASE_COUNT,
                                            .text = xstrdup(buf_cstr(&b))});
    buf_fini(&b);
}

/* A rank of this formation that has been silent for long and keeps others waiting, or -1. */
static int long_silent(const struct driver *d)
{
    int64_t long_ms = max_i64(d->timeout_ms / 2, 2 * d->beat_ms + d->beat_ms / 2);
    for (int k = 1; k < d->membership.n_ranks; k++)
        if (watch_is_silent(d, k) && d->now_ms - d->seats[k].heard_ms >= long_ms &&
            !d->seats[k].answer)
            return k;
    return -1;
}

void watch_check(struct watch *w)
{
    const struct driver *d = w->d;
    if (d->stage <= STAGE_WAIT || d->stage >= STAGE_ENDING || d->membership.n_ranks == 1)
        return;
    int64_t due = deadline_of_stage(d);
    int is_half = due != INT64_MAX && d->now_ms >= due - deadline_ms(d) / 2;
    if (!is_half && long_silent(d) < 0) {
        w->is_warned = 0;
        return;
    }
    struct watch_view v = is_half ? watch_look(d) : look_for_silence(d);
    if (!w->is_warned)
        watch_warn(d, &v);
    w->is_warned = 1;
}

/* ---- ranks that do not agree ---- */

/* 1: the two collectives of the same number differ.  Their steps may differ only when ranks take
 * the state, to which they come from different steps. */
static int is_other(const struct collective *a, const struct collective *b)
{
    return a->number == b->number && a->number > 0 &&
           (a->bucket != b->bucket || a->n_bytes != b->n_bytes ||
            (a->step != b->step && a->bucket != RING_STATE));
}

static int n_like(const struct driver *d, int rank)
{
    const struct collective *c = &watch_head_of(d, rank)->at;
    int n = 0;
    for (int k = 0; k < d->membership.n_ranks; k++)
        n += watch_head_of(d, k)->at.number == c->number && !is_other(&watch_head_of(d, k)->at, c);
    return n;
}

static void put_own(struct buf *b, const struct driver *d, int rank)
{
    const struct collective *c = &watch_head_of(d, rank)->at;
    put_who(b, d, rank);
    put_collective(b, c, -1);
    buf_printf(b, " (%lld bytes)", (long long)c->n_bytes);
}

static struct decision watch_accuse(struct watch *w, int rank, int64_t step, const char *line)
{
    ASSERT(rank >= 0 && rank < w->d->membership.n_ranks);
    incident_begin(w, line);
    struct decision x = decide_accuse(
        (struct cause){
            .rank = rank, .code = ERR_PROTO, .phase = w->seats[rank].at.phase, .step = step},
        "%s", line);
    x.is_suspect = 1;
    return x;
}

/* Accuse a rank that is done while rank 0 waits in a collective that this rank left out. */
static struct decision compare_done(struct watch *w, int rank)
{
    const struct driver *d = w->d;
    struct watch_view v = {.first = rank, .n_behind = 1, .waiting = 0};
    if (!watch_is_missing(d, 0) || watch_n_left_out(d, &v, rank) == 0)
        return decide(DECIDE_NOTHING);
    struct buf b = {0};
    watch_put_line(d, &v, &b);
    struct decision x = watch_accuse(w, rank, d->seats[rank].at.step, buf_cstr(&b));
    buf_fini(&b);
    return x;
}

static struct decision compare_next(struct watch *w, int rank)
{
    const struct driver *d = w->d;
    if (!is_other(&watch_head_of(d, rank)->at, &watch_head_of(d, 0)->at))
        return decide(DECIDE_NOTHING);
    int odd = n_like(d, 0) < n_like(d, rank) ? 0 : rank, even = odd ? 0 : rank;
    struct buf b = {0};
    buf_printf(&b, "the ranks differ in what they reduce next: ");
    put_own(&b, d, odd);
    buf_printf(&b, " and ");
    put_own(&b, d, even);
    if (n_like(d, even) > 1)
        buf_printf(&b, ", which %d agree on", n_like(d, even));
    struct decision x = watch_accuse(w, odd, watch_head_of(d, odd)->at.step, buf_cstr(&b));
    buf_fini(&b);
    return x;
}

struct decision watch_compare(struct watch *w, int rank)
{
    const struct driver *d = w->d;
    ASSERT(rank > 0);
    if (d->stage <= STAGE_WAIT || d->stage >= STAGE_ENDING || rank >= d->membership.n_ranks ||
        !d->seats[rank].is_member)
        return decide(DECIDE_NOTHING);
    return watch_is_missing(d, rank) ? compare_next(w, rank) : compare_done(w, rank);
}
