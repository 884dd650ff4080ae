/* Incidents: when ranks wait for good, the driver asks all of them for their last collectives,
 * before it aborts anything, and hands the answers over for a file.
 *
 * Answers come within moments, also from followers that were told to leave.  A rank that does not
 * answer, because it is frozen or gone, is left out.  There is one incident at a time, and at most
 * MOST_INCIDENTS in a job. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

enum {
    MOST_INCIDENTS = 32,
    ANSWER_MS = 600, /* the time for answers; less than followers have to end (ABORT_MS) */
};

/* ---- asking ---- */

static void incident_ask(const struct driver *d, const struct seat *s)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Inspect i = WIRE__INSPECT__INIT;
    ASSERT(d->watch.incident);

    i.incident = d->watch.incident->number;
    m.generation = d->formation.generation;
    m.body_case = WIRE__CONTROL__BODY_INSPECT;
    m.inspect = &i;
    if (s->conn && s->conn->state == CONN_MEMBER)
        driver_send(d, s->conn, &m);
    else if (!s->conn)
        queue_put(d->out, &(struct action){.kind = ACTION_RING});
}

static void note_rank(struct watch *w, int rank, int is_behind)
{
    const struct driver *d = w->d;
    struct incident *i = w->incident;
    const struct seat *s = &d->seats[rank];
    if (!s->is_taken || i->n == INCIDENT_MOST_RANKS)
        return;
    i->rank[i->n++] = (struct incident_rank){
        .rank = rank,
        .host = xstrdup(s->host),
        .pid = s->pid,
        .conn = s->conn ? s->conn->id : INCIDENT_OWN,
        .is_behind = is_behind,
        .at = s->at,
        .phase_s = 1e-3 * (double)(d->now_ms - s->since_ms),
        .heard_s = rank > 0 ? 1e-3 * (double)(d->now_ms - s->heard_ms) : 0,
    };
    incident_ask(d, s);
}

void incident_begin(struct watch *w, const char *text)
{
    const struct driver *d = w->d;
    ASSERT(text && *text);
    if (w->incident || w->n_incidents == MOST_INCIDENTS)
        return;
    struct watch_view v = watch_look(d);
    w->incident = xcalloc(1, sizeof *w->incident);
    *w->incident = (struct incident){
        .number = ++w->n_incidents,
        .text = xstrdup(text),
        .generation = d->formation.generation,
        .stage = stage_name(d->stage),
        .n_ranks = d->membership.n_ranks,
        .rank = xcalloc(INCIDENT_MOST_RANKS, sizeof(struct incident_rank)),
    };
    w->incident_until_ms = d->now_ms + ANSWER_MS;
    for (int behind = 1; behind >= 0; behind--)
        for (int k = 0; k < d->membership.n_ranks; k++)
            if (watch_is_behind(d, &v, k) == behind)
                note_rank(w, k, behind);
    if (w->n_incidents == MOST_INCIDENTS)
        queue_log(d->out, LOG_WARN, "this was incident %d: no more are written down",
                  MOST_INCIDENTS);
}

/* ---- answers ---- */

static struct incident_rank *incident_asked(const struct driver *d, int64_t conn)
{
    for (int i = 0; d->watch.incident && i < d->watch.incident->n; i++)
        if (d->watch.incident->rank[i].conn == conn)
            return &d->watch.incident->rank[i];
    return NULL;
}

static int incident_is_complete(const struct driver *d)
{
    ASSERT(d->watch.incident->n >= 0 && d->watch.incident->n <= INCIDENT_MOST_RANKS);
    for (int i = 0; i < d->watch.incident->n; i++)
        if (!d->watch.incident->rank[i].has_answered)
            return 0;
    return 1;
}

void incident_finish(struct watch *w)
{
    const struct driver *d = w->d;
    if (!w->incident)
        return;
    queue_put(d->out, &(struct action){.kind = ACTION_INCIDENT, .incident = w->incident});
    w->incident = NULL;
}

void incident_check(struct watch *w)
{
    const struct driver *d = w->d;
    if (w->incident && (incident_is_complete(d) || d->now_ms >= w->incident_until_ms))
        incident_finish(w);
}

/* Takes `ring`. */
static void incident_take(struct watch *w, struct incident_rank *r, struct collective *ring, int n)
{
    if (!r || r->has_answered) {
        free(ring);
        return;
    }
    r->has_answered = 1;
    r->ring = ring;
    r->n_ring = n;
    incident_check(w);
}

void incident_silent(struct watch *w, int rank, const char *why)
{
    const struct driver *d = w->d;
    if (d->stage <= STAGE_WAIT || rank >= d->membership.n_ranks || !d->seats[rank].is_member)
        return;
    char *who = driver_label(d, rank), *text = xasprintf("%s: %s", who, why);
    incident_begin(w, text);
    free(text);
    free(who);
}

void incident_message(struct watch *w, int64_t conn, const Wire__Ring *m)
{
    struct ring_answer ring;
    if (!w->incident || m->incident != w->incident->number)
        return;
    convert_to_ring(m, &ring);
    incident_take(w, incident_asked(w->d, conn), ring.collective, ring.n);
}

void incident_own(struct watch *w, int64_t now_ns, const struct collective *c, int n)
{
    struct collective *ring = xcalloc((size_t)n + 1, sizeof *ring);
    ASSERT(n >= 0 && n <= RING_LEN);
    memcpy(ring, c, (size_t)n * sizeof *ring);
    ring_rebase(ring, n, now_ns);
    incident_take(w, incident_asked(w->d, INCIDENT_OWN), ring, n);
}
