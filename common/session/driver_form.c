/* Forming: which follower trains as which rank, and how the ranks reach each other.
 *
 * Prepare tells each engine its rank and address.  Each engine answers with the step that it holds
 * and with its endpoint; on GPUs rank 0 answers with ids for all.  Form sends endpoints or ids to
 * all ranks, which connect, and the newest state is broadcast.  driver_run.c goes on when all ranks
 * hold it. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "session/driver_impl.h"

/* ---- prepare ---- */

static int is_loopback(const char *address)
{
    return !strncmp(address, "127.", 4) || !strcmp(address, "::1");
}

/* The driver's own address, as ranks on other machines reach it; if all ranks are local, as the
 * first of them reaches it. */
static const char *own_address(const struct driver *d)
{
    const char *found = NULL;
    if (d->o.advertise)
        return d->o.advertise;
    for (int k = 1; k < d->n_ranks; k++) {
        const struct conn *c = d->seats[k].conn;
        if (!is_loopback(c->peer))
            return c->local;
        found = found ? found : c->local;
    }
    return found ? found : "127.0.0.1";
}

static const char *address_of(const struct driver *d, int rank, const char *own)
{
    const struct seat *s = &d->seats[rank];
    if (rank == 0)
        return own;
    if (s->advertise)
        return s->advertise;
    return is_loopback(s->conn->peer) ? own : s->conn->peer;
}

const char *form_address(const struct driver *d, int rank)
{
    return address_of(d, rank, own_address(d));
}

struct place {
    const char *host_id;
    int64_t pid_space;
    int rank;
    int local, n_local;
    int n_container; /* of n_local: those of the same space of pids */
};

static int by_host(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int c = strcmp(x->host_id, y->host_id);
    if (c == 0 && x->pid_space != y->pid_space)
        c = x->pid_space < y->pid_space ? -1 : 1;
    return c ? c : x->rank - y->rank;
}

static int by_rank(const void *a, const void *b)
{
    return ((const struct place *)a)->rank - ((const struct place *)b)->rank;
}

/* Count the ranks of each container among the n ranks of one host, which are in order. */
static void count_containers(struct place *p, int n)
{
    for (int first = 0, end; first < n; first = end) {
        for (end = first; end < n && p[end].pid_space == p[first].pid_space;)
            end++;
        for (int i = first; i < end; i++)
            p[i].n_container = end - first;
    }
}

/* The index of each rank among those on its host; [n_ranks], for free(). */
static struct place *place_ranks(const struct driver *d)
{
    int n = d->n_ranks;
    struct place *p = xcalloc((size_t)n, sizeof(*p));
    for (int k = 0; k < n; k++)
        p[k] = (struct place){
            .host_id = d->seats[k].host_id, .pid_space = d->seats[k].pid_space, .rank = k};
    qsort(p, (size_t)n, sizeof(*p), by_host);
    for (int first = 0, end; first < n; first = end) {
        for (end = first; end < n && !strcmp(p[end].host_id, p[first].host_id); end++)
            p[end].local = end - first;
        for (int i = first; i < end; i++)
            p[i].n_local = end - first;
        count_containers(p + first, end - first);
    }
    qsort(p, (size_t)n, sizeof(*p), by_rank);
    return p;
}

static void say_joined(struct driver *d)
{
    for (int k = 1; k < d->n_ranks; k++) {
        if (d->seats[k].is_said)
            continue;
        d->seats[k].is_said = 1;
        driver_event(d, &(struct session_event){
                            .kind = EVENT_JOIN, .rank = k, .step = -1, .phase = PHASE_COUNT});
    }
}

/* Log the new numbers of ranks that were renumbered, because ranks were lost or spares have joined.
 * Otherwise the numbers in the log would mean other ranks to --drain.  In a large job only the
 * first are logged. */
static void say_moved(struct driver *d)
{
    enum { MOST_SAID = 16 };
    int n = 0;
    for (int k = 1; k < d->n_seats; k++) {
        struct seat *s = &d->seats[k];
        if (!s->is_taken || s->named == seat_name(d, k))
            continue;
        if (++n <= MOST_SAID)
            seat_say_moved(d, k);
        s->named = seat_name(d, k);
    }
    if (n > MOST_SAID)
        queue_log(&d->out, LOG_INFO, "%d more ranks and spares have new numbers (--status)",
                  n - MOST_SAID);
}

void form_prepare(struct driver *d)
{
    struct place *places = place_ranks(d);
    const char *own = own_address(d);

    say_joined(d);
    say_moved(d);
    d->formation.generation++;
    d->formation.since_ns = d->now_ns;
    succession_prepare(d);
    stage_begin(d, STAGE_PREPARE, PHASE_PREPARE);
    for (int k = 0; k < d->n_ranks; k++) {
        d->seats[k].is_member = 1;
        struct cmd *c = cmd_new(CMD_PREPARE, d->formation.generation);
        c->prepare.rank = k;
        c->prepare.n_ranks = d->n_ranks;
        c->prepare.local = places[k].local;
        c->prepare.n_local = places[k].n_local;
        c->prepare.n_container = places[k].n_container;
        c->prepare.address = xstrdup(address_of(d, k, own));
        c->prepare.inject = inject_for_training(d, k);
        c->prepare.standby = succession_id(d) ? xstrdup(succession_id(d)) : NULL;
        if (k == 0) {
            queue_command(&d->out, c);
        } else {
            stage_tell_rank(d, k, c);
            cmd_free(c);
        }
    }
    free(places);
}

/* ---- form ---- */

static int newest_rank(const struct driver *d)
{
    int best = 0;
    for (int k = 1; k < d->n_ranks; k++)
        if (d->seats[k].answer->prepared.step > d->seats[best].answer->prepared.step)
            best = k;
    return best;
}

/* 1: all ranks communicate by the same library and version; 0: they do not, and the job has failed.
 */
static int are_libraries_equal(struct driver *d)
{
    const char *own = d->seats[0].answer->prepared.library;
    for (int k = 1; k < d->n_ranks; k++) {
        const char *other = d->seats[k].answer->prepared.library;
        if (!strcmp(own ? own : "", other ? other : ""))
            continue;
        char *who = driver_label(d, k);
        end_accuse(d,
                   (struct cause){.rank = k,
                                  .code = ERR_UNSUPPORTED,
                                  .phase = PHASE_COUNT,
                                  .step = -1,
                                  .is_final = 1},
                   0, "%s communicates by %s, rank 0 by %s: install the same version on all", who,
                   other ? other : "something else", own ? own : "something else");
        free(who);
        return 0;
    }
    return 1;
}

/* Rank 0's ids replace all endpoints, so that Form does not grow with the ranks. */
static void gather_endpoints(struct driver *d, struct cmd *c)
{
    struct report *own = d->seats[0].answer;
    c->form.ids = own->prepared.ids;
    own->prepared.ids = (struct blob){0};
    if (c->form.ids.len)
        return;
    c->form.n_endpoints = d->n_ranks;
    c->form.endpoint = xcalloc((size_t)d->n_ranks, sizeof(struct blob));
    for (int k = 0; k < d->n_ranks;
         k++) { /* moved, not copied: a large job's endpoints are megabytes */
        c->form.endpoint[k] = d->seats[k].answer->prepared.endpoint;
        d->seats[k].answer->prepared.endpoint = (struct blob){0};
    }
}

void done_prepare(struct driver *d)
{
    struct cmd *c;
    if (!are_libraries_equal(d))
        return;
    if (!lead_claims_are_true(d) || !succession_lets_form(d))
        return;
    c = cmd_new(CMD_FORM, d->formation.generation);
    c->form.source = newest_rank(d);
    gather_endpoints(d, c);
    stage_begin(d, STAGE_FORM, PHASE_FORM);
    stage_tell_all(d, c);
}
