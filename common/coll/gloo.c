/* gloo - the Gloo kind of coll: endpoints, connecting, and coll/mesh's algorithms over
 * coll/gloo_leaf's links.
 *
 * Why not gloo::allreduce: median microseconds of a float32 sum over loopback on 2 busy cores, run
 * in turn (Gloo's ring, its bcube, ours, whose time includes the hand-over to the comm thread).
 *
 *   bytes      2 processes: ring   bcube    ours     4 processes: ring    bcube     ours
 *   1 KiB               3,996     3,994       15              11,728    3,999       84
 *   64 KiB              3,993     3,996       36              11,772    4,148      163
 *   1 MiB               4,001     3,997      440              11,736    8,089    1,450
 *   2 MiB               3,978     3,998      900               8,819   10,617    3,000
 *   16 MiB             23,045    27,179    9,500              65,720  112,759   34,000
 *   64 MiB             92,972   122,572   41,000             280,109  561,181  130,000
 *
 * (On idle cores ring and bcube take 190 to 260 us for two small ones: two hand-overs between
 * threads for each message.  The 4 ms are a scheduler tick, of event threads that spin.)  Pieces of
 * 64 KiB did best among 26 (what a kernel with the default wmem_max allows), 32, 128 and 256. */
#include "coll/gloo.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "coll/endpoint.h"
#include "coll/gloo_leaf.h"
#include "coll/host.h"
#include "coll/mesh.h"

/* A channel's own links to all other ranks. */
struct net {
    struct mesh mesh;
    struct gloo_leaf *leaf; /* NULL with one rank */
    void *land;
};

struct gloo {
    struct coll_host host; /* first */
    struct net net[COLL_CHANNELS];
    struct endpoint own;
    int64_t timeout_ms;
    bool connected; /* coll_gloo_connect was called */
};

static struct gloo *of_host(struct coll_host *h) { return container_of(h, struct gloo, host); }
static struct net *of_mesh(struct mesh *m) { return container_of(m, struct net, mesh); }

/* ---- host_ops, and mesh's transport ---- */

static int gloo_run(struct coll_host *h, const struct coll_job *job, struct err *err)
{
    return mesh_run(&of_host(h)->net[job->channel].mesh, job, err);
}

static void gloo_interrupt(struct coll_host *h)
{
    for (int ch = 0; ch < COLL_CHANNELS; ch++)
        if (of_host(h)->net[ch].leaf)
            gloo_leaf_interrupt(of_host(h)->net[ch].leaf);
}

static void gloo_free(struct coll_host *h)
{
    struct gloo *g = of_host(h);

    for (int ch = 0; ch < COLL_CHANNELS; ch++) {
        gloo_leaf_free(g->net[ch].leaf);
        free(g->net[ch].land);
    }
    free(g);
}

static const struct host_ops gloo_ops = {"gloo", gloo_run, gloo_interrupt, gloo_free};

static int link_send(struct mesh *m, int to, const void *data, size_t n_bytes, struct err *err)
{
    return gloo_leaf_send(of_mesh(m)->leaf, to, data, n_bytes, err);
}

static int link_recv(struct mesh *m, int from, struct err *err)
{
    return gloo_leaf_recv(of_mesh(m)->leaf, from, err);
}

static struct gloo *of_coll(struct coll *c)
{
    struct coll_host *h = container_of(c, struct coll_host, base);
    ASSERT(h->ops == &gloo_ops);
    return of_host(h);
}

/* ---- phase 1 ---- */

static int choose_addr(const char *bind, const char *iface, struct sockaddr_storage *out,
                       struct err *err)
{
    if (bind && iface)
        return err_set(err, ERR_ARG, "both a bind address (%.60s) and an interface (%.40s)", bind,
                       iface);
    if (iface)
        return endpoint_addr_of_iface(iface, out, err);
    return endpoint_addr_from_text(bind ? bind : "127.0.0.1", out, err);
}

static int listen_for_peers(struct gloo *g, struct err *err)
{
    int rank = g->own.rank, size = g->own.size;
    if (getrandom(g->own.nonce, sizeof g->own.nonce, 0) != (ssize_t)sizeof g->own.nonce)
        return err_sys(err, errno, "getrandom");
    if (size == 1) {
        g->own.window = 1 << 16; /* a blob must have one */
        return 0;
    }
    for (int ch = 0; ch < COLL_CHANNELS; ch++) {
        struct net *net = &g->net[ch];
        int rc = gloo_leaf_new(rank, size, &g->own.addr, g->timeout_ms, &net->leaf, err);

        if (rc < 0)
            return rc;
        for (int r = 0; r < size; r++)
            g->own.ports[ch][r] = gloo_leaf_port(net->leaf, r);
    }
    g->own.window = gloo_leaf_window(g->net[0].leaf);
    return 0;
}

int coll_gloo_prepare(int rank, int size, const char *bind, const char *iface, int64_t timeout_ms,
                      struct coll **out, struct err *err)
{
    if (size < 1 || size > COLL_GLOO_MAX_RANKS)
        return err_set(err, ERR_ARG, "%d ranks: Gloo joins 1 to %d", size, COLL_GLOO_MAX_RANKS);
    if (rank < 0 || rank >= size)
        return err_set(err, ERR_ARG, "rank %d of %d", rank, size);
    if (timeout_ms < 0)
        return err_set(err, ERR_ARG, "timeout of %lld ms", (long long)timeout_ms);
    struct gloo *g = xcalloc(1, sizeof *g);
    g->timeout_ms = timeout_ms;
    g->own.rank = rank;
    g->own.size = size;
    host_init(&g->host, &gloo_ops, rank, size);
    int rc = choose_addr(bind, iface, &g->own.addr, err);
    if (rc == 0)
        rc = listen_for_peers(g, err);
    if (rc < 0) {
        coll_free(&g->host.base);
        return err_wrap(err, "preparing Gloo");
    }
    *out = &g->host.base;
    return 0;
}

void coll_gloo_endpoint(struct coll *c, struct buf *out) { endpoint_pack(&of_coll(c)->own, out); }

/* ---- phase 2 ---- */

/* Check that this blob can be rank r's. */
static int check_peer(struct gloo *g, int r, const struct endpoint *e, struct err *err)
{
    const int rank = g->own.rank;

    if (e->rank != r || e->size != g->own.size)
        return err_set(err, ERR_PROTO, "it is of rank %d of %d, want rank %d of %d", e->rank,
                       e->size, r, g->own.size);
    for (int ch = 0; ch < COLL_CHANNELS; ch++)
        if (r < rank && e->ports[ch][rank] == 0)
            return err_set(err, ERR_PROTO, "it has no port for rank %d", rank);
    if (r < rank && endpoint_is_any(&e->addr)) {
        char ip[COLL_IP_LEN];
        endpoint_ip_text(&e->addr, ip);
        return err_set(err, ERR_PROTO, "it advertises %s, to which nobody can connect", ip);
    }
    return 0;
}

struct peer {
    struct sockaddr_storage addr[COLL_CHANNELS]; /* the peer's, if its rank is lower */
    uint8_t nonce[ENDPOINT_NONCE];
};

static int read_blobs(struct gloo *g, const void *const *blobs, const size_t *lens,
                      struct peer *peers, size_t *piece, struct err *err)
{
    uint32_t window = g->own.window;
    for (int r = 0; r < g->own.size; r++) {
        struct endpoint e;
        if (r == g->own.rank)
            continue;
        if (endpoint_parse(blobs[r], lens[r], &e, err) < 0 || check_peer(g, r, &e, err) < 0)
            return err_wrap(err, "endpoint of rank %d", r);
        for (int ch = 0; ch < COLL_CHANNELS; ch++)
            peers[r].addr[ch] = endpoint_for(&e, (enum coll_channel)ch, g->own.rank);
        memcpy(peers[r].nonce, e.nonce, ENDPOINT_NONCE);
        window = e.window < window ? e.window : window; /* the same minimum on every rank */
    }
    *piece = window / MESH_WINDOW / 64 * 64;
    if (*piece > MESH_PIECE_MAX)
        *piece = MESH_PIECE_MAX;
    return 0;
}

/* The first message on each link: proves that the peer has our blob, and is the rank that we
 * expect. */
struct greeting {
    uint8_t nonce[ENDPOINT_NONCE]; /* of the receiver's blob */
    uint8_t rank[2], size[2];      /* of the sender, big-endian */
};

static struct greeting greet(const uint8_t nonce[ENDPOINT_NONCE], int rank, int size)
{
    struct greeting m = {.rank = {(uint8_t)(rank >> 8), (uint8_t)rank},
                         .size = {(uint8_t)(size >> 8), (uint8_t)size}};
    memcpy(m.nonce, nonce, ENDPOINT_NONCE);
    return m;
}

static int send_greetings(struct mesh *m, const struct peer *peers, struct err *err)
{
    int rc = 0;
    for (int r = 0; r < m->size && rc == 0; r++) {
        struct greeting ours = greet(peers[r].nonce, m->rank, m->size);
        if (r != m->rank)
            rc = m->send(m, r, &ours, sizeof ours, err);
    }
    return rc;
}

static int check_greetings(struct gloo *g, struct mesh *m, struct err *err)
{
    int rc = 0;
    for (int r = 0; r < m->size && rc == 0; r++) {
        struct greeting want = greet(g->own.nonce, r, m->size);
        uint8_t *land = r == 0 ? m->land0 : m->land;
        memset(land, 0, sizeof want);
        if (r != m->rank)
            rc = m->recv(m, r, err);
        if (rc == 0 && r != m->rank && memcmp(land, &want, sizeof want))
            rc = err_set(err, ERR_PROTO, "whoever connected as rank %d does not know our endpoint",
                         r);
    }
    return rc;
}

static int64_t in_ms(int64_t ms)
{
    const int64_t now = clock_mono_ns();

    return ms < (INT64_MAX - now) / 1000000 ? now + ms * 1000000 : INT64_MAX;
}

/* Milliseconds until the deadline, at least one: a leaf takes 0 for "never". */
static int64_t ms_until(int64_t deadline_ns)
{
    return max_i64(ceil_div_i64(max_i64(deadline_ns - clock_mono_ns(), 0), 1000000), 1);
}

static int dial(struct gloo *g, int ch, const struct peer *peers, int64_t ms, struct err *err)
{
    struct sockaddr_storage *addrs = xcalloc((size_t)g->own.size, sizeof *addrs);
    int rc;

    for (int r = 0; r < g->own.size; r++)
        addrs[r] = peers[r].addr[ch];
    rc = gloo_leaf_connect(g->net[ch].leaf, addrs, ms, err);
    free(addrs);
    return rc;
}

/* Make one channel's links. */
static int link_up(struct gloo *g, int ch, const struct peer *peers, size_t piece, int64_t until_ns,
                   struct err *err)
{
    struct net *net = &g->net[ch];
    int rc = dial(g, ch, peers, ms_until(until_ns), err);

    if (rc == 0)
        rc = try_alloc(&net->land, 2 * piece, "landing space of collectives", err);
    if (rc < 0)
        return rc;
    net->mesh = (struct mesh){.rank = g->own.rank,
                              .size = g->own.size,
                              .piece = piece,
                              .land0 = net->land,
                              .land = (uint8_t *)net->land + piece,
                              .send = link_send,
                              .recv = link_recv};
    return gloo_leaf_open(net->leaf, net->land, piece, err);
}

/* A rank that finds a stranger stops here.  All greetings are sent before any is looked at, so that
 * the other ranks need not wait for this rank's greetings until the deadline. */
static int greet_all(struct gloo *g, const struct peer *peers, int64_t until_ns, struct err *err)
{
    int rc = 0;

    for (int ch = 0; ch < COLL_CHANNELS && rc == 0; ch++) {
        gloo_leaf_set_timeout(g->net[ch].leaf, ms_until(until_ns));
        rc = send_greetings(&g->net[ch].mesh, peers, err);
    }
    for (int ch = 0; ch < COLL_CHANNELS && rc == 0; ch++) {
        gloo_leaf_set_timeout(g->net[ch].leaf, ms_until(until_ns));
        rc = check_greetings(g, &g->net[ch].mesh, err);
        gloo_leaf_set_timeout(g->net[ch].leaf, g->timeout_ms);
    }
    return rc < 0 ? err_wrap(err, "greeting the ranks") : 0;
}

/* A write to a lost peer raises SIGPIPE in the writing thread.  The comm thread takes no signals.
 * This is the caller's thread, so the signal is blocked here, and removed if it came. */
static int meet(struct gloo *g, const struct peer *peers, size_t piece, int64_t until_ns,
                struct err *err)
{
    sigset_t pipe, before, pending;
    int rc = 0;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    for (int ch = 0; ch < COLL_CHANNELS && rc == 0; ch++)
        rc = link_up(g, ch, peers, piece, until_ns, err);
    if (rc == 0)
        rc = greet_all(g, peers, until_ns, err);
    if (!sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe, NULL, &(struct timespec){0}) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int connect_once(struct gloo *g, const void *const *blobs, const size_t *lens,
                        int64_t deadline_ms, struct err *err)
{
    const int64_t until_ns = in_ms(deadline_ms);
    struct peer *peers;
    size_t piece;
    int rc;

    if (host_aborted(&g->host))
        return host_canceled(err);
    if (g->connected)
        return err_set(err, ERR_ARG, "connecting a second time");
    g->connected = true;
    if (g->own.size == 1)
        return 0;
    peers = xcalloc((size_t)g->own.size, sizeof *peers);
    rc = read_blobs(g, blobs, lens, peers, &piece, err);
    if (rc == 0)
        rc = meet(g, peers, piece, until_ns, err);
    free(peers);
    if (rc < 0 && host_aborted(&g->host))
        return host_canceled(err);
    return rc;
}

int coll_gloo_connect(struct coll *c, const void *const *blobs, const size_t *lens,
                      int64_t deadline_ms, struct err *err)
{
    struct gloo *g = of_coll(c);
    int rc = connect_once(g, blobs, lens, deadline_ms, err);

    if (rc == 0)
        rc = host_start(&g->host, err);
    return rc < 0 ? err_wrap(err, "connecting rank %d of %d", g->own.rank, g->own.size) : 0;
}

size_t coll_gloo_piece(struct coll *c) { return of_coll(c)->net[COLL_BULK].mesh.piece; }
