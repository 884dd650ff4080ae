/* tcp - the kind of coll whose ranks are processes: endpoints, connecting, and the algorithms of
 * coll/mesh over the links of coll/links.
 *
 * The thread that runs a collective does the sending and receiving itself, on blocking sockets.
 * Most libraries hand each message over to an event thread, which costs more than a small message
 * takes.  tests/bench/RESULTS.md has the figures. */
#include "coll/tcp.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "coll/endpoint.h"
#include "coll/fabric/fabric.h"
#include "coll/host.h"
#include "coll/links.h"
#include "coll/mesh.h"

/* A sum is begun over so many sockets at most.  With all ranks on two cores, 64 bytes then take 0.6
 * of their time among 2 ranks, and about as long as before among 4; more ranks gain nothing. */
enum { BEGIN_SOCKETS = 3 };

/* The links as one channel uses them: mesh's transport. */
struct net {
    struct mesh mesh;
    struct tcp *tcp;
    struct link **link; /* [size]: links that it has used, for the thread that runs the channel */
    void *land;
};

struct tcp {
    struct coll_host host; /* first */
    struct net net[COLL_CHANNELS];
    struct links *links;       /* NULL with one rank */
    struct fabric *fabric;     /* NULL: this rank offers none, or not all ranks offer it */
    int wants_fabric;          /* a provider was named */
    atomic_int is_over_fabric; /* all ranks offer it, so the links go over it, and it stays */
    struct endpoint own;
    struct cipher *cipher; /* of encrypted links; NULL: plain */
    int64_t timeout_ms;
    enum coll_encrypt encrypt;
    int share_memory;
    struct layout layout; /* zeros until the connect */
    int connected;        /* coll_tcp_connect was called */
    atomic_int unlinked;  /* a rank whose link the connect waits for; -1: none */
};

static struct tcp *of_host(struct coll_host *h) { return container_of(h, struct tcp, host); }
static struct net *of_mesh(struct mesh *m) { return container_of(m, struct net, mesh); }

/* ---- mesh's transport ---- */

/* The time `ms` from now, in ns. */
static int64_t tcp_in_ms(int64_t ms)
{
    const int64_t now = clock_mono_ns();

    return ms < (INT64_MAX - now) / 1000000 ? now + ms * 1000000 : INT64_MAX;
}

static void net_want(struct mesh *m, int r)
{
    struct net *net = of_mesh(m);

    if (!net->link[r])
        links_want(net->tcp->links, (enum coll_channel)(net - net->tcp->net), r);
}

/* Add to the error the lost rank's name, and all other ranks whose links are broken, because one of
 * these may be the cause. */
static int tcp_lost(struct net *net, int r, struct err *err)
{
    struct tcp *t = net->tcp;
    const struct err why = *err;
    char also[128];

    if (host_aborted(&t->host))
        return host_canceled(err);
    if (why.code == ERR_TIMEOUT)
        return err_set(err, ERR_TIMEOUT, "no progress with rank %d for %lld ms", r,
                       (long long)t->timeout_ms);
    if (why.code != ERR_PEER)
        return why.code;
    links_list_gone(t->links, r, also, sizeof also);
    return err_set(err, ERR_PEER, "lost rank %d%s (%s)", r, also, why.msg);
}

/* Get the link with rank r for this channel, and wait for it if it is not there. */
static int tcp_use(struct net *net, int r, struct err *err)
{
    const int64_t until_ns = net->tcp->timeout_ms ? tcp_in_ms(net->tcp->timeout_ms) : INT64_MAX;

    if (net->link[r])
        return 0;
    if (links_get(net->tcp->links, (enum coll_channel)(net - net->tcp->net), r, until_ns,
                  &net->link[r], err) < 0)
        return tcp_lost(net, r, err);
    return 0;
}

static int net_send(struct mesh *m, int to, const void *data, size_t n_bytes, struct err *err)
{
    struct net *net = of_mesh(m);

    if (tcp_use(net, to, err) < 0)
        return err->code;
    return link_send(net->link[to], data, n_bytes, err) < 0 ? tcp_lost(net, to, err) : 0;
}

static int net_recv(struct mesh *m, int from, void *to, size_t n_bytes, struct err *err)
{
    struct net *net = of_mesh(m);

    if (tcp_use(net, from, err) < 0)
        return err->code;
    return link_recv(net->link[from], to, n_bytes, err) < 0 ? tcp_lost(net, from, err) : 0;
}

/* Over a fabric a rank makes no progress while its thread rests, so all must have left by then. */
static int net_flush(struct net *net, struct err *err)
{
    int rc = 0;

    for (int r = 0; r < net->mesh.size && rc == 0; r++)
        if (net->link[r] && link_flush(net->link[r], err) < 0)
            rc = tcp_lost(net, r, err);
    return rc;
}

/* ---- host_ops ---- */

static int tcp_run(struct coll_host *h, const struct coll_job *job, struct err *err)
{
    struct net *net = &of_host(h)->net[job->channel];
    const int rc = mesh_run(&net->mesh, job, err);

    return rc == 0 && net->tcp->is_over_fabric ? net_flush(net, err) : rc;
}

/* A collective can be begun if no send would block. */
static int tcp_begin(struct coll_host *h, const struct coll_job *job, struct err *err)
{
    struct net *net = &of_host(h)->net[job->channel];
    const struct mesh *m = &net->mesh;
    int n_sockets = 0;

    if (!mesh_can_begin(m, job))
        return 0;
    for (int i = 1; i < m->size; i++) {
        const struct link *k = net->link[(m->rank + i) % m->size];

        n_sockets += k && !link_is_shared(k);
        if (!k || !link_has_room(k, job->n_bytes) || n_sockets > BEGIN_SOCKETS)
            return 0;
    }
    return mesh_begin(&net->mesh, job, err) < 0 ? err->code : 1;
}

static void tcp_interrupt(struct coll_host *h)
{
    if (of_host(h)->links)
        links_interrupt(of_host(h)->links);
}

static void tcp_free(struct coll_host *h)
{
    struct tcp *t = of_host(h);

    links_free(t->links);
    fabric_free(t->fabric);
    cipher_free(t->cipher);
    for (int ch = 0; ch < COLL_CHANNELS; ch++) {
        free(t->net[ch].link);
        free(t->net[ch].land);
    }
    OPENSSL_cleanse(&t->own, sizeof t->own);
    layout_fini(&t->layout);
    free(t);
}

static void tcp_stats(struct coll_host *h, struct coll_stats *out)
{
    const struct tcp *t = of_host(h);

    if (t->links)
        out->n_strangers = links_n_strangers(t->links);
    if (atomic_load(&t->is_over_fabric))
        out->n_strangers += fabric_n_strangers(t->fabric);
}

static const struct host_ops tcp_ops = {.name = "tcp",
                                        .begin = tcp_begin,
                                        .run = tcp_run,
                                        .interrupt = tcp_interrupt,
                                        .free = tcp_free,
                                        .stats = tcp_stats};

static struct tcp *of_coll(struct coll *c)
{
    struct coll_host *h = container_of(c, struct coll_host, base);

    ASSERT(h->ops == &tcp_ops);
    return of_host(h);
}

/* ---- phase 1 ---- */

static int choose_addr(const struct coll_tcp_options *o, struct endpoint_addr *out, struct err *err)
{
    if (o->bind && o->iface)
        return err_set(err, ERR_ARG, "both a bind address (%.60s) and an interface (%.40s)",
                       o->bind, o->iface);
    if (o->iface)
        return endpoint_addr_of_iface(o->iface, out, err);
    return endpoint_addr_from_text(o->bind ? o->bind : "127.0.0.1", out, err);
}

static int listen_for_peers(struct tcp *t, struct err *err)
{
    struct samehost_name name;

    if (getrandom(t->own.random, sizeof t->own.random, 0) != (ssize_t)sizeof t->own.random)
        return err_sys(err, errno, "random numbers");
    if (link_window(&t->own.window, err) < 0)
        return err->code;
    if (t->own.size == 1)
        return 0;
    samehost_name_of(t->own.random, &name);
    if (links_new(t->own.rank, t->own.size, &t->own.addr, t->share_memory ? &name : NULL,
                  t->timeout_ms, &t->links, err) < 0)
        return err->code;
    t->own.addr.port = links_port(t->links);
    return 0;
}

/* Offer a fabric, if one is wanted and there is one. */
static int offer_fabric(struct tcp *t, const char *provider, struct err *err)
{
    char ip[COLL_IP_LEN];

    if (!provider || !strcmp(provider, "tcp") || t->own.size == 1)
        return 0;
    endpoint_ip_text(&t->own.addr, ip);
    t->wants_fabric = strcmp(provider, "auto") != 0;
    if (fabric_new(provider, ip, t->own.rank, t->own.size, &t->fabric, err) < 0)
        return err->code;
    if (t->fabric)
        fabric_describe(t->fabric, &t->own.fabric);
    return 0;
}

static int tcp_check_options(const struct coll_tcp_options *o, struct err *err)
{
    if (o->size < 1 || o->size > COLL_TCP_MAX_RANKS)
        return err_set(err, ERR_ARG, "%d ranks, want 1 to %d", o->size, COLL_TCP_MAX_RANKS);
    if (o->rank < 0 || o->rank >= o->size)
        return err_set(err, ERR_ARG, "rank %d of %d", o->rank, o->size);
    if (o->timeout_ms < 0)
        return err_set(err, ERR_ARG, "timeout of %lld ms", (long long)o->timeout_ms);
    return 0;
}

int coll_tcp_prepare(const struct coll_tcp_options *o, struct coll **out, struct err *err)
{
    struct tcp *t;
    int rc;

    if (tcp_check_options(o, err) < 0)
        return err->code;
    t = xcalloc(1, sizeof *t);
    t->timeout_ms = o->timeout_ms;
    t->encrypt = o->encrypt;
    t->share_memory = o->share_memory && o->encrypt != COLL_ENCRYPT_ON;
    t->own.rank = o->rank;
    t->own.size = o->size;
    atomic_init(&t->unlinked, -1);
    atomic_init(&t->is_over_fabric, 0);
    host_init(&t->host, &tcp_ops, o->rank, o->size);
    rc = choose_addr(o, &t->own.addr, err);
    if (rc == 0)
        rc = listen_for_peers(t, err);
    if (rc == 0)
        rc = offer_fabric(t, o->fabric, err);
    if (rc < 0) {
        coll_free(&t->host.base);
        return err_wrap(err, "preparing links between ranks");
    }
    *out = &t->host.base;
    return 0;
}

void coll_tcp_endpoint(struct coll *c, struct buf *out) { endpoint_pack(&of_coll(c)->own, out); }

/* ---- phase 2 ---- */

/* Check that this blob can be rank r's. */
static int check_peer(const struct tcp *t, int r, const struct endpoint *e, struct err *err)
{
    char ip[COLL_IP_LEN];

    if (e->rank != r || e->size != t->own.size)
        return err_set(err, ERR_PROTO, "it is of rank %d of %d, want rank %d of %d", e->rank,
                       e->size, r, t->own.size);
    if (e->addr.port == 0)
        return err_set(err, ERR_PROTO, "it has no port");
    if (r < t->own.rank && endpoint_is_any(&e->addr)) {
        endpoint_ip_text(&e->addr, ip);
        return err_set(err, ERR_PROTO, "it advertises %s, to which nobody can connect", ip);
    }
    return 0;
}

/* Fill peers[size], names[size] if it is not NULL, and the piece that every rank's window allows.
 */
static int read_blobs(struct tcp *t, const void *const *blobs, const size_t *lens,
                      struct endpoint_addr *peers, struct samehost_name *names, size_t *piece,
                      struct err *err)
{
    uint32_t window = UINT32_MAX;

    for (int r = 0; r < t->own.size; r++) {
        struct endpoint e;

        if (endpoint_parse(blobs[r], lens[r], &e, err) < 0 || check_peer(t, r, &e, err) < 0)
            return err_wrap(err, "endpoint of rank %d", r);
        peers[r] = e.addr;
        if (names)
            samehost_name_of(e.random, &names[r]);
        window = e.window < window ? e.window : window;
        OPENSSL_cleanse(&e, sizeof e);
    }
    *piece = window / MESH_WINDOW / 64 * 64;
    if (*piece > MESH_PIECE_MAX)
        *piece = MESH_PIECE_MAX;
    return 0;
}

static int is_one_host(const struct endpoint_addr *a, const struct endpoint_addr *b)
{
    return a->family == b->family && !memcmp(a->ip, b->ip, sizeof a->ip);
}

/* 1: there are several hosts, the ranks of each host follow one another, and some host has
 * several ranks.  Equal addresses are taken for one host.  All ranks see the same table, so they
 * decide alike. */
static int is_chained(const struct endpoint_addr *peers, int size)
{
    int n_hosts = 1;

    for (int r = 1; r < size && size <= MESH_ALL_PAIRS; r++) {
        if (is_one_host(&peers[r], &peers[r - 1]))
            continue;
        for (int earlier = 0; earlier < r; earlier++)
            if (is_one_host(&peers[r], &peers[earlier]))
                return 0;
        n_hosts++;
    }
    return n_hosts > 1 && n_hosts < size;
}

/* Equal addresses are taken for one host. */
static void lay_out(struct layout *l, const struct endpoint_addr *peers, int size)
{
    int *first = xcalloc((size_t)size, sizeof *first), *host = xcalloc((size_t)size, sizeof *host);
    int n_hosts = 0;

    for (int r = 0; r < size; r++) {
        while (host[r] < n_hosts && !is_one_host(&peers[first[host[r]]], &peers[r]))
            host[r]++;
        if (host[r] == n_hosts)
            first[n_hosts++] = r;
    }
    layout_init(l, size, host);
    free(host);
    free(first);
}

static int init_net(struct tcp *t, int ch, int chained, size_t piece, struct err *err)
{
    struct net *net = &t->net[ch];

    net->tcp = t;
    net->link = xcalloc((size_t)t->own.size, sizeof(struct link *));
    net->mesh = (struct mesh){.rank = t->own.rank,
                              .size = t->own.size,
                              .is_chained = chained,
                              .layout = &t->layout,
                              .place = t->layout.place[t->own.rank],
                              .piece = piece,
                              .want = net_want,
                              .send = net_send,
                              .recv = net_recv};
    if (try_alloc(&net->land, mesh_land_bytes(&net->mesh), "landing space of collectives", err) < 0)
        return err->code;
    net->mesh.land = net->land;
    return 0;
}

/* Name the ranks of which a link is missing. */
static int explain_late(struct tcp *t, int64_t deadline_ms, struct err *err)
{
    const struct err first = *err;
    char missing[160] = "", name[ENDPOINT_TEXT + 40];
    struct link *link;

    for (int r = 0; r < t->own.size; r++) {
        int is_there = !mesh_is_near(&t->layout, t->own.rank, r);

        for (int ch = 0; ch < COLL_CHANNELS && !is_there; ch++)
            is_there = links_get(t->links, (enum coll_channel)ch, r, 0, &link, err) == 0 &&
                       ch == COLL_CHANNELS - 1;
        if (is_there)
            continue;
        links_name(t->links, r, name);
        snprintf(missing + strlen(missing), sizeof missing - strlen(missing), "%s%s",
                 *missing ? ", " : "", name);
    }
    *err = first;
    return err_set(err, ERR_TIMEOUT, "after %lld ms not connected with rank %s",
                   (long long)deadline_ms, missing);
}

static int wait_for_link(struct tcp *t, int r, int64_t until_ns, struct err *err)
{
    int rc = 0;

    atomic_store(&t->unlinked, r);
    for (int ch = 0; ch < COLL_CHANNELS && rc == 0; ch++)
        rc = links_get(t->links, (enum coll_channel)ch, r, until_ns, &t->net[ch].link[r], err);
    return rc;
}

/* Make all links that every collective needs (mesh_is_near), at the same time. */
static int tcp_meet(struct tcp *t, int64_t deadline_ms, struct err *err)
{
    const int64_t until_ns = tcp_in_ms(deadline_ms);
    int rc = 0;

    for (int r = 0; r < t->own.size; r++)
        for (int ch = 0; ch < COLL_CHANNELS; ch++)
            if (mesh_is_near(&t->layout, t->own.rank, r))
                links_want(t->links, (enum coll_channel)ch, r);
    for (int r = 0; r < t->own.size && rc == 0; r++)
        if (mesh_is_near(&t->layout, t->own.rank, r))
            rc = wait_for_link(t, r, until_ns, err);
    atomic_store(&t->unlinked, -1);
    return rc == ERR_TIMEOUT ? explain_late(t, deadline_ms, err) : rc;
}

/* 1: this formation's links are encrypted.  All ranks see the same table, so they decide alike.
 */
static int is_encrypted(const struct tcp *t, const struct endpoint_addr *peers)
{
    int is_remote = 0;

    for (int r = 0; r < t->own.size; r++)
        is_remote |= !endpoint_is_loopback(&peers[r]);
    return t->encrypt == COLL_ENCRYPT_ON || (t->encrypt == COLL_ENCRYPT_REMOTE && is_remote);
}

/* Rank r offers another fabric than this one, or none: there is none then.  All ranks see the same
 * table, so they decide alike. */
static int disagree_on_fabric(struct tcp *t, int r, const struct endpoint *e, struct err *err)
{
    if (t->wants_fabric)
        return err_set(
            err, ERR_PROTO,
            "it offers the fabric \"%s\", and rank %d \"%s\": cluster.fabric is the same "
            "for all, but libfabric is not",
            e->fabric.name, t->own.rank, t->own.fabric.name);
    log_info("links between ranks go by TCP, not by %s: rank %d offers %s", t->own.fabric.name, r,
             *e->fabric.name ? e->fabric.name : "no fabric");
    fabric_free(t->fabric);
    t->fabric = NULL;
    return 0;
}

/* Take the addresses of all ranks on the fabric. */
static int agree_on_fabric(struct tcp *t, const void *const *blobs, const size_t *lens,
                           struct err *err)
{
    struct endpoint e;
    int rc = 0;

    for (int r = 0; t->fabric && r < t->own.size && rc == 0; r++) {
        rc = endpoint_parse(blobs[r], lens[r], &e, err);
        if (rc == 0 && strcmp(e.fabric.name, t->own.fabric.name) != 0)
            rc = disagree_on_fabric(t, r, &e, err);
        else if (rc == 0 && r != t->own.rank)
            rc = fabric_meet(t->fabric, r, &e.fabric, err);
        if (rc < 0)
            err_wrap(err, "endpoint of rank %d", r);
    }
    OPENSSL_cleanse(&e, sizeof e);
    atomic_store(&t->is_over_fabric, t->fabric && rc == 0);
    return rc;
}

static int connect_all(struct tcp *t, const void *const *blobs, const size_t *lens,
                       int64_t deadline_ms, struct err *err)
{
    struct endpoint_addr *peers = xcalloc((size_t)t->own.size, sizeof *peers);
    struct samehost_name *names =
        t->share_memory ? xcalloc((size_t)t->own.size, sizeof *names) : NULL;
    uint8_t key[PROOF_KEY];
    size_t piece = 0;
    int rc = read_blobs(t, blobs, lens, peers, names, &piece, err);

    proof_key(blobs, lens, t->own.size, key);
    if (rc == 0)
        rc = agree_on_fabric(t, blobs, lens, err);
    if (t->is_over_fabric)
        piece = MESH_PIECE_MAX; /* a window is one of messages there, not of bytes */
    if (rc == 0)
        lay_out(&t->layout, peers, t->own.size);
    for (int ch = 0; ch < COLL_CHANNELS && rc == 0; ch++)
        rc = init_net(t, ch, is_chained(peers, t->own.size), piece, err);
    if (rc == 0 && is_encrypted(t, peers))
        rc = cipher_new(&t->cipher, err);
    if (rc == 0 && t->is_over_fabric)
        rc = fabric_begin(t->fabric, key, t->cipher != NULL, err);
    if (rc == 0)
        links_begin(t->links, key, t->cipher, t->fabric, peers, names);
    OPENSSL_cleanse(key, sizeof key);
    if (rc == 0)
        return tcp_meet(t, deadline_ms, err);
    free(peers);
    free(names);
    return rc;
}

static int connect_once(struct tcp *t, const void *const *blobs, const size_t *lens,
                        int64_t deadline_ms, struct err *err)
{
    int rc;

    if (host_aborted(&t->host))
        return host_canceled(err);
    if (t->connected)
        return err_set(err, ERR_ARG, "connecting a second time");
    t->connected = 1;
    if (t->own.size == 1)
        return 0;
    rc = connect_all(t, blobs, lens, deadline_ms, err);
    if (rc < 0 && host_aborted(&t->host))
        return host_canceled(err);
    return rc;
}

int coll_tcp_connect(struct coll *c, const void *const *blobs, const size_t *lens,
                     int64_t deadline_ms, struct err *err)
{
    struct tcp *t = of_coll(c);
    int rc = connect_once(t, blobs, lens, deadline_ms, err);

    if (rc == 0)
        rc = host_start(&t->host, err);
    return rc < 0 ? err_wrap(err, "connecting rank %d of %d", t->own.rank, t->own.size) : 0;
}

int coll_tcp_unlinked(struct coll *c) { return atomic_load(&of_coll(c)->unlinked); }

int coll_tcp_is_chained(struct coll *c) { return of_coll(c)->net[COLL_BULK].mesh.is_chained; }

size_t coll_tcp_piece(struct coll *c) { return of_coll(c)->net[COLL_BULK].mesh.piece; }

const char *coll_tcp_protection(struct coll *c)
{
    struct tcp *t = of_coll(c);

    if (!t->cipher)
        return "plain";
    if (t->is_over_fabric)
        return "AES-128-GCM by OpenSSL";
    return links_are_kernel(t->links) ? "TLS by the kernel" : "TLS by OpenSSL";
}

int coll_tcp_is_encrypted(struct coll *c) { return of_coll(c)->cipher != NULL; }

const char *coll_tcp_fabric(struct coll *c)
{
    const struct tcp *t = of_coll(c);

    return t->is_over_fabric ? fabric_name(t->fabric) : NULL;
}

int coll_tcp_n_shared(struct coll *c)
{
    struct links *l = of_coll(c)->links;

    return l ? links_n_shared(l) : 0;
}
