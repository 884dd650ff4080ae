/* Gathering: from the first Hello until every rank is Ready.
 *
 * Happy path: a Hello takes a seat and is answered by Welcome; Ready is compared with rank 0's own
 * layout and data; when all seats are taken and Ready, the formation begins.
 * Otherwise: a follower that does not fit is Refused with the reason, and one that leaves frees its
 * seat.  Neither ends the job.  Only the deadline does.
 *
 * While the job gathers, a follower that asked for any rank may be moved to another seat, even to a
 * spare's.  So `--rank 1` finds its seat free whatever the order of arrival.  Prepare tells each
 * follower its final rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/text.h"
#include "base/util.h"
#include "session/driver_impl.h"

void gather_refuse(struct membership *m, struct conn *c, Wire__Reason reason, const char *text)
{
    const struct driver *d = m->d;
    Wire__Control msg;
    Wire__Refused r;
    struct arena a;
    ASSERT(c->state != CONN_LEAVING && text);

    arena_init(&a);
    msg_refuse(&msg, &r, &a, reason, text, d->o.run);
    stranger_say(m, "refused %s: %s", c->from, r.text);
    driver_send(d, c, &msg);
    arena_fini(&a);
    conn_leave(m, c, REFUSED_MS);
}

/* A rank's seat is free: move a spare there. */
static void move_up(struct membership *m, int rank)
{
    ASSERT(!m->seats[rank].is_taken);
    for (int k = m->n_ranks; k < m->n_seats && rank < m->n_ranks; k++)
        if (m->seats[k].is_taken) {
            seat_move(m, k, rank);
            seat_say_moved(m, rank);
            return;
        }
    if (rank < m->n_ranks)
        m->gather.full_ms = -1;
}

void gather_leave(struct membership *m, int rank, const char *why)
{
    const struct driver *d = m->d;
    char *who = driver_label(d, rank);
    ASSERT(rank > 0 && d->seats[rank].is_taken && !d->seats[rank].is_member);
    queue_log(d->out, LOG_WARN, "%s left before %s: %s; its place is free again", who,
              d->stage == STAGE_GATHER ? "training began" : "it took part", why);
    free(who);
    seat_clear(m, rank);
    if (d->stage == STAGE_GATHER)
        move_up(m, rank);
}

/* ---- Hello ---- */

static int free_spare(const struct driver *d)
{
    for (int k = d->membership.n_ranks; k < d->n_seats; k++)
        if (!d->seats[k].is_taken)
            return k;
    return -1;
}

static char *holder_of(const struct driver *d, int rank)
{
    const struct seat *s = &d->seats[rank];
    return xasprintf("%s (pid %lld)", s->host, (long long)s->pid);
}

static int is_same_version(struct membership *m, struct conn *c, const Wire__Hello *h)
{
    const struct driver *d = m->d;
    if (h->protocol == MSG_PROTOCOL && !strcmp(h->version, DPTRAIN_VERSION))
        return 1;
    char *text = xasprintf("the follower is dptrain %s (protocol %u), the driver on %s dptrain %s "
                           "(protocol %d): install the same version on all machines",
                           h->version, h->protocol, d->o.host, DPTRAIN_VERSION, MSG_PROTOCOL);
    gather_refuse(m, c, WIRE__REASON__REASON_VERSION, text);
    free(text);
    return 0;
}

/* The other ranks could not use the follower's or standby's address if it holds on one link. */
static int is_reachable(struct membership *m, struct conn *c, const Wire__Hello *h)
{
    const char *address = text_is_link_local(c->peer) ? c->peer : h->advertise;
    if (!text_is_link_local(address))
        return 1;
    char *text = xasprintf("it comes from %s, a link-local IPv6 address, which other ranks cannot "
                           "use: give --root an address or name of the driver's that is not "
                           "link-local, and this machine an address beside it (\"ip address add "
                           "10.0.0.2/24 dev IF\")",
                           address);
    gather_refuse(m, c, WIRE__REASON__REASON_DEVICE, text);
    free(text);
    return 0;
}

static void refuse_taken(struct membership *m, struct conn *c, int rank)
{
    const struct driver *d = m->d;
    char *holder = holder_of(d, rank);
    char *text = rank == 0 ? xasprintf("rank 0 is the driver itself, %s; ask for 1 to %lld, or any",
                                       holder, (long long)d->o.cluster.max_ranks - 1)
                           : xasprintf("rank %d is taken by %s; ask for any rank", rank, holder);
    gather_refuse(m, c, WIRE__REASON__REASON_RANK_TAKEN, text);
    free(text);
    free(holder);
}

static void refuse_full(struct membership *m, struct conn *c)
{
    const struct driver *d = m->d;
    static const char more[] = "more are let in by its cluster.max_ranks and cluster.spares";
    char *text =
        d->o.cluster.spares
            ? xasprintf("the job has all its %lld ranks and %lld spares; %s",
                        (long long)d->o.cluster.max_ranks, (long long)d->o.cluster.spares, more)
            : xasprintf("the job has all its %lld ranks; %s", (long long)d->o.cluster.max_ranks,
                        more);
    gather_refuse(m, c, WIRE__REASON__REASON_FULL, text);
    free(text);
}

/* Move the follower on this seat to another one, if it asked for any rank.  1: `rank` is free now.
 */
static int move_away(struct membership *m, int rank)
{
    const struct driver *d = m->d;
    int to = seats_free_rank(m);
    ASSERT(d->stage == STAGE_GATHER && d->seats[rank].is_taken && rank > 0);
    if (to < 0)
        to = free_spare(d);
    if (!d->seats[rank].is_any || to < 0)
        return 0;
    seat_move(m, rank, to);
    seat_say_moved(m, to);
    if (to >= d->membership.n_ranks)
        m->gather.full_ms = -1; /* the follower that takes the rank has yet to open its data */
    return 1;
}

/* The seat for this Hello, or -1 after refusing it.  A follower that is back wants the rank that it
 * had, and accepts any other. */
static int choose_rank(struct membership *m, struct conn *c, const Wire__Hello *h)
{
    const struct driver *d = m->d;
    int wanted = h->rank, is_back = *h->run != 0;
    if (is_back && wanted >= d->membership.n_ranks) /* the job may have fewer ranks now */
        wanted = -1;
    if (wanted >= d->o.cluster.max_ranks) {
        char *text = xasprintf("rank %d is out of range: this job has %lld ranks, the driver is 0",
                               wanted, (long long)d->o.cluster.max_ranks);
        gather_refuse(m, c, WIRE__REASON__REASON_RANK_RANGE, text);
        free(text);
        return -1;
    }
    if (is_back && wanted > 0 && wanted < d->membership.n_ranks && d->seats[wanted].is_taken)
        wanted = -1;
    if (wanted > 0 && wanted < d->membership.n_ranks &&
        (!d->seats[wanted].is_taken || (d->stage == STAGE_GATHER && move_away(m, wanted))))
        return wanted;
    int is_clash =
        wanted == 0 || (wanted > 0 && wanted < d->membership.n_ranks && d->stage == STAGE_GATHER);
    int rank = wanted < 0 ? neighbour_free_rank(m, h->host_id) : -1;
    if (rank < 0 && !is_clash)
        rank = free_spare(d); /* the place of a rank that comes back is taken: it becomes a spare */
    if (rank < 0 && wanted >= 0 && d->seats[wanted].is_taken)
        refuse_taken(m, c, wanted);
    else if (rank < 0)
        refuse_full(m, c);
    return rank;
}

static void take_seat(struct membership *m, struct conn *c, int rank, const Wire__Hello *h,
                      const Wire__Gpu *gpu)
{
    const struct driver *d = m->d;
    struct seat *s = &m->seats[rank];
    ASSERT(rank > 0 && c->state == CONN_STRANGER && c->rank < 0);
    seat_take(m, rank, c);
    s->is_any = h->rank < 0 || *h->run;
    s->host = xstrdup(h->host);
    s->host_id = xstrdup(h->host_id);
    if (gpu)
        seat_use_gpu(m, rank, gpu->uuid, gpu->bus);
    s->advertise = *h->advertise ? xstrdup(h->advertise) : NULL;
    s->pid = h->pid;
    s->pid_space = h->pid_space;
    s->joined_ms = d->now_ms;
    c->state = CONN_MEMBER;
    c->rank = rank;
    if (m->gather.full_ms < 0 && d->membership.n_here == d->membership.n_ranks)
        m->gather.full_ms = d->now_ms;
    ASSERT(c->state == CONN_MEMBER && m->seats[rank].conn == c);
}

void gather_fill_welcome(const struct driver *d, Wire__Welcome *w, struct arena *a)
{
    w->job = (ProtobufCBinaryData){d->o.job_len, (uint8_t *)(uintptr_t)d->o.job};
    w->host = msg_text(a, d->o.host, MSG_MAX_NAME);
    w->heartbeat_ms = d->beat_ms;
    w->heartbeat_timeout_ms = d->timeout_ms;
    w->run = msg_text(a, d->o.run, 64);
    w->term = d->o.term;
    w->driver_timeout_ms = d->o.cluster.driver_timeout_ms;
    w->predicts = d->o.predict != NULL;
    const char *notice = d->o.cluster.notice ? d->o.cluster.notice : "";
    w->notice = (ProtobufCBinaryData){strlen(notice), (uint8_t *)(uintptr_t)notice};
}

static void gather_welcome(struct membership *m, struct conn *c, int rank, char *device)
{
    const struct driver *d = m->d;
    Wire__Control msg = WIRE__CONTROL__INIT;
    Wire__Welcome w = WIRE__WELCOME__INIT;
    struct arena a;
    ASSERT(rank > 0 && device && c->state == CONN_MEMBER);

    arena_init(&a);
    gather_fill_welcome(d, &w, &a);
    w.rank = rank;
    w.n_ranks = (int)max_i64(d->membership.n_ranks, d->o.n_ranks);
    w.spare = rank >= d->membership.n_ranks;
    w.device = device;
    char *inject = w.spare ? NULL : inject_for_opening(d, rank);
    if (inject)
        w.inject = inject;
    w.standby = succession_address(d, c);
    msg.body_case = WIRE__CONTROL__BODY_WELCOME;
    msg.welcome = &w;
    driver_send(d, c, &msg);
    queue_trust(d->out, c->id);
    free(inject);
    free(w.standby);
    arena_fini(&a);
}

static void say_joined(const struct driver *d, const struct conn *c, int rank, const Wire__Hello *h)
{
    const struct membership *m = &d->membership;
    char name[32], most[32] = "";
    snprintf(name, sizeof name, rank < m->n_ranks ? "rank %d" : "spare %d",
             rank < m->n_ranks ? rank : rank - m->n_ranks + 1);
    if (d->o.cluster.max_ranks > d->o.n_ranks)
        snprintf(most, sizeof most, ", up to %lld", (long long)d->o.cluster.max_ranks);
    queue_log(d->out, LOG_INFO, "%s joined%s: %s (pid %lld) from %s, on %s; %d of %d here%s", name,
              *h->run ? " again, with its state" : "", h->host, (long long)h->pid, c->from,
              d->seats[rank].device, m->n_here, m->n_ranks, most);
}

/* Takes `device`. */
static struct decision seat_follower(struct membership *m, struct conn *c, const Wire__Hello *h,
                                     const Wire__Gpu *gpu, char *device)
{
    int rank = choose_rank(m, c, h);
    ASSERT(device);
    if (rank < 0) {
        free(device);
        return decide(DECIDE_NOTHING);
    }
    take_seat(m, c, rank, h, gpu);
    lead_seated(m, rank, h);
    m->seats[rank].device = device;
    m->seats[rank].named = seat_name(m->d, rank);
    gather_welcome(m, c, rank, device);
    say_joined(m->d, c, rank, h);
    return (struct decision){.kind = DECIDE_JOINED,
                             .rank = rank,
                             .generation = *h->run ? h->formed : 0,
                             .is_wrong = h->wrong};
}

struct decision gather_hello(struct membership *m, struct conn *c, const Wire__Hello *h)
{
    struct decision x = decide(DECIDE_NOTHING);
    const Wire__Gpu *gpu;
    char *why = NULL;

    if (!is_same_version(m, c, h) || !is_reachable(m, c, h) || !lead_hears(m, c, h, &x))
        return x;
    if (*h->standby)
        return succession_hello(m, c, h);
    char *device = choose_device(m->d, h, &gpu, &why);
    if (device)
        return seat_follower(m, c, h, gpu, device);
    gather_refuse(m, c, WIRE__REASON__REASON_DEVICE, why);
    free(why);
    return x;
}

/* ---- Ready ---- */

/* The difference between a follower's layout and rank 0's, in words; for free(). */
static char *layout_difference(const struct report *own, const struct report *theirs)
{
    int n = own->opened.n_tensors, m = theirs->opened.n_tensors;
    for (int i = 0; i < n && i < m; i++) {
        const struct tensor_hash *a = &own->opened.tensor[i], *b = &theirs->opened.tensor[i];
        if (strcmp(a->name, b->name) != 0)
            return xasprintf("tensor %d is %s on it and %s on the driver", i, b->name, a->name);
        if (!hash_equal(a->hash, b->hash))
            return xasprintf("tensor %s has another shape, type or place than on the driver",
                             a->name);
    }
    if (n != m)
        return xasprintf("%d tensors on it and %d on the driver; the first without its like is %s",
                         m, n, n > m ? own->opened.tensor[m].name : theirs->opened.tensor[n].name);
    if (own->opened.n_parameters != theirs->opened.n_parameters)
        return xasprintf("%lld parameters on it and %lld on the driver",
                         (long long)theirs->opened.n_parameters,
                         (long long)own->opened.n_parameters);
    return xstrdup("the tensors agree, their order in memory does not");
}

/* Compare what a follower opened with what rank 0 opened: REASON_NONE, or the reason and *text. */
static Wire__Reason compare_opened(const struct report *own, const struct report *theirs,
                                   char **text)
{
    if (!hash_equal(own->opened.layout, theirs->opened.layout)) {
        char *what = layout_difference(own, theirs);
        *text = xasprintf("the model differs: %s; do both run the same build?", what);
        free(what);
        return WIRE__REASON__REASON_LAYOUT;
    }
    if (own->opened.n_train != theirs->opened.n_train ||
        own->opened.n_validation != theirs->opened.n_validation) {
        *text = xasprintf("the data differs: %lld training and %lld validation samples on it, %lld "
                          "and %lld on the driver",
                          (long long)theirs->opened.n_train, (long long)theirs->opened.n_validation,
                          (long long)own->opened.n_train, (long long)own->opened.n_validation);
        return WIRE__REASON__REASON_SAMPLES;
    }
    if (!hash_equal(own->opened.data, theirs->opened.data)) {
        char a[HASH_TEXT_LEN], b[HASH_TEXT_LEN];
        hash_to_text(theirs->opened.data, a);
        hash_to_text(own->opened.data, b);
        *text = xasprintf("the data differs: as many samples, but fingerprint %.8s on it and %.8s "
                          "on the driver; is it the same data set?",
                          a, b);
        return WIRE__REASON__REASON_DATA;
    }
    if (own->opened.steps_per_epoch != theirs->opened.steps_per_epoch) {
        *text = xasprintf("%lld steps in an epoch on it, %lld on the driver",
                          (long long)theirs->opened.steps_per_epoch,
                          (long long)own->opened.steps_per_epoch);
        return WIRE__REASON__REASON_LAYOUT;
    }
    return WIRE__REASON__REASON_NONE;
}

/* Compare the follower on this seat with rank 0.  1: it was refused. */
static int compare_seat(struct membership *m, int rank)
{
    const struct driver *d = m->d;
    struct conn *c = d->seats[rank].conn;
    char *why = NULL;
    Wire__Reason reason = compare_opened(d->seats[0].opened, d->seats[rank].opened, &why);
    ASSERT(d->seats[0].opened && d->seats[rank].opened && !d->seats[rank].is_member);
    if (reason == WIRE__REASON__REASON_NONE) {
        report_drop_tensors(
            m->seats[rank].opened); /* equal to rank 0's, and there may be thousands of lists */
        return 0;
    }
    char *text = xasprintf("rank %d (%s): %s", rank, d->seats[rank].host, why);
    gather_refuse(m, c, reason, text);
    gather_leave(m, rank, "refused");
    free(text);
    free(why);
    return 1;
}

struct decision gather_own_opened(const struct driver *d)
{
    const struct report *own = d->seats[0].opened;
    struct cause c = {.rank = 0, .code = ERR_CONFIG, .phase = PHASE_OPEN, .step = -1};
    ASSERT(own && d->stage == STAGE_GATHER);
    if (d->run.steps_per_epoch <= 0)
        return decide_accuse(
            c, "an epoch has no steps: %lld training samples are fewer than one global batch",
            (long long)own->opened.n_train);
    if (d->o.evaluate && own->opened.n_validation == 0)
        return decide_accuse(c, "--evaluate: the job names no data for validation; give them by "
                                "--set data.validation=...");
    return decide(DECIDE_NOTHING);
}

void gather_compare_all(struct membership *m)
{
    for (int k = 1; k < m->n_seats; k++)
        while (m->seats[k].opened && compare_seat(m, k))
            ; /* a spare may have taken the seat of one that was refused: compare it, too */
}

void gather_opened(struct membership *m, int rank)
{
    if (m->seats[0].opened)
        compare_seat(m, rank);
}

struct decision gather_check(struct membership *m)
{
    const struct driver *d = m->d;
    struct decision x = decide(DECIDE_NOTHING);
    int is_full;
    if (d->stage != STAGE_GATHER)
        return x;
    if (m->gather.full_ms < 0 && !lead_may_begin(d) && succession_waits_no_more(d))
        return decide(DECIDE_ABSENT);
    is_full = m->gather.full_ms >= 0 && seats_are_ready(m);
    if (m->lead.release_ms)
        return lead_releases(m);
    if ((!is_full && !lead_may_begin(d)) || succession_holds_up(m, &x))
        return x;
    x = decide(DECIDE_PREPARE);
    if (!is_full)
        x.text = xasprintf("no more ranks came: going on with %d", seats_n_ready(d, 0, m->n_ranks));
    return x;
}

void gather_begin(struct membership *m)
{
    ASSERT(m->d->stage == STAGE_GATHER);
    m->gather.full_ms = m->d->o.n_ranks == 1 ? m->d->now_ms : -1;
    gather_wait(m);
}

void gather_wait(struct membership *m)
{
    m->gather.next_missing_ms = m->d->now_ms + MISSING_LINE_MS;
}

/* ---- who is missing ---- */

enum { MOST_NAMED = 8 };

/* A list of ranks, of which the first few are named. */
struct named {
    struct buf text;
    int n;
};

static void name_rank(const struct driver *d, struct named *l, int rank)
{
    const struct seat *s = &d->seats[rank];
    if (++l->n > MOST_NAMED)
        return;
    buf_printf(&l->text, l->n > 1 ? ", rank %d" : "rank %d", rank);
    if (s->is_taken)
        buf_printf(&l->text, " (%s)", s->host);
}

static const char *gather_names(struct named *l)
{
    if (l->n > MOST_NAMED)
        buf_printf(&l->text, " and %d more", l->n - MOST_NAMED);
    return buf_cstr(&l->text);
}

void gather_say_missing(struct membership *m)
{
    const struct driver *d = m->d;
    const int is_gathering = d->stage == STAGE_GATHER && d->membership.gather.full_ms < 0;
    struct named absent = {0}, opening = {0};
    int64_t held_up_ms, until_ms;
    double left_s;

    if (d->stage > STAGE_WAIT || d->now_ms < m->gather.next_missing_ms)
        return;
    gather_wait(m);
    held_up_ms = succession_give_up_ms(d);
    until_ms = held_up_ms > INT64_MIN ? held_up_ms : recover_deadline(d);
    left_s = 1e-3 * (double)(until_ms - d->now_ms);
    if (d->stage == STAGE_WAIT && until_ms <= d->now_ms) /* it ends now */
        return;
    for (int k = 0; k < d->membership.n_ranks; k++) {
        if (d->seats[k].opened)
            continue;
        if (!d->seats[k].is_taken)
            name_rank(d, &absent, k);
        else if (!is_gathering)
            name_rank(d, &opening, k);
    }
    if (absent.n && is_gathering)
        queue_log(d->out, LOG_INFO, "waiting for %s to join: %d of %d here", gather_names(&absent),
                  d->membership.n_here, d->membership.n_ranks);
    else if (absent.n && held_up_ms > INT64_MIN)
        queue_log(d->out, LOG_INFO, "waiting for the %s, or for %s, %.0f s more",
                  d->o.standby_id ? "driver before" : "standby", gather_names(&absent), left_s);
    else if (absent.n)
        queue_log(d->out, LOG_INFO, "waiting for a replacement of %s, %.0f s more",
                  gather_names(&absent), left_s);
    if (opening.n && d->stage == STAGE_WAIT)
        queue_log(d->out, LOG_INFO,
                  "waiting for %s, here already, to open model and data, up to %.0f s more",
                  gather_names(&opening), left_s);
    else if (opening.n)
        queue_log(d->out, LOG_INFO, "waiting for %s to open model and data",
                  gather_names(&opening));
    buf_fini(&absent.text);
    buf_fini(&opening.text);
}
