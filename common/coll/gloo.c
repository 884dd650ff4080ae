/* The Gloo kind: endpoints, connecting, and coll/mesh's algorithms over coll/gloo_leaf's links.
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

struct gloo {
    struct coll_host host; /* first */
    struct mesh mesh;
    struct gloo_leaf *leaf; /* NULL with one rank */
    struct endpoint own;
    int64_t timeout_ms;
    bool connected; /* coll_gloo_connect was called */
    void *land;
};

static struct gloo *of_host(struct coll_host *h) { return container_of(h, struct gloo, host); }
static struct gloo *of_mesh(struct mesh *m) { return container_of(m, struct gloo, mesh); }

/* host_ops and mesh's transport */

static int gloo_run(struct coll_host *h, const struct coll_job *job, struct err *err)
{
    return mesh_run(&of_host(h)->mesh, job, err);
}

static void gloo_interrupt(struct coll_host *h)
{
    if (of_host(h)->leaf)
        gloo_leaf_interrupt(of_host(h)->leaf);
}

static void gloo_free(struct coll_host *h)
{
    struct gloo *g = of_host(h);
    gloo_leaf_free(g->leaf);
    free(g->land);
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

/* Phase 1 */

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
    int rc = gloo_leaf_new(rank, size, &g->own.addr, g->timeout_ms, &g->leaf, err);
    if (rc < 0)
        return rc;
    g->own.window = gloo_leaf_window(g->leaf);
    for (int r = 0; r < size; r++)
        g->own.ports[r] = gloo_leaf_port(g->leaf, r);
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

/* Phase 2 */

/* Rank r's blob, seen from here. */
static int check_peer(struct gloo *g, int r, const struct endpoint *e, struct err *err)
{
    if (e->rank != r || e->size != g->own.size)
        return err_set(err, ERR_PROTO, "it is of rank %d of %d, want rank %d of %d", e->rank,
                       e->size, r, g->own.size);
    if (r < g->own.rank && e->ports[g->own.rank] == 0)
        return err_set(err, ERR_PROTO, "it has no port for rank %d", g->own.rank);
    if (r < g->own.rank && endpoint_is_any(&e->addr)) {
        char ip[COLL_IP_LEN];
        endpoint_ip_text(&e->addr, ip);
        return err_set(err, ERR_PROTO, "it advertises %s, to which nobody can connect", ip);
    }
    return 0;
}

struct peer {
    struct sockaddr_storage addr; /* where it listens for us, if its rank is lower */
    uint8_t nonce[ENDPOINT_NONCE];
};

static int read_blobs(struct gloo *g, const void *const *blobs, const size_t *lens,
                      struct peer *peers, struct err *err)
{
    uint32_t window = g->own.window;
    for (int r = 0; r < g->own.size; r++) {
        struct endpoint e;
        if (r == g->own.rank)
            continue;
        if (endpoint_parse(blobs[r], lens[r], &e, err) < 0 || check_peer(g, r, &e, err) < 0)
            return err_wrap(err, "endpoint of rank %d", r);
        peers[r].addr = endpoint_for(&e, g->own.rank);
        memcpy(peers[r].nonce, e.nonce, ENDPOINT_NONCE);
        window = e.window < window ? e.window : window; /* the same minimum on every rank */
    }
    size_t piece = window / MESH_WINDOW / 64 * 64;
    g->mesh.piece = piece < MESH_PIECE_MAX ? piece : MESH_PIECE_MAX;
    return 0;
}

/* The first message on each link: proves that the peer has our blob, and is who we think. */
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

static int greet_all(struct gloo *g, const struct peer *peers, struct err *err)
{
    struct mesh *m = &g->mesh;
    int rc = 0;
    for (int r = 0; r < m->size && rc == 0; r++) {
        struct greeting ours = greet(peers[r].nonce, m->rank, m->size);
        if (r != m->rank)
            rc = m->send(m, r, &ours, sizeof ours, err);
    }
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
    return rc < 0 ? err_wrap(err, "greeting the ranks") : 0;
}

static int meet(struct gloo *g, struct peer *peers, int64_t deadline_ms, struct err *err)
{
    int64_t t0 = clock_mono_ns();
    struct sockaddr_storage *addrs = xcalloc((size_t)g->own.size, sizeof *addrs);
    for (int r = 0; r < g->own.size; r++)
        addrs[r] = peers[r].addr;
    int rc = gloo_leaf_connect(g->leaf, addrs, deadline_ms, err);
    free(addrs);
    if (rc == 0)
        rc = try_alloc(&g->land, 2 * g->mesh.piece, "landing space of collectives", err);
    if (rc < 0)
        return rc;
    g->mesh.rank = g->own.rank;
    g->mesh.size = g->own.size;
    g->mesh.land0 = g->land;
    g->mesh.land = g->mesh.land0 + g->mesh.piece;
    g->mesh.send = link_send;
    g->mesh.recv = link_recv;
    rc = gloo_leaf_open(g->leaf, g->land, g->mesh.piece, err);
    if (rc < 0)
        return rc;
    int64_t left = deadline_ms - (clock_mono_ns() - t0) / 1000000;
    gloo_leaf_set_timeout(g->leaf, max_i64(left, 1));
    rc = greet_all(g, peers, err);
    gloo_leaf_set_timeout(g->leaf, g->timeout_ms);
    return rc;
}

/* A write to a lost peer raises SIGPIPE in the writing thread.  The comm thread takes no signals;
 * here it is the caller's thread, so it is blocked, and taken back if it came. */
static int meet_without_sigpipe(struct gloo *g, struct peer *peers, int64_t deadline_ms,
                                struct err *err)
{
    sigset_t pipe, before, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    int rc = meet(g, peers, deadline_ms, err);
    if (!sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe, NULL, &(struct timespec){0}) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int connect_once(struct gloo *g, const void *const *blobs, const size_t *lens,
                        int64_t deadline_ms, struct err *err)
{
    if (host_aborted(&g->host))
        return host_canceled(err);
    if (g->connected)
        return err_set(err, ERR_ARG, "connecting a second time");
    g->connected = true;
    if (g->own.size == 1)
        return 0;
    struct peer *peers = xcalloc((size_t)g->own.size, sizeof *peers);
    int rc = read_blobs(g, blobs, lens, peers, err);
    if (rc == 0)
        rc = meet_without_sigpipe(g, peers, deadline_ms, err);
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
