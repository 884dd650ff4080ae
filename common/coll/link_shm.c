/* link_shm - the form of a link whose bytes go through memory that the two ranks share
 * (coll/shm.h).  The socket only shows when the peer is gone. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "coll/link_impl.h"
#include "coll/patience.h"

enum {
    LOOK_NS = 20 * 1000 * 1000
}; /* the time between two looks whether the peer was killed, while
      a rank waits for shared memory */

struct link_shm {
    struct link base; /* first */
    struct shm *shm;
    struct patience *patience; /* borrowed */
};

static struct link_shm *link_shm_of(struct link *k)
{
    return container_of(k, struct link_shm, base);
}

static int link_shm_broken(struct err *err)
{
    return err_set(err, ERR_PROTO, "it has broken the shared memory");
}

/* A side waits until it can move so many bytes. */
struct wish {
    const struct shm *shm;
    size_t n_bytes;
};

static int can_send(const void *arg)
{
    const struct wish *w = arg;

    return shm_has_room(w->shm, w->n_bytes) || shm_is_closed(w->shm);
}

static int can_receive(const void *arg)
{
    const struct wish *w = arg;

    return shm_has_bytes(w->shm, w->n_bytes) || shm_is_closed(w->shm);
}

static void wait_to_send(const struct link_shm *s, size_t n_bytes)
{
    const struct wish w = {s->shm, n_bytes < SHM_RING / 2 ? n_bytes : SHM_RING / 2};

    if (!patience_wait(s->patience, can_send, &w))
        shm_wait_to_send(s->shm, w.n_bytes, LOOK_NS);
}

static void wait_to_receive(const struct link_shm *s, size_t n_bytes)
{
    const struct wish w = {s->shm, n_bytes < SHM_RING ? n_bytes : SHM_RING};

    if (!patience_wait(s->patience, can_receive, &w))
        shm_wait_to_recv(s->shm, w.n_bytes, LOOK_NS);
}

static int link_shm_send(struct link *k, const void *data, size_t n_bytes, struct err *err)
{
    struct shm *shm = link_shm_of(k)->shm;
    const char *from = data;
    ssize_t n = shm_send(shm, from, n_bytes);
    int64_t until_ns = 0;

    while (n >= 0 && (size_t)n < n_bytes && !shm_is_closed(shm)) {
        from += n;
        n_bytes -= (size_t)n;
        if (n > 0 || until_ns == 0)
            until_ns = link_limit_ns(k);
        wait_to_send(link_shm_of(k), n_bytes);
        n = shm_send(shm, from, n_bytes);
        if (n == 0 && link_is_gone(k))
            return link_closed(err);
        if (n == 0 && clock_mono_ns() > until_ns)
            return link_stalled(err);
    }
    if (n < 0)
        return link_shm_broken(err);
    return shm_is_closed(shm) ? link_closed(err) : 0;
}

/* Bytes that the peer sent before it closed are received. */
static int link_shm_recv(struct link *k, void *to, size_t n_bytes, struct err *err)
{
    struct shm *shm = link_shm_of(k)->shm;
    char *at = to;
    ssize_t n = shm_recv(shm, at, n_bytes);
    int64_t until_ns = 0;
    int is_over = 0;

    while (n >= 0 && (size_t)n < n_bytes) {
        at += n;
        n_bytes -= (size_t)n;
        if (n == 0 && is_over)
            return link_closed(err);
        if (n > 0 || until_ns == 0)
            until_ns = link_limit_ns(k);
        else if (clock_mono_ns() > until_ns)
            return link_stalled(err);
        wait_to_receive(link_shm_of(k), n_bytes);
        is_over = shm_is_closed(shm) || (!shm_has_bytes(shm, 1) && link_is_gone(k));
        n = shm_recv(shm, at, n_bytes);
    }
    return n < 0 ? link_shm_broken(err) : 0;
}

static int link_shm_has_room(const struct link *k, size_t n_bytes)
{
    return shm_has_room(container_of(k, struct link_shm, base)->shm, n_bytes);
}

static void link_shm_shut(struct link *k) { shm_close(link_shm_of(k)->shm); }

static void link_shm_fini(struct link *k) { shm_free(link_shm_of(k)->shm); }

const struct link_ops link_shm_ops = {.send = link_shm_send,
                                      .recv = link_shm_recv,
                                      .has_room = link_shm_has_room,
                                      .shut = link_shm_shut,
                                      .fini = link_shm_fini};

struct link *link_over_shm(struct shm *shm, struct patience *patience)
{
    struct link_shm *s = xcalloc(1, sizeof *s);

    s->base.ops = &link_shm_ops;
    s->shm = shm;
    s->patience = patience;
    return &s->base;
}
