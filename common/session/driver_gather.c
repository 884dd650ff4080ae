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
#include <strings.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "session/driver_impl.h"

void gather_refuse(struct driver *d, struct conn *c, Wire__Reason reason, const char *text)
{
    Wire__Control m;
    Wire__Refused r;
    struct arena a;

    arena_init(&a);
    msg_refuse(&m, &r, &a, reason, text, d->o.run);
    stranger_say(d, "refused %s: %s", c->from, r.text);
    driver_send(d, c, &m);
    arena_fini(&a);
    driver_leave(d, c, REFUSED_MS);
}

/* A rank's seat is free: move a spare there. */
static void move_up(struct driver *d, int rank)
{
    for (int k = d->n_ranks; k < d->n_seats && rank < d->n_ranks; k++)
        if (d->seats[k].is_taken) {
            seat_move(d, k, rank);
            seat_say_moved(d, rank);
            return;
        }
    if (rank < d->n_ranks)
        d->gather.full_ms = -1;
}

void gather_leave(struct driver *d, int rank, const char *why)
{
    char *who = driver_label(d, rank);
    queue_log(&d->out, LOG_WARN, "%s left before %s: %s; its place is free again", who,
              d->stage == STAGE_GATHER ? "training began" : "it took part", why);
    free(who);
    seat_clear(d, rank);
    if (d->stage == STAGE_GATHER)
        move_up(d, rank);
}

/* ---- Hello ---- */

static int free_spare(const struct driver *d)
{
    for (int k = d->n_ranks; k < d->n_seats; k++)
        if (!d->seats[k].is_taken)
            return k;
    return -1;
}

static char *holder_of(const struct driver *d, int rank)
{
    const struct seat *s = &d->seats[rank];
    return xasprintf("%s (pid %lld)", s->host, (long long)s->pid);
}

static int is_same_version(struct driver *d, struct conn *c, const Wire__Hello *h)
{
    if (h->protocol == MSG_PROTOCOL && !strcmp(h->version, DPTRAIN_VERSION))
        return 1;
    char *text = xasprintf("the follower is dptrain %s (protocol %u), the driver on %s dptrain %s "
                           "(protocol %d): install the same version on all machines",
                           h->version, h->protocol, d->o.host, DPTRAIN_VERSION, MSG_PROTOCOL);
    gather_refuse(d, c, WIRE__REASON__REASON_VERSION, text);
    free(text);
    return 0;
}

/* 1: fe80::/10, with or without a zone. */
static int is_link_local(const char *address)
{
    return strspn(address, "0123456789abcdefABCDEF") == 4 && address[4] == ':' &&
           strncasecmp(address, "fe", 2) == 0 && strchr("89abAB", address[2]);
}

/* The other ranks could not use the follower's or standby's address if it holds on one link. */
static int is_reachable(struct driver *d, struct conn *c, const Wire__Hello *h)
{
    const char *address = is_link_local(c->peer) ? c->peer : h->advertise;
    if (!is_link_local(address))
        return 1;
    char *text = xasprintf("it comes from %s, a link-local IPv6 address, which other ranks cannot "
                           "use: give --root an address or name of the driver's that is not "
                           "link-local, and this machine an address beside it (\"ip address add "
                           "10.0.0.2/24 dev IF\")",
                           address);
    gather_refuse(d, c, WIRE__REASON__REASON_DEVICE, text);
    free(text);
    return 0;
}

static void refuse_taken(struct driver *d, struct conn *c, int rank)
{
    char *holder = holder_of(d, rank);
    char *text = rank == 0 ? xasprintf("rank 0 is the driver itself, %s; ask for 1 to %lld, or any",
                                       holder, (long long)d->o.cluster.max_ranks - 1)
                           : xasprintf("rank %d is taken by %s; ask for any rank", rank, holder);
    gather_refuse(d, c, WIRE__REASON__REASON_RANK_TAKEN, text);
    free(text);
    free(holder);
}

static void refuse_full(struct driver *d, struct conn *c)
{
    static const char more[] = "more are let in by its cluster.max_ranks and cluster.spares";
    char *text =
        d->o.cluster.spares
            ? xasprintf("the job has all its %lld ranks and %lld spares; %s",
                        (long long)d->o.cluster.max_ranks, (long long)d->o.cluster.spares, more)
            : xasprintf("the job has all its %lld ranks; %s", (long long)d->o.cluster.max_ranks,
                        more);
    gather_refuse(d, c, WIRE__REASON__REASON_FULL, text);
    free(text);
}

/* Move the follower on this seat to another one, if it asked for any rank.  1: `rank` is free now.
 */
static int move_away(struct driver *d, int rank)
{
    int to = seats_free_rank(d);
    if (to < 0)
        to = free_spare(d);
    if (!d->seats[rank].is_any || to < 0)
        return 0;
    seat_move(d, rank, to);
    seat_say_moved(d, to);
    if (to >= d->n_ranks)
        d->gather.full_ms = -1; /* the follower that takes the rank has yet to open its data */
    return 1;
}

/* The seat for this Hello, or -1 after refusing it.  is_back: `wanted` is the rank that the
 * follower had, and it accepts any other. */
static int choose_rank(struct driver *d, struct conn *c, int wanted, int is_back)
{
    if (is_back && wanted >= d->n_ranks) /* the job may have fewer ranks now */
        wanted = -1;
    if (wanted >= d->o.cluster.max_ranks) {
        char *text = xasprintf("rank %d is out of range: this job has %lld ranks, the driver is 0",
                               wanted, (long long)d->o.cluster.max_ranks);
        gather_refuse(d, c, WIRE__REASON__REASON_RANK_RANGE, text);
        free(text);
        return -1;
    }
    if (is_back && wanted > 0 && wanted < d->n_ranks && d->seats[wanted].is_taken)
        wanted = -1;
    if (wanted > 0 && wanted < d->n_ranks &&
        (!d->seats[wanted].is_taken || (d->stage == STAGE_GATHER && move_away(d, wanted))))
        return wanted;
    int is_clash = wanted == 0 || (wanted > 0 && wanted < d->n_ranks && d->stage == STAGE_GATHER);
    int rank = wanted < 0 ? seats_free_rank(d) : -1;
    if (rank < 0 && !is_clash)
        rank = free_spare(d); /* the place of a rank that comes back is taken: it becomes a spare */
    if (rank < 0 && wanted >= 0 && d->seats[wanted].is_taken)
        refuse_taken(d, c, wanted);
    else if (rank < 0)
        refuse_full(d, c);
    return rank;
}

static int has_backend(const Wire__Hello *h, const char *name)
{
    for (size_t i = 0; i < h->n_backends; i++)
        if (!strcmp(h->backends[i], name))
            return 1;
    return 0;
}

static char *device_mix(const struct driver *d, const char *wanted)
{
    return xasprintf("this job runs on %s, as its driver does, and not on %s; all ranks must use "
                     "the same kind of device",
                     d->o.device, wanted);
}

/* The rank that uses a GPU of this follower, or -1. */
static int user_of(const struct driver *d, const Wire__Hello *h, const Wire__Gpu *g)
{
    return seats_rank_of_gpu(d, &(struct gpu_ref){g->uuid, g->bus, h->host, h->host_id});
}

/* List "cuda:1 (NVIDIA H200, GPU-5f...)" for each GPU that no rank uses, or say that there is
 * none. */
static void list_free(const struct driver *d, const Wire__Hello *h, struct buf *out)
{
    int n = 0;
    for (size_t i = 0; i < h->n_gpus; i++)
        if (user_of(d, h, h->gpus[i]) < 0)
            buf_printf(out, "%scuda:%d (%s, %s)",
                       n++ ? ", " : "; free there: ", (int)h->gpus[i]->index, h->gpus[i]->name,
                       h->gpus[i]->uuid);
    if (!n && h->n_gpus == 1)
        buf_printf(out, "; there is no other");
    else if (!n)
        buf_printf(out, "; none of its %zu is free", h->n_gpus);
}

static char *with_free(const struct driver *d, const Wire__Hello *h, char *text)
{
    struct buf b = {0};
    char *whole;
    buf_printf(&b, "%s", text);
    list_free(d, h, &b);
    whole = xstrdup(buf_cstr(&b));
    buf_fini(&b);
    free(text);
    return whole;
}

/* 1: `rank` uses another slice of this GPU (MIG). */
static int is_slice(const struct driver *d, int rank, const Wire__Gpu *g)
{
    return rank >= 0 && strcmp(d->seats[rank].gpu, g->uuid) != 0;
}

static char *why_taken(const struct driver *d, const Wire__Hello *h, const Wire__Gpu *g)
{
    int rank = user_of(d, h, g);
    char *what =
        is_slice(d, rank, g)
            ? xasprintf("is a slice of the GPU (PCI %s) of which rank %d uses %s, and NCCL "
                        "takes one rank a GPU",
                        g->bus, rank, d->seats[rank].gpu)
            : xasprintf("is used by rank %d already", rank);
    char *text =
        xasprintf("cuda:%d of %s (%s, %s) %s", (int)g->index, h->host, g->name, g->uuid, what);
    free(what);
    return with_free(d, h, text);
}

/* The GPU that the follower names; or NULL, and the reason why it cannot be used. */
static const Wire__Gpu *named_gpu(const struct driver *d, const Wire__Hello *h, long index,
                                  char **why)
{
    for (size_t i = 0; i < h->n_gpus; i++) {
        const Wire__Gpu *g = h->gpus[i];
        if (g->index != index)
            continue;
        if (user_of(d, h, g) < 0 || d->o.shares_gpus)
            return g;
        *why = why_taken(d, h, g);
        return NULL;
    }
    *why =
        with_free(d, h, xasprintf("there is no %s that could be used on %s", h->device, h->host));
    return NULL;
}

/* The reason why no GPU can be used: a slice of the first one is in use, or other ranks use all. */
static char *why_none(const struct driver *d, const Wire__Hello *h)
{
    for (size_t i = 0; i < h->n_gpus; i++)
        if (is_slice(d, user_of(d, h, h->gpus[i]), h->gpus[i]))
            return why_taken(d, h, h->gpus[i]);
    return xasprintf("%s has %zu GPU%s, and other ranks use all of them", h->host, h->n_gpus,
                     h->n_gpus == 1 ? "" : "s");
}

/* The follower's GPU: the one it names, or the first that no rank uses. */
static const Wire__Gpu *choose_gpu(const struct driver *d, const Wire__Hello *h, char **why)
{
    const char *colon = strchr(h->device, ':');
    if (colon)
        return named_gpu(d, h, strtol(colon + 1, NULL, 10), why);
    for (size_t i = 0; i < h->n_gpus; i++)
        if (user_of(d, h, h->gpus[i]) < 0)
            return h->gpus[i];
    if (d->o.shares_gpus && h->n_gpus > 0)
        return h->gpus[0];
    *why = why_none(d, h);
    return NULL;
}

static char *why_no_backend(const struct driver *d, const Wire__Hello *h, int is_cuda)
{
    if (!is_cuda)
        return xasprintf("this job runs on %s, and the follower on %s has no cpu", d->o.device,
                         h->host);
    return xasprintf("this job runs on %s, and the follower on %s has no GPU that it can use%s%s; "
                     "mend that there, or start dpdriver with --device cpu, for all to use none",
                     d->o.device, h->host, *h->no_gpu ? ": " : "", h->no_gpu);
}

/* The device for this follower and its GPU (NULL: cpu); NULL and *why when none fits. */
static char *choose_device(const struct driver *d, const Wire__Hello *h, const Wire__Gpu **gpu,
                           char **why)
{
    int is_cuda = !strncmp(d->o.device, "cuda", 4);
    const char *kind = is_cuda ? "cuda" : "cpu";

    *gpu = NULL;
    if (strcmp(h->device, "auto") && strncmp(h->device, kind, strlen(kind))) {
        *why = device_mix(d, h->device);
        return NULL;
    }
    if (!has_backend(h, kind)) {
        *why = why_no_backend(d, h, is_cuda);
        return NULL;
    }
    if (!is_cuda)
        return xstrdup("cpu");
    *gpu = choose_gpu(d, h, why);
    return *gpu ? xasprintf("cuda:%d", (int)(*gpu)->index) : NULL;
}

static void take_seat(struct driver *d, struct conn *c, int rank, const Wire__Hello *h,
                      const Wire__Gpu *gpu)
{
    struct seat *s = &d->seats[rank];
    seat_take(d, rank, c);
    s->is_any = h->rank < 0 || *h->run;
    s->host = xstrdup(h->host);
    s->host_id = xstrdup(h->host_id);
    if (gpu)
        seat_use_gpu(d, rank, gpu->uuid, gpu->bus);
    s->advertise = *h->advertise ? xstrdup(h->advertise) : NULL;
    s->pid = h->pid;
    s->pid_space = h->pid_space;
    s->heard_ms = s->moved_ms = s->joined_ms = d->now_ms;
    s->at.phase = PHASE_OPEN;
    c->state = CONN_MEMBER;
    c->rank = rank;
    if (d->gather.full_ms < 0 && d->n_here == d->n_ranks)
        d->gather.full_ms = d->now_ms;
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
}

static void welcome(struct driver *d, struct conn *c, int rank, char *device)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Welcome w = WIRE__WELCOME__INIT;
    struct arena a;

    arena_init(&a);
    gather_fill_welcome(d, &w, &a);
    w.rank = rank;
    w.n_ranks = (int)max_i64(d->n_ranks, d->o.n_ranks);
    w.spare = rank >= d->n_ranks;
    w.device = device;
    char *inject = w.spare ? NULL : inject_for_opening(d, rank);
    if (inject)
        w.inject = inject;
    w.standby = succession_address(d, c);
    m.body_case = WIRE__CONTROL__BODY_WELCOME;
    m.welcome = &w;
    driver_send(d, c, &m);
    queue_trust(&d->out, c->id);
    free(inject);
    free(w.standby);
    arena_fini(&a);
}

void gather_hello(struct driver *d, struct conn *c, const Wire__Hello *h)
{
    const Wire__Gpu *gpu;
    char *why = NULL;

    if (!is_same_version(d, c, h) || !is_reachable(d, c, h) || !lead_hears(d, c, h))
        return;
    if (*h->standby) {
        succession_hello(d, c, h);
        return;
    }
    char *device = choose_device(d, h, &gpu, &why);
    if (!device) {
        gather_refuse(d, c, WIRE__REASON__REASON_DEVICE, why);
        free(why);
        return;
    }
    int rank = choose_rank(d, c, h->rank, *h->run != 0);
    if (rank >= 0) {
        take_seat(d, c, rank, h, gpu);
        lead_seated(d, rank, h);
        d->seats[rank].device = xstrdup(device);
        d->seats[rank].named = seat_name(d, rank);
        welcome(d, c, rank, device);
        char name[32], most[32] = "";
        snprintf(name, sizeof(name), rank < d->n_ranks ? "rank %d" : "spare %d",
                 rank < d->n_ranks ? rank : rank - d->n_ranks + 1);
        if (d->o.cluster.max_ranks > d->o.n_ranks)
            snprintf(most, sizeof(most), ", up to %lld", (long long)d->o.cluster.max_ranks);
        queue_log(&d->out, LOG_INFO, "%s joined%s: %s (pid %lld) from %s, on %s; %d of %d here%s",
                  name, *h->run ? " again, with its state" : "", h->host, (long long)h->pid,
                  c->from, device, d->n_here, d->n_ranks, most);
    }
    free(device);
}

/* ---- Ready ---- */

/* The difference between a follower's layout and rank 0's, in words; for free(). */
static char *layout_difference(const struct report *own, const struct report *theirs)
{
    int n = own->opened.n_tensors, m = theirs->opened.n_tensors;
    for (int i = 0; i < n && i < m; i++) {
        const struct tensor_hash *a = &own->opened.tensor[i], *b = &theirs->opened.tensor[i];
        if (strcmp(a->name, b->name))
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
static int compare_seat(struct driver *d, int rank)
{
    struct conn *c = d->seats[rank].conn;
    char *why = NULL;
    Wire__Reason reason = compare_opened(d->seats[0].opened, d->seats[rank].opened, &why);
    if (reason == WIRE__REASON__REASON_NONE) {
        report_drop_tensors(
            d->seats[rank].opened); /* equal to rank 0's, and there may be thousands of lists */
        return 0;
    }
    char *text = xasprintf("rank %d (%s): %s", rank, d->seats[rank].host, why);
    gather_refuse(d, c, reason, text);
    gather_leave(d, rank, "refused");
    free(text);
    free(why);
    return 1;
}

/* Rank 0 has opened the job, so the size of the run is known now. */
static void own_opened(struct driver *d)
{
    const struct report *own = d->seats[0].opened;
    struct session_event e = {.kind = EVENT_START,
                              .rank = -1,
                              .n_ranks = d->o.n_ranks,
                              .n_parameters = own->opened.n_parameters,
                              .data = own->opened.data,
                              .step = own->opened.step,
                              .progress.steps_per_epoch = own->opened.steps_per_epoch,
                              .text = xstrdup(d->o.device)};
    d->run.steps_per_epoch = own->opened.steps_per_epoch;
    d->run.step = own->opened.step;
    d->run.stops_early = own->opened.stops_early;
    driver_event(d, &e);
    if (d->run.steps_per_epoch <= 0)
        end_accuse(
            d, (struct cause){.rank = 0, .code = ERR_CONFIG, .phase = PHASE_OPEN, .step = -1}, 0,
            "an epoch has no steps: %lld training samples are fewer than one global batch",
            (long long)own->opened.n_train);
    else if (d->o.evaluate && own->opened.n_validation == 0)
        end_accuse(
            d, (struct cause){.rank = 0, .code = ERR_CONFIG, .phase = PHASE_OPEN, .step = -1}, 0,
            "--evaluate: the job names no data for validation; give them by --set "
            "data.validation=...");
    else if (!d->o.evaluate && run_nothing_to_do(d, d->run.step) && !lead_lacks_validation(d))
        lead_nothing_to_do(d);
    for (int k = 1; k < d->n_seats && d->stage == STAGE_GATHER; k++)
        while (d->seats[k].opened && compare_seat(d, k))
            ; /* a spare may have taken the seat of one that was refused: compare it, too */
}

void gather_check(struct driver *d)
{
    int is_full = d->gather.full_ms >= 0 && seats_are_ready(d);
    if (d->stage == STAGE_GATHER && d->gather.full_ms < 0 && !lead_may_begin(d) &&
        succession_waits_no_more(d)) {
        recover_absent(d);
        return;
    }
    if (d->stage != STAGE_GATHER || lead_releases(d) || (!is_full && !lead_may_begin(d)) ||
        succession_holds_up(d))
        return;
    if (!is_full) {
        recover_shrink(d);
        queue_log(&d->out, LOG_WARN, "no more ranks came: going on with %d", d->n_ranks);
    }
    recover_grow(d);
    form_prepare(d);
}

void gather_opened(struct driver *d, int rank)
{
    if (rank == 0)
        own_opened(d);
    else if (d->seats[0].opened)
        compare_seat(d, rank);
    gather_check(d);
    if (d->stage == STAGE_WAIT)
        recover_try(d);
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

static const char *names(struct named *l)
{
    if (l->n > MOST_NAMED)
        buf_printf(&l->text, " and %d more", l->n - MOST_NAMED);
    return buf_cstr(&l->text);
}

void gather_say_missing(struct driver *d)
{
    int is_gathering = d->stage == STAGE_GATHER && d->gather.full_ms < 0;
    struct named absent = {0}, opening = {0};

    for (int k = 0; k < d->n_ranks; k++) {
        if (d->seats[k].opened)
            continue;
        if (!d->seats[k].is_taken)
            name_rank(d, &absent, k);
        else if (!is_gathering)
            name_rank(d, &opening, k);
    }
    double left_s = 1e-3 * (double)max_i64(0, recover_deadline(d) - d->now_ms);
    if (absent.n && is_gathering)
        queue_log(&d->out, LOG_INFO, "waiting for %s to join: %d of %d here", names(&absent),
                  d->n_here, d->n_ranks);
    else if (absent.n)
        queue_log(&d->out, LOG_INFO, "waiting for a replacement of %s, %.0f s more", names(&absent),
                  left_s);
    if (opening.n && d->stage == STAGE_WAIT)
        queue_log(&d->out, LOG_INFO,
                  "waiting for %s, here already, to open model and data, up to %.0f s more",
                  names(&opening), left_s);
    else if (opening.n)
        queue_log(&d->out, LOG_INFO, "waiting for %s to open model and data", names(&opening));
    buf_fini(&absent.text);
    buf_fini(&opening.text);
}
