/* broadcast - all ranks take one rank's state, or its running statistics (state_broadcast,
 * state_broadcast_stats).
 *
 * A rank receives into a second buffer, and copies from there to the slots when everything has
 * come.  So a rank whose broadcast breaks off still holds what it held before, and may be the
 * source of the next broadcast.
 *
 * The buffer is the backend's memory, and the source sends straight from its slots, so a GPU's
 * state goes from card to card.  That needs room for a second state on each card except the
 * source's.  If one card lacks that room, all ranks go through host memory.  They also do so if the
 * collectives work on host memory only, or if a part of the state is kept there anyway. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "state/shards.h"

struct space {
    void *at; /* the backend's */
    size_t n_bytes;
    int is_offloaded;
};

struct broadcast {
    struct backend *backend;
    struct coll *coll;
    int source;
    const struct space *space;
    int n_spaces;
    char *aside; /* the second buffer: all spaces, one after another; NULL: not needed */
    size_t n_bytes;
    int on_host; /* the backend is a device, and aside is the host's memory */
};

static int is_source(const struct broadcast *s) { return coll_rank(s->coll) == s->source; }

/* ---- aside ---- */

/* Every rank says whether its card has room.  If one has not, all ranks go through the host. */
static int agree_on_host(struct broadcast *s, int has_room, struct err *err)
{
    const size_t size = (size_t)coll_size(s->coll);
    const uint8_t mine = (uint8_t)has_room;
    uint8_t *all = xcalloc(size, 1);
    const int rc = coll_allgather(s->coll, &mine, 1, all, err);

    s->on_host = rc == 0 && memchr(all, 0, size) != NULL;
    free(all);
    return rc;
}

static int find_room(struct broadcast *s, struct err *err)
{
    struct err full;
    int rc = 0;

    if (!is_source(s))
        rc = backend_alloc(s->backend, s->n_bytes, "a state that is received", (void **)&s->aside,
                           &full);
    if (agree_on_host(s, rc == 0, err) < 0)
        return err->code;
    if (s->on_host) {
        backend_free(s->backend, s->aside);
        s->aside = NULL;
    }
    return 0;
}

static int is_offloaded(const struct broadcast *s)
{
    int any = 0;

    for (int i = 0; i < s->n_spaces; i++)
        any |= s->space[i].is_offloaded;
    return any;
}

static int make_aside(struct broadcast *s, struct err *err)
{
    static const char what[] = "a copy of the training state";

    if (!backend_is_apart(s->backend))
        return is_source(s) ? 0
                            : backend_alloc(s->backend, s->n_bytes, what, (void **)&s->aside, err);
    s->on_host = !coll_is_device(s->coll) || is_offloaded(s);
    if (!s->on_host && find_room(s, err) < 0)
        return err->code;
    return s->on_host ? try_alloc((void **)&s->aside, s->n_bytes, what, err) : 0;
}

static void free_aside(struct broadcast *s)
{
    if (s->on_host)
        free(s->aside);
    else
        backend_free(s->backend, s->aside);
}

/* ---- there and back ---- */

static int send_space(struct broadcast *s, const struct space *p, size_t at, struct err *err)
{
    void *x = s->aside ? s->aside + at : p->at;

    ASSERT(at + p->n_bytes <= s->n_bytes);
    ASSERT(is_source(s) ? !s->aside || s->on_host : !!s->aside); /* others keep what they hold */
    if (s->on_host && is_source(s) && backend_copy_out(s->backend, x, p->at, p->n_bytes, err) < 0)
        return err->code;
    return coll_broadcast(s->coll, x, p->n_bytes, s->source, err);
}

static int take_space(struct broadcast *s, const struct space *p, size_t at, struct err *err)
{
    ASSERT(!is_source(s) && s->aside && at + p->n_bytes <= s->n_bytes);
    if (s->on_host)
        return backend_copy_in(s->backend, p->at, s->aside + at, p->n_bytes, err);
    return backend_copy(s->backend, p->at, s->aside + at, p->n_bytes, err);
}

static int for_spaces(struct broadcast *s,
                      int (*what)(struct broadcast *s, const struct space *p, size_t at,
                                  struct err *err),
                      struct err *err)
{
    size_t at = 0;

    for (int i = 0; i < s->n_spaces; at += s->space[i++].n_bytes)
        if (s->space[i].n_bytes && what(s, &s->space[i], at, err) < 0)
            return err->code;
    return 0;
}

static int broadcast_spaces(struct backend *b, struct coll *c, int source,
                            const struct space *space, int n, struct err *err)
{
    struct broadcast s = {.backend = b, .coll = c, .source = source, .space = space, .n_spaces = n};
    int rc;

    ASSERT(source >= 0 && source < coll_size(c));
    for (int i = 0; i < n; i++)
        s.n_bytes += space[i].n_bytes;
    if (!s.n_bytes)
        return 0;
    rc = make_aside(&s, err);
    if (rc == 0)
        rc = for_spaces(&s, send_space, err);
    if (rc == 0 && !is_source(&s))
        rc = for_spaces(&s, take_space, err);
    if (rc == 0)
        rc = backend_sync(b, err);
    free_aside(&s);
    return rc;
}

/* ---- what is sent ---- */

/* Where slots are divided, the holders of the shards send the trained parameters. */
static int list_spaces(const struct state *s, struct space *out)
{
    const size_t trained = sizeof(float) * (size_t)s->layout->n_trained;
    int n = 0;

    for (int k = 0; k < s->n_slots; k++) {
        const struct slot *slot = &s->slot[k];
        const size_t skipped = s->shards && slot->def == &slot_parameters ? trained : 0;

        ASSERT(skipped <= slot->n_bytes && (slot->data || slot->is_divided || !slot->n_bytes));
        if (slot_is_broadcast(slot->def) && !slot->is_divided)
            out[n++] = (struct space){(char *)slot->data + skipped, slot->n_bytes - skipped,
                                      slot->is_offloaded};
    }
    return n;
}

static int broadcast_slot(struct state *s, struct coll *c, int source, struct ckpt_state *at,
                          struct err *err)
{
    struct space space[STATE_MAX_SLOTS];
    int rc;

    *at = s->at;
    rc = coll_broadcast(c, at, sizeof *at, source, err);
    return rc == 0 ? broadcast_spaces(s->backend, c, source, space, list_spaces(s, space), err)
                   : rc;
}

static int broadcast_shards(struct state *s, struct coll *c, struct err *err)
{
    struct shard_source from;
    struct ckpt_state at;
    int rc = shards_agree(s, c, &from, err);

    if (rc == 0)
        rc = broadcast_slot(s, c, from.root, &at, err);
    if (rc == 0)
        rc = shards_exchange(s, c, &from, &at, err);
    shard_source_fini(&from);
    return rc;
}

int state_broadcast(struct state *s, struct coll *c, int source, struct err *err)
{
    struct ckpt_state at;
    int rc = s->shards ? broadcast_shards(s, c, err) : broadcast_slot(s, c, source, &at, err);

    if (rc == 0 && !s->shards)
        s->at =
            at; /* last: a rank whose broadcast breaks off must not claim a step that it has not */
    return rc < 0 ? err_wrap(err, "broadcast of the state from rank %d", source) : rc;
}

int state_broadcast_stats(struct state *s, struct coll *c, struct err *err)
{
    const struct space stats = {state_data(s, &slot_statistics),
                                sizeof(float) * (size_t)s->layout->n_state_total, 0};

    return broadcast_spaces(s->backend, c, 0, &stats, 1, err) < 0
               ? err_wrap(err, "broadcast of the running statistics")
               : 0;
}
