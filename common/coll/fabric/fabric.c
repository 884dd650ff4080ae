/* fabric - a rank's two rails, and the form of a link that sends and receives through one.
 *
 * Happy path: a call tries, and the rail has room or bytes at once.  Otherwise the caller polls the
 * rail, first again and again, and then between sleeps.
 *
 * Failure modes: the link's socket has ended, so the peer is gone: what it sent before may still
 * arrive for GRACE_MS.  link_shut ends a wait at once.  A provider that never reports the loss of a
 * peer holds up nobody. */
#include "coll/fabric/fabric.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "coll/fabric/handlers.h"
#include "coll/fabric/load.h"
#include "coll/fabric/rail.h"
#include "coll/link_impl.h"

enum {
    YIELDS = 8,     /* polls before a rank sleeps; on a busy machine each takes a slice */
    SLEEP_MS = 1,   /* the longest sleep: a provider may need to be polled though its fd is quiet */
    LOOK_MS = 20,   /* the time between two looks at the socket */
    GRACE_MS = 200, /* how long the bytes of a peer that is gone are waited for */
};

struct fabric {
    struct rail_terms terms; /* of both rails */
    struct rail *rail[COLL_CHANNELS];
    uint8_t own_half[SEAL_PUBLIC];
};

/* ---- the form of a link ---- */

struct link_fabric {
    struct link base; /* first */
    struct rail *rail;
    int rank;
    atomic_int is_shut; /* by link_shut, of any thread */
};

/* One wait: for room, or for bytes. */
struct wait {
    int n_polls;
    int64_t until_ns, looked_ns, gone_ns; /* 0: not yet */
};

static struct link_fabric *link_fabric_of(struct link *k)
{
    return container_of(k, struct link_fabric, base);
}

/* Look whether the wait has to end. */
static int fabric_look(struct link_fabric *k, struct wait *w, struct err *err)
{
    const int64_t now = clock_mono_ns();

    if (!w->until_ns)
        w->until_ns = link_limit_ns(&k->base);
    w->looked_ns = now;
    if (!w->gone_ns && link_is_gone(&k->base))
        w->gone_ns = now;
    if (w->gone_ns && now - w->gone_ns > GRACE_MS * INT64_C(1000000))
        return link_closed(err);
    return now > w->until_ns ? link_stalled(err) : 0;
}

/* The fabric has lost a message, while the peer's socket says that it lives. */
static int fabric_lost(struct err *err)
{
    return err_set(err, ERR_PEER, "the fabric cannot reach it");
}

/* Make progress, or sleep until there may be some.  Bytes that had come were taken before. */
static int fabric_wait(struct link_fabric *k, struct wait *w, struct err *err)
{
    const int has_failed = rail_has_failed(k->rail, k->rank);
    const int n = has_failed ? 0 : rail_poll(k->rail, err);

    if (has_failed)
        return fabric_lost(err);
    if (n < 0)
        return n;
    if (atomic_load(&k->is_shut))
        return link_closed(err);
    if (++w->n_polls < YIELDS) {
        if (n == 0)
            sched_yield();
        return 0;
    }
    if (n == 0)
        rail_sleep(k->rail, w->gone_ns ? -1 : k->base.fd, SLEEP_MS);
    if (clock_mono_ns() - w->looked_ns < LOOK_MS * INT64_C(1000000) && !w->gone_ns)
        return 0;
    return fabric_look(k, w, err);
}

/* Send the bytes at `from`, or, if it is NULL, receive as many to `to`. */
static int fabric_move(struct link_fabric *k, const uint8_t *from, uint8_t *to, size_t n_bytes,
                       struct err *err)
{
    struct wait w = {0};
    size_t done = 0;
    int rc = 0;

    while (done < n_bytes && rc == 0) {
        const int64_t n = from ? rail_send(k->rail, k->rank, from + done, n_bytes - done, err)
                               : rail_recv(k->rail, k->rank, to + done, n_bytes - done, err);

        if (n < 0)
            return (int)n;
        done += (size_t)n;
        if (n > 0)
            w = (struct wait){0};
        else
            rc = fabric_wait(k, &w, err);
    }
    return rc;
}

static int fabric_send(struct link *base, const void *data, size_t n_bytes, struct err *err)
{
    return fabric_move(link_fabric_of(base), data, NULL, n_bytes, err);
}

static int fabric_recv(struct link *base, void *to, size_t n_bytes, struct err *err)
{
    return fabric_move(link_fabric_of(base), NULL, to, n_bytes, err);
}

/* 1: the peer has left, or does within GRACE_MS. */
static int fabric_left(const struct link_fabric *k)
{
    struct pollfd p = {k->base.fd, POLLRDHUP, 0};

    return poll(&p, 1, GRACE_MS) > 0;
}

/* A peer that leaves behind its last collective may not take the credits for what it has sent.  As
 * on TCP, whoever waits for its bytes is told that it has left. */
static int fabric_flush(struct link *base, struct err *err)
{
    struct link_fabric *k = link_fabric_of(base);
    struct wait w = {0};
    int rc = 0;

    while (rail_n_sending(k->rail, k->rank) && rc == 0)
        rc = fabric_wait(k, &w, err);
    if (rc == 0 && rail_has_failed(k->rail, k->rank))
        rc = fabric_lost(err);
    return rc == ERR_PEER && fabric_left(k) ? 0 : rc;
}

static void fabric_shut(struct link *base) { atomic_store(&link_fabric_of(base)->is_shut, 1); }

static const struct link_ops link_fabric_ops = {
    .send = fabric_send, .recv = fabric_recv, .flush = fabric_flush, .shut = fabric_shut};

struct link *link_over_fabric(struct fabric *f, enum coll_channel ch, int r)
{
    struct link_fabric *k = xcalloc(1, sizeof *k);

    k->base.ops = &link_fabric_ops;
    k->rail = f->rail[ch];
    k->rank = r;
    atomic_init(&k->is_shut, 0);
    return &k->base;
}

/* ---- life ---- */

/* Providers may be libraries of their own, which are loaded where the first rail is opened. */
static int open_rails(struct fabric *f, const char *provider, const char *ip, struct err *err)
{
    struct handlers ours;
    int rc;

    handlers_keep(&ours);
    rc = fabric_load(&f->terms.ops, err);
    handlers_restore(&ours);
    if (rc == 0)
        rc = seal_own_new(&f->terms.own, f->own_half, err);
    for (int ch = 0; ch < COLL_CHANNELS && rc == 0; ch++)
        rc = rail_new(&f->terms, provider, ip, (enum coll_channel)ch, &f->rail[ch], err);
    handlers_restore(&ours);
    return rc;
}

/* A network whose library is missing is a pity with "auto", and an error by its name. */
int fabric_new(const char *provider, const char *ip, int rank, int size, struct fabric **out,
               struct err *err)
{
    const int is_auto = !strcmp(provider, "auto");
    const char *name = is_auto ? fabric_likely("") : provider;
    struct fabric *f;
    int rc;

    *out = NULL;
    if (!name)
        return 0;
    f = xcalloc(1, sizeof *f);
    f->terms.rank = rank;
    f->terms.size = size;
    f->terms.half = xcalloc((size_t)size, sizeof *f->terms.half);
    rc = open_rails(f, name, ip, err);
    if (rc == 0) {
        *out = f;
        return 0;
    }
    fabric_free(f);
    if (!is_auto)
        return err_wrap(err, "cluster.fabric: %.48s", provider);
    log_info("links between ranks go by TCP, not by %s: %s", name, err->msg);
    return 0;
}

void fabric_free(struct fabric *f)
{
    if (!f)
        return;
    for (int ch = 0; ch < COLL_CHANNELS; ch++)
        rail_free(f->rail[ch]);
    EVP_PKEY_free(f->terms.own);
    free(f->terms.half);
    OPENSSL_cleanse(f, sizeof *f);
    free(f);
}

void fabric_describe(const struct fabric *f, struct endpoint_fabric *out)
{
    *out = (struct endpoint_fabric){0};
    memcpy(out->name, fabric_name(f), strlen(fabric_name(f)));
    memcpy(out->half, f->own_half, sizeof out->half);
    for (int ch = 0; ch < COLL_CHANNELS; ch++) {
        const void *at = f->terms.ops->address(rail_port(f->rail[ch]), &out->len[ch]);

        memcpy(out->address[ch], at, out->len[ch]);
    }
}

int fabric_meet(struct fabric *f, int r, const struct endpoint_fabric *e, struct err *err)
{
    int rc = 0;

    memcpy(f->terms.half[r], e->half, SEAL_PUBLIC);
    for (int ch = 0; ch < COLL_CHANNELS && rc == 0; ch++)
        rc = rail_add(f->rail[ch], r, e->address[ch], e->len[ch], err);
    return rc;
}

int fabric_begin(struct fabric *f, const uint8_t key[PROOF_KEY], int hides, struct err *err)
{
    int rc = 0;

    memcpy(f->terms.key, key, PROOF_KEY);
    f->terms.hides = hides;
    for (int ch = 0; ch < COLL_CHANNELS && rc == 0; ch++)
        rc = rail_begin(f->rail[ch], err);
    return rc;
}

const char *fabric_name(const struct fabric *f)
{
    return f->terms.ops->name(rail_port(f->rail[0]));
}

int64_t fabric_n_strangers(const struct fabric *f)
{
    int64_t n = 0;

    for (int ch = 0; ch < COLL_CHANNELS; ch++)
        n += rail_n_strangers(f->rail[ch]);
    return n;
}
