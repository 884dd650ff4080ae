/* Seats: the connection and the GPU of each rank.
 *
 * Questions about all ranks ("is every rank ready?") are asked each time that one rank has changed.
 * To look at all ranks each time would take time in the square of their number.  Instead a search
 * begins where the last one stopped, at a rank for which the answer was no.  If it still is no for
 * that rank, the search ends there.  Otherwise it goes on from there, round all ranks.  Nothing
 * need be reset when a rank leaves, because the search comes to its seat again. */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

struct gpu_use {
    char *key;               /* the GPU's uuid, or its place (put_place); each GPU has both keys */
    const struct conn *conn; /* NULL: rank 0's */
};

/* ---- GPUs ---- */

enum { PLACE_TEXT = MSG_MAX_NAME + 128 };

/* Write the GPU's place, by which NCCL identifies a GPU: host name, boot id and bus.  Returns 0 if
 * the bus is unknown.  The parts are lines.  A uuid has no line ends, so no peer can send a uuid
 * that equals the place of another GPU. */
static int put_place(const struct gpu_ref *g, char out[PLACE_TEXT])
{
    if (!g->bus || !*g->bus)
        return 0;
    snprintf(out, PLACE_TEXT, "%s\n%s\n%s", g->host, g->host_id, g->bus);
    return 1;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct gpu_use *)a)->key, ((const struct gpu_use *)b)->key);
}

static struct gpu_use *find_use(const struct driver *d, const char *key)
{
    const struct gpu_use wanted = {.key = (char *)(uintptr_t)key};
    struct gpu_use *const *found = tfind(&wanted, &d->gpus, by_key);

    return found ? *found : NULL;
}

int seats_rank_of_gpu(const struct driver *d, const struct gpu_ref *g)
{
    char place[PLACE_TEXT];
    const struct gpu_use *u = find_use(d, g->uuid);

    if (!u && put_place(g, place))
        u = find_use(d, place);
    if (!u)
        return -1;
    return u->conn ? u->conn->rank : 0;
}

static struct gpu_ref ref_of(const struct seat *s)
{
    return (struct gpu_ref){s->gpu, s->gpu_bus, s->host, s->host_id};
}

static void add_use(struct driver *d, const struct seat *s, const char *key)
{
    struct gpu_use *u;

    if (d->o.shares_gpus && find_use(d, key))
        return; /* the entry of the first rank that uses it stays */
    u = xcalloc(1, sizeof(*u));
    u->key = xstrdup(key);
    u->conn = s->conn;
    ASSERT(tsearch(u, &d->gpus, by_key));
}

void seat_use_gpu(struct driver *d, int rank, const char *uuid, const char *bus)
{
    struct seat *s = &d->seats[rank];
    char place[PLACE_TEXT];

    s->gpu = xstrdup(uuid);
    s->gpu_bus = bus ? xstrdup(bus) : NULL;
    add_use(d, s, uuid);
    const struct gpu_ref g = ref_of(s);
    if (put_place(&g, place))
        add_use(d, s, place);
}

static void drop_use(struct driver *d, const struct seat *s, const char *key)
{
    struct gpu_use *u = find_use(d, key);

    if (!u || (d->o.shares_gpus && u->conn != s->conn))
        return;
    tdelete(u, &d->gpus, by_key);
    free(u->key);
    free(u);
}

static void free_gpu(struct driver *d, const struct seat *s)
{
    const struct gpu_ref g = ref_of(s);
    char place[PLACE_TEXT];

    drop_use(d, s, s->gpu);
    if (put_place(&g, place))
        drop_use(d, s, place);
}

/* ---- taking and leaving ---- */

void seats_changed(struct driver *d)
{
    d->free_from = 1;
    d->n_here = 0;
    for (int k = 0; k < d->n_ranks; k++)
        d->n_here += d->seats[k].is_taken;
}

static void seat_freed(struct driver *d, int rank)
{
    d->free_from = (int)min_i64(d->free_from, max_i64(rank, 1));
    d->n_here -= rank < d->n_ranks;
}

void seat_take(struct driver *d, int rank, struct conn *c)
{
    struct seat *s = &d->seats[rank];
    ASSERT(!s->is_taken);
    s->is_taken = 1;
    s->conn = c;
    d->n_here += rank < d->n_ranks;
}

int seat_is_here(const struct driver *d, const struct seat *s)
{
    return s->host_id && strcmp(s->host_id, d->o.host_id) == 0 && s->pid_space == d->o.pid_space;
}

void seat_clear(struct driver *d, int rank)
{
    struct seat *s = &d->seats[rank];
    if (s->is_taken)
        seat_freed(d, rank);
    if (s->gpu)
        free_gpu(d, s);
    free(s->host);
    free(s->host_id);
    free(s->gpu);
    free(s->gpu_bus);
    free(s->device);
    free(s->advertise);
    free(s->leaving);
    report_free(s->opened);
    report_free(s->answer);
    *s = (struct seat){0};
}

void seat_move(struct driver *d, int from, int to)
{
    d->seats[to] = d->seats[from];
    d->seats[to].conn->rank = to;
    d->seats[from] = (struct seat){0};
    d->n_here += to < d->n_ranks;
    seat_freed(d, from);
}

/* ---- names ---- */

int seat_name(const struct driver *d, int rank)
{
    return rank < d->n_ranks ? rank : -(rank - d->n_ranks + 1);
}

void seat_say_moved(struct driver *d, int rank)
{
    struct seat *s = &d->seats[rank];
    int before = s->named, now = seat_name(d, rank);
    s->named = now;
    if (!s->is_taken || !before || before == now)
        return;
    queue_log(&d->out, LOG_INFO, "%s %d (%s, pid %lld) is %s %d from here on",
              before > 0 ? "rank" : "spare", abs(before), s->host, (long long)s->pid,
              now > 0 ? "rank" : "spare", abs(now));
}

/* ---- asking ---- */

int seats_free_rank(struct driver *d)
{
    for (int k = d->free_from; k < d->n_ranks; k++)
        if (!d->seats[k].is_taken) {
            d->free_from = k;
            return k;
        }
    d->free_from = d->n_ranks; /* until a seat is freed */
    return -1;
}

/* The next rank from *at on, round all ranks, for which is_missing is true; -1: none. */
static int find_missing(const struct driver *d, int *at, int (*is_missing)(const struct seat *s))
{
    for (int i = 0; i < d->n_ranks; i++) {
        int k = (*at + i) % d->n_ranks;
        if (is_missing(&d->seats[k]))
            return *at = k;
    }
    return -1;
}

static int is_unready(const struct seat *s) { return !s->opened; }
static int is_unstepped(const struct seat *s) { return !s->has_stepped; }

int seats_are_ready(struct driver *d) { return find_missing(d, &d->unready, is_unready) < 0; }

int seats_have_stepped(struct driver *d)
{
    return find_missing(d, &d->unstepped, is_unstepped) < 0;
}
