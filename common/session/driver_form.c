/* Forming: which follower trains as which rank, and how the ranks reach each other.
 *
 * Prepare tells each engine its rank and address.  Each engine answers with the step that it holds
 * and with its endpoint; on GPUs rank 0 answers with ids for all.  Form sends endpoints or ids to
 * all ranks, which connect, and the newest state is broadcast.  driver_run.c goes on when all ranks
 * hold it. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

/* ---- prepare ---- */

static int form_is_loopback(const char *address)
{
    return !strncmp(address, "127.", 4) || !strcmp(address, "::1");
}

/* The driver's own address, as ranks on other machines reach it; if all ranks are local, as the
 * first of them reaches it. */
static const char *form_own_address(const struct driver *d)
{
    const char *found = NULL;
    if (d->o.advertise)
        return d->o.advertise;
    for (int k = 1; k < d->membership.n_ranks; k++) {
        const struct conn *c = d->seats[k].conn;
        if (!form_is_loopback(c->peer))
            return c->local;
        found = found ? found : c->local;
    }
    return found ? found : "127.0.0.1";
}

static const char *form_address_of(const struct driver *d, int rank, const char *own)
{
    const struct seat *s = &d->seats[rank];
    ASSERT(rank >= 0 && rank < d->n_seats && s->is_taken);
    if (rank == 0)
        return own;
    if (s->advertise)
        return s->advertise;
    return form_is_loopback(s->conn->peer) ? own : s->conn->peer;
}

const char *form_address(const struct driver *d, int rank)
{
    return form_address_of(d, rank, form_own_address(d));
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
    ASSERT(n > 0);
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
    int n = d->membership.n_ranks;
    struct place *p = xcalloc((size_t)n, sizeof *p);
    for (int k = 0; k < n; k++)
        p[k] = (struct place){
            .host_id = d->seats[k].host_id, .pid_space = d->seats[k].pid_space, .rank = k};
    qsort(p, (size_t)n, sizeof *p, by_host);
    for (int first = 0, end; first < n; first = end) {
        for (end = first; end < n && !strcmp(p[end].host_id, p[first].host_id); end++)
            p[end].local = end - first;
        for (int i = first; i < end; i++)
            p[i].n_local = end - first;
        count_containers(p + first, end - first);
    }
    qsort(p, (size_t)n, sizeof *p, by_rank);
    return p;
}

void form_say_joined(struct formation *f)
{
    ASSERT(f->d->membership.n_here == f->d->membership.n_ranks);
    for (int k = 1; k < f->d->membership.n_ranks; k++) {
        if (f->seats[k].is_said)
            continue;
        f->seats[k].is_said = 1;
        driver_event(f->d, &(struct session_event){
                               .kind = EVENT_JOIN, .rank = k, .step = -1, .phase = PHASE_COUNT});
    }
}

void form_saw(struct formation *f, int64_t generation)
{
    f->generation = max_i64(f->generation, generation);
}

void form_ask(struct formation *f)
{
    ASSERT(stage_answer(f->d->stage) != 0);
    f->n_answers = 0;
    for (int k = 0; k < f->d->membership.n_ranks; k++) {
        report_free(f->seats[k].answer);
        f->seats[k].answer = NULL;
    }
}

/* Drop the rank's list of tensors if another rank's equal list is kept, because thousands of ranks'
 * lists would need much memory until the last one has answered. */
static void form_slim(struct formation *f, int rank, struct report *r)
{
    ASSERT(f->n_answers == 0 || f->seats[f->first_answer].answer);
    if (f->n_answers == 0)
        f->first_answer = rank;
    else if (r->kind == REPORT_EPOCH &&
             hash_equal(r->epoch.replica, f->seats[f->first_answer].answer->epoch.replica))
        report_drop_tensors(r);
}

void form_answer(struct formation *f, int rank, struct report *r)
{
    ASSERT(r->kind == stage_answer(f->d->stage) && r->generation == f->generation);
    ASSERT(rank >= 0 && rank < f->d->membership.n_ranks && f->seats[rank].is_member);
    ASSERT(!f->seats[rank].answer && f->n_answers < f->d->membership.n_ranks);
    form_slim(f, rank, r);
    f->seats[rank].answer = r;
    f->seats[rank].answered_ms = f->d->now_ms;
    f->n_answers++;
}

void form_begin(struct formation *f)
{
    ASSERT(f->d->stage == STAGE_GATHER || f->d->stage == STAGE_WAIT);
    ASSERT(f->generation >= 0);
    f->generation++;
    f->since_ns = f->d->now_ns;
    for (int k = 0; k < f->d->membership.n_ranks; k++)
        f->seats[k].is_member = 1;
}

void form_send_prepare(const struct driver *d)
{
    struct place *places = place_ranks(d);
    const char *own = form_own_address(d);
    ASSERT(d->stage == STAGE_PREPARE && d->formation.n_answers == 0);

    for (int k = 0; k < d->membership.n_ranks; k++) {
        struct cmd *c = cmd_new(CMD_PREPARE, d->formation.generation);
        c->prepare.rank = k;
        c->prepare.n_ranks = d->membership.n_ranks;
        c->prepare.local = places[k].local;
        c->prepare.n_local = places[k].n_local;
        c->prepare.n_container = places[k].n_container;
        c->prepare.address = xstrdup(form_address_of(d, k, own));
        c->prepare.inject = inject_for_training(d, k);
        c->prepare.standby = succession_id(d) ? xstrdup(succession_id(d)) : NULL;
        if (k == 0) {
            queue_command(d->out, c);
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
    ASSERT(d->seats[0].answer->kind == REPORT_PREPARED);
    for (int k = 1; k < d->membership.n_ranks; k++)
        if (d->seats[k].answer->prepared.step > d->seats[best].answer->prepared.step)
            best = k;
    return best;
}

struct decision form_compare_libraries(const struct driver *d)
{
    const char *own = d->seats[0].answer->prepared.library;
    ASSERT(d->stage == STAGE_PREPARE && d->formation.n_answers == d->membership.n_ranks);
    for (int k = 1; k < d->membership.n_ranks; k++) {
        const char *other = d->seats[k].answer->prepared.library;
        if (!strcmp(own ? own : "", other ? other : ""))
            continue;
        char *who = driver_label(d, k);
        struct decision x =
            decide_accuse((struct cause){.rank = k,
                                         .code = ERR_UNSUPPORTED,
                                         .phase = PHASE_COUNT,
                                         .step = -1,
                                         .is_final = 1},
                          "%s communicates by %s, rank 0 by %s: install the same version on all",
                          who, other ? other : "something else", own ? own : "something else");
        free(who);
        return x;
    }
    return decide(DECIDE_NOTHING);
}

/* Rank 0's ids replace all endpoints, so that Form does not grow with the ranks. */
static void gather_endpoints(struct formation *f, struct cmd *c)
{
    const int n = f->d->membership.n_ranks;
    struct report *own = f->seats[0].answer;
    c->form.ids = own->prepared.ids;
    own->prepared.ids = (struct blob){0};
    if (c->form.ids.len)
        return;
    c->form.n_endpoints = n;
    c->form.endpoint = xcalloc((size_t)n, sizeof(struct blob));
    for (int k = 0; k < n; k++) { /* moved, not copied: a large job's endpoints are megabytes */
        c->form.endpoint[k] = f->seats[k].answer->prepared.endpoint;
        f->seats[k].answer->prepared.endpoint = (struct blob){0};
    }
}

struct cmd *form_command(struct formation *f)
{
    struct cmd *c = cmd_new(CMD_FORM, f->generation);
    ASSERT(f->d->stage == STAGE_PREPARE && f->n_answers == f->d->membership.n_ranks);
    c->form.source = newest_rank(f->d);
    gather_endpoints(f, c);
    return c;
}

/* ---- formed ---- */

struct decision form_compare_steps(const struct driver *d)
{
    int64_t step = d->seats[0].answer->formed.step;
    ASSERT(d->stage == STAGE_FORM && d->formation.n_answers == d->membership.n_ranks);
    for (int k = 1; k < d->membership.n_ranks; k++) {
        int64_t other = d->seats[k].answer->formed.step;
        if (other != step)
            return decide_misbehaved(k, "it holds step %lld after forming, rank 0 step %lld",
                                     (long long)other, (long long)step);
    }
    return decide(DECIDE_NOTHING);
}

static struct session_process *list_processes(const struct driver *d)
{
    struct session_process *p = xcalloc((size_t)d->membership.n_ranks, sizeof *p);
    for (int k = 0; k < d->membership.n_ranks; k++)
        p[k] = (struct session_process){d->seats[k].pid, xstrdup(d->seats[k].host)};
    return p;
}

void form_say(const struct driver *d)
{
    ASSERT(d->stage == STAGE_FORM && d->formation.generation >= 1);
    driver_event(d, &(struct session_event){
                        .kind = EVENT_FORM,
                        .rank = -1,
                        .step = d->run.step,
                        .phase = PHASE_COUNT,
                        .form = {.n_ranks = d->membership.n_ranks,
                                 .generation = d->formation.generation,
                                 .seconds = 1e-9 * (double)(d->now_ns - d->formation.since_ns),
                                 .live_lr = d->run.live_lr,
                                 .live_step = d->run.live_step,
                                 .voters = d->membership.succession.next,
                                 .process = list_processes(d)}});
}

void form_done(struct formation *f)
{
    ASSERT(f->d->stage == STAGE_FORM &&
           f->d->membership.succession.next.generation == f->generation);
    f->has_formed = 1;
    f->formed_ms = f->d->now_ms;
}
