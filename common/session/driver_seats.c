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
    struct gpu_use *const *found = tfind(&wanted, &d->membership.gpus, by_key);

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

static void seats_add_use(struct membership *m, const struct seat *s, const char *key)
{
    const struct driver *d = m->d;
    struct gpu_use *u;

    if (d->o.shares_gpus && find_use(d, key))
        return; /* the entry of the first rank that uses it stays */
    u = xcalloc(1, sizeof *u);
    u->key = xstrdup(key);
    u->conn = s->conn;
    ASSERT(tsearch(u, &m->gpus, by_key));
}

void seat_use_gpu(struct membership *m, int rank, const char *uuid, const char *bus)
{
    struct seat *s = &m->seats[rank];
    char place[PLACE_TEXT];
    ASSERT(s->is_taken && !s->gpu && uuid);

    s->gpu = xstrdup(uuid);
    s->gpu_bus = bus ? xstrdup(bus) : NULL;
    seats_add_use(m, s, uuid);
    const struct gpu_ref g = ref_of(s);
    if (put_place(&g, place))
        seats_add_use(m, s, place);
}

static void drop_use(struct membership *m, const struct seat *s, const char *key)
{
    const struct driver *d = m->d;
    struct gpu_use *u = find_use(d, key);
    ASSERT(key);

    if (!u || (d->o.shares_gpus && u->conn != s->conn))
        return;
    tdelete(u, &m->gpus, by_key);
    free(u->key);
    free(u);
}

static void free_gpu(struct membership *m, const struct seat *s)
{
    const struct gpu_ref g = ref_of(s);
    char place[PLACE_TEXT];

    drop_use(m, s, s->gpu);
    if (put_place(&g, place))
        drop_use(m, s, place);
}

/* ---- taking and leaving ---- */

static void seats_changed(struct membership *m)
{
    m->free_from = 1;
    m->n_here = 0;
    for (int k = 0; k < m->n_ranks; k++)
        m->n_here += m->seats[k].is_taken;
}

static void seat_freed(struct membership *m, int rank)
{
    m->free_from = (int)min_i64(m->free_from, max_i64(rank, 1));
    m->n_here -= rank < m->n_ranks;
}

void seat_take(struct membership *m, int rank, struct conn *c)
{
    struct seat *s = &m->seats[rank];
    ASSERT(rank >= 0 && rank < m->n_seats && (rank == 0) == !c);
    ASSERT(!s->is_taken);
    s->is_taken = 1;
    s->conn = c;
    m->n_here += rank < m->n_ranks;
    ASSERT(m->n_here <= m->n_ranks);
}

void seat_take_own(struct membership *m)
{
    const struct driver_options *o = &m->d->o;
    struct seat *s = &m->seats[0];
    seat_take(m, 0, NULL);
    s->host = xstrdup(o->host);
    s->host_id = xstrdup(o->host_id);
    if (o->gpu_uuid)
        seat_use_gpu(m, 0, o->gpu_uuid, o->gpu_bus);
    s->pid = o->pid;
    s->pid_space = o->pid_space;
}

void seat_open(struct membership *m, int rank, struct report *r)
{
    ASSERT(m->seats[rank].is_taken && !m->seats[rank].opened);
    m->seats[rank].opened = r;
}

int seat_is_here(const struct driver *d, const struct seat *s)
{
    return s->host_id && !strcmp(s->host_id, d->o.host_id) && s->pid_space == d->o.pid_space;
}

void seat_clear(struct membership *m, int rank)
{
    struct seat *s = &m->seats[rank];
    ASSERT(rank >= 0 && rank < m->n_seats);
    if (s->is_taken)
        seat_freed(m, rank);
    if (s->gpu)
        free_gpu(m, s);
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
    ASSERT(m->n_here >= 0);
}

void seat_move(struct membership *m, int from, int to)
{
    ASSERT(from > 0 && from < m->n_seats && to > 0 && to < m->n_seats && from != to);
    ASSERT(m->seats[from].is_taken && !m->seats[to].is_taken);
    ASSERT(m->seats[from].conn->rank == from);
    m->seats[to] = m->seats[from];
    m->seats[to].conn->rank = to;
    m->seats[from] = (struct seat){0};
    m->n_here += to < m->n_ranks;
    seat_freed(m, from);
    ASSERT(m->n_here >= 0 && m->n_here <= m->n_ranks);
}

/* ---- names ---- */

int seat_name(const struct driver *d, int rank)
{
    return rank < d->membership.n_ranks ? rank : -(rank - d->membership.n_ranks + 1);
}

void seat_say_moved(struct membership *m, int rank)
{
    const struct driver *d = m->d;
    struct seat *s = &m->seats[rank];
    int before = s->named, now = seat_name(d, rank);
    ASSERT(rank > 0 && rank < m->n_seats);
    s->named = now;
    if (!s->is_taken || !before || before == now)
        return;
    queue_log(d->out, LOG_INFO, "%s %d (%s, pid %lld) is %s %d from here on",
              before > 0 ? "rank" : "spare", abs(before), s->host, (long long)s->pid,
              now > 0 ? "rank" : "spare", abs(now));
}

/* Log the new numbers of ranks that were renumbered, because ranks were lost or spares have joined.
 * Otherwise the numbers in the log would mean other ranks to --drain. */
void seats_say_moved(struct membership *m)
{
    enum { MOST_SAID = 16 };
    int n = 0;
    for (int k = 1; k < m->n_seats; k++) {
        struct seat *s = &m->seats[k];
        if (!s->is_taken || s->named == seat_name(m->d, k))
            continue;
        if (++n <= MOST_SAID)
            seat_say_moved(m, k);
        s->named = seat_name(m->d, k);
    }
    if (n > MOST_SAID)
        queue_log(m->d->out, LOG_INFO, "%d more ranks and spares have new numbers (--status)",
                  n - MOST_SAID);
}

/* ---- asking ---- */

int seats_free_rank(struct membership *m)
{
    ASSERT(m->free_from >= 1 || m->n_ranks == 1);
    for (int k = m->free_from; k < m->n_ranks; k++)
        if (!m->seats[k].is_taken) {
            m->free_from = k;
            return k;
        }
    m->free_from = m->n_ranks; /* until a seat is freed */
    return -1;
}

int seats_search(const struct driver *d, int *at, int (*is_missing)(const struct seat *s))
{
    ASSERT(*at >= 0);
    for (int i = 0; i < d->membership.n_ranks; i++) {
        int k = (*at + i) % d->membership.n_ranks;
        if (is_missing(&d->seats[k])) {
            *at = k;
            return k;
        }
    }
    return -1;
}

static int is_unready(const struct seat *s) { return !s->opened; }

int seats_are_ready(struct membership *m)
{
    return seats_search(m->d, &m->unready, is_unready) < 0;
}

int seat_is_ready(const struct seat *s) { return s->is_taken && s->opened && !s->leaving; }

int seats_n_ready(const struct driver *d, int from, int to)
{
    int n = 0;
    ASSERT(from <= to && to <= d->n_seats);
    for (int k = from; k < to; k++)
        n += seat_is_ready(&d->seats[k]);
    return n;
}

/* ---- spares become ranks, ranks close up ---- */

void seats_fill(struct membership *m)
{
    for (int k = 1; k < m->n_ranks; k++) {
        int spare = m->seats[k].is_taken ? -1 : neighbour_spare(m, k);
        if (spare < 0)
            continue;
        queue_log(m->d->out, LOG_INFO, "spare %d (%s) takes the place of rank %d",
                  spare - m->n_ranks + 1, m->seats[spare].host, k);
        m->seats[spare].named = k;
        seat_move(m, spare, k);
    }
}

void seats_grow(struct membership *m, int n_wanted)
{
    int before = m->n_ranks;
    ASSERT(n_wanted <= m->n_seats);
    ASSERT(m->n_here == m->n_ranks);
    while (m->n_ranks < n_wanted) {
        int spare = neighbour_spare(m, m->n_ranks);
        ASSERT(spare >= m->n_ranks);
        /* A follower that is not ready yet changes places with the spare that is. */
        struct seat unready = m->seats[m->n_ranks];
        if (spare > m->n_ranks) {
            m->seats[m->n_ranks] = (struct seat){0};
            seat_move(m, spare, m->n_ranks);
        }
        if (spare > m->n_ranks && unready.is_taken) {
            m->seats[spare] = unready;
            unready.conn->rank = spare;
        }
        m->n_ranks++;
    }
    seats_changed(m);
    if (m->n_ranks > before)
        queue_log(m->d->out, LOG_INFO, "growing from %d to %d ranks", before, m->n_ranks);
    ASSERT(m->n_here == m->n_ranks);
}

void seats_shrink(struct membership *m, int *was)
{
    size_t bytes = (size_t)m->n_seats * sizeof(struct seat);
    struct seat *old = xcalloc(1, bytes);
    int n = 0, next = 0;
    ASSERT(m->seats[0].is_taken && m->n_ranks >= 1);

    memcpy(old, m->seats, bytes);
    memset(m->seats, 0, bytes);
    for (int k = 0; k < m->n_ranks; k++)
        if (k == 0 || seat_is_ready(&old[k])) {
            was[n] = k;
            m->seats[n++] = old[k];
        }
    next = n;
    for (int k = 1; k < m->n_seats; k++)
        if (old[k].is_taken && (k >= m->n_ranks || !seat_is_ready(&old[k])))
            m->seats[next++] = old[k];
    for (int k = 1; k < next; k++)
        m->seats[k].conn->rank = k;
    m->n_ranks = n;
    seats_changed(m);
    free(old);
    ASSERT(m->n_here == m->n_ranks && n >= 1 && next <= m->n_seats);
}
