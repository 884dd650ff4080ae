/* replica - hashes of the state, by which ranks compare their replicas (state_hash).
 *
 * In host memory a slot is hashed where it lies.  A slot in a device's memory is copied to a window
 * in host memory, a few MiB at a time.  One window holds many small tensors. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "state/state.h"

enum { WINDOW_BYTES = 4 << 20 };

/* Bytes [from, to) of a device's slot. */
struct window {
    const struct state *state;
    const struct slot *slot;
    char *bytes; /* [WINDOW_BYTES]; NULL: the backend's memory is the host's */
    size_t from, to;
};

static int window_fill(struct window *w, size_t from, struct err *err)
{
    const size_t rest = w->slot->n_bytes - from, n = rest < WINDOW_BYTES ? rest : WINDOW_BYTES;

    w->from = from;
    w->to = from + n;
    return backend_copy_out(w->state->backend, w->bytes, (char *)w->slot->data + from, n, err);
}

/* *p: the host address of the slot's bytes from `at` on.  *n: how many of them are there, at most
 * `most`. */
static int window_look(struct window *w, size_t at, size_t most, const char **p, size_t *n,
                       struct err *err)
{
    int rc = 0;

    if (!w->bytes) {
        *p = (const char *)w->slot->data + at;
        *n = most;
        return 0;
    }
    if (at < w->from || at >= w->to)
        rc = window_fill(w, at, err);
    ASSERT(at >= w->from && at < w->to && w->to <= w->slot->n_bytes);
    *p = w->bytes + (at - w->from);
    *n = most < w->to - at ? most : w->to - at;
    return rc;
}

static int hash_tensor(struct window *w, const struct slot_tensor *t, struct hash128 *out,
                       struct err *err)
{
    const size_t end = t->at + t->n_bytes;
    struct hasher *h = hasher_new();
    const char *p;
    size_t n;
    int rc = 0;

    ASSERT(w->slot->data && end <= w->slot->n_bytes);
    for (size_t at = t->at; at < end && rc == 0; at += n) {
        rc = window_look(w, at, end - at, &p, &n, err);
        if (rc == 0)
            hasher_add(h, p, n);
    }
    *out = hasher_end(h);
    hasher_free(h);
    return rc;
}

/* Append the slot's tensors to h[*n], and their hashes to sum. */
static int hash_slot(struct window *w, const struct slot *slot, struct tensor_hash *h, int *n,
                     struct hasher *sum, struct err *err)
{
    const struct layout *l = w->state->layout;
    int rc = 0;

    w->slot = slot;
    w->from = w->to = 0;
    for (int i = 0; i < slot_n_tensors(l, slot->def) && rc == 0; i++) {
        const struct slot_tensor t = slot_tensor(l, slot->def, i);

        h[*n].name = xasprintf("%s%s", t.base, slot->def->suffix);
        rc = hash_tensor(w, &t, &h[*n].hash, err);
        hasher_add(sum, &h[*n].hash, sizeof h->hash);
        ++*n;
    }
    return rc;
}

/* 1: the slot's tensors are hashed here.  Divided slots are compared by shards_prove instead. */
static int is_hashed(const struct slot *slot)
{
    return slot_is_hashed(slot->def) && !slot->is_divided;
}

int state_n_hashes(const struct state *s)
{
    int n = 0;

    for (int k = 0; k < s->n_slots; k++)
        if (is_hashed(&s->slot[k]))
            n += slot_n_tensors(s->layout, s->slot[k].def);
    return n;
}

const struct slot_def *state_hashed_slot(const struct state *s, int i)
{
    ASSERT(i >= 0 && i < state_n_hashes(s));
    for (int k = 0; k < s->n_slots; k++) {
        const int n = is_hashed(&s->slot[k]) ? slot_n_tensors(s->layout, s->slot[k].def) : 0;

        if (i < n)
            return s->slot[k].def;
        i -= n;
    }
    return NULL;
}

static void free_hashes(struct tensor_hash *h, int n)
{
    for (int i = 0; i < n; i++)
        free(h[i].name);
    free(h);
}

int state_hash(const struct state *s, struct tensor_hash **out, struct hash128 *all,
               struct err *err)
{
    struct window w = {.state = s};
    struct tensor_hash *h = xcalloc((size_t)state_n_hashes(s) + 1, sizeof *h);
    struct hasher *sum = hasher_new();
    int n = 0, rc = 0;

    if (backend_is_apart(s->backend))
        rc = try_alloc((void **)&w.bytes, WINDOW_BYTES, "a part of the state", err);
    hasher_add_i64(sum, s->at.step);
    hasher_add_i64(sum, s->at.n_updates);
    for (int k = 0; k < s->n_slots && rc == 0; k++)
        if (is_hashed(&s->slot[k]))
            rc = hash_slot(&w, &s->slot[k], h, &n, sum, err);
    *all = hasher_end(sum);
    hasher_free(sum);
    free(w.bytes);
    ASSERT(rc < 0 || n == state_n_hashes(s));
    if (rc < 0) {
        free_hashes(h, n);
        return rc;
    }
    *out = h;
    return 0;
}

/* ---- a part of the state ---- */

static int is_of_part(const struct slot *slot, int with_statistics)
{
    return is_hashed(slot) && (with_statistics || slot->def != &slot_statistics);
}

/* Hash n bytes of w->slot, at most a window of them, and the hash before that. */
static int hash_piece(struct window *w, size_t at, size_t n, struct hash128 *h, struct err *err)
{
    const char *p;
    size_t n_seen;
    int rc;

    w->from = w->to = 0;
    rc = window_look(w, at, n, &p, &n_seen, err);
    ASSERT(rc < 0 || n_seen == n);
    if (rc < 0)
        return rc;
    hash_chain(h, p, n);
    return 0;
}

/* Bytes [from, to) of all slots, one after another. */
static int hash_between(struct window *w, size_t from, size_t to, int with_statistics,
                        struct hash128 *h, struct err *err)
{
    const struct state *s = w->state;
    size_t before = 0;
    int rc = 0;

    for (int k = 0; k < s->n_slots && rc == 0; k++) {
        const size_t n = s->slot[k].n_bytes;
        const size_t first = from > before ? from - before : 0;
        const size_t end = to > before ? to - before : 0;

        if (!is_of_part(&s->slot[k], with_statistics))
            continue;
        w->slot = &s->slot[k];
        if (first < n && first < end)
            rc = hash_piece(w, first, (end < n ? end : n) - first, h, err);
        before += n;
    }
    return rc;
}

int state_hash_part(const struct state *s, uint32_t draw, int with_statistics, struct hash128 *out,
                    struct err *err)
{
    struct window w = {.state = s};
    size_t n_bytes = 0, n_parts, part;
    int rc = 0;

    *out = (struct hash128){0, 0};
    for (int k = 0; k < s->n_slots; k++)
        n_bytes += is_of_part(&s->slot[k], with_statistics) ? s->slot[k].n_bytes : 0;
    n_parts = (n_bytes + WINDOW_BYTES - 1) / WINDOW_BYTES;
    if (n_parts == 0)
        return 0;
    part = draw % n_parts;
    if (backend_is_apart(s->backend))
        rc = try_alloc((void **)&w.bytes, WINDOW_BYTES, "a part of the state", err);
    if (rc == 0)
        rc = hash_between(&w, part * WINDOW_BYTES, (part + 1) * WINDOW_BYTES, with_statistics, out,
                          err);
    free(w.bytes);
    return rc;
}
