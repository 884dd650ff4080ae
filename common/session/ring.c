/* The ring: slots of atomics, written by one thread after another and read by any thread.
 *
 * ring.h explains how a reader gets whole entries without a lock. */
#include "session/ring.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"

typedef atomic_int_fast64_t number;

struct slot {
    number id; /* 0: empty, or being filled */
    number generation, number_in, step, bucket, n_bytes, phase, kind, handed_ns;
    number began_ns, ended_ns, is_failed;
    number track; /* in which its span lies; -1: in none */
};

struct ring {
    number generation; /* -1: changing */
    number first;      /* newest id when the formation began */
    number handed;     /* newest id */
    number ended;      /* this id and all before it have ended */
    struct slot slot[RING_LEN];
    /* Of those who run and end entries. */
    struct spans_track *track[2]; /* NULL: nothing is recorded */
    number runs[2];               /* the entry that runs in the track; 0: none */
};

static void ring_put(number *n, int64_t v) { atomic_store_explicit(n, v, memory_order_release); }

static int64_t ring_get(const number *n)
{
    return atomic_load_explicit((number *)n, memory_order_acquire);
}

struct ring *ring_new(void) { return xcalloc(1, sizeof(struct ring)); }

void ring_free(struct ring *r) { free(r); }

const char *collective_state(const struct collective *c)
{
    if (c->ended_ns)
        return c->is_failed ? "failed" : "done";
    return c->began_ns ? "running" : "queued";
}

void ring_record(struct ring *r, struct spans *s)
{
    r->track[0] = spans_track(s, SPANS_COMM);
    r->track[1] = spans_track(s, SPANS_COMM_2);
}

/* ---- writing ---- */

static struct slot *ring_slot_of(const struct ring *r, int64_t id)
{
    return (struct slot *)&r->slot[id % RING_LEN];
}

void ring_begin(struct ring *r, int64_t generation)
{
    int64_t newest = ring_get(&r->handed);
    ASSERT(generation >= 0 && ring_get(&r->ended) <= newest);

    ring_put(&r->runs[0], 0);
    ring_put(&r->runs[1], 0);
    ring_put(&r->generation, -1);
    ring_put(&r->first, newest);
    ring_put(&r->ended, newest);
    ring_put(&r->generation, generation);
}

int64_t ring_hand(struct ring *r, int64_t step, int64_t bucket, int64_t n_bytes, int64_t phase,
                  enum ring_kind kind)
{
    int64_t id = ring_get(&r->handed) + 1;
    struct slot *s = ring_slot_of(r, id);
    ASSERT(id > ring_get(&r->first) && ring_get(&r->generation) >= 0);

    ring_put(&s->id, 0);
    ring_put(&s->generation, ring_get(&r->generation));
    ring_put(&s->number_in, id - ring_get(&r->first));
    ring_put(&s->step, step);
    ring_put(&s->bucket, bucket);
    ring_put(&s->n_bytes, n_bytes);
    ring_put(&s->phase, phase);
    ring_put(&s->kind, kind);
    ring_put(&s->handed_ns, clock_mono_ns());
    ring_put(&s->began_ns, 0);
    ring_put(&s->ended_ns, 0);
    ring_put(&s->is_failed, 0);
    ring_put(&s->track, -1);
    ring_put(&s->id, id);
    ring_put(&r->handed, id);
    return id;
}

/* Take a free track for an entry.  A thread may run an entry before another one has told the end of
 * its own, so a track is taken by one exchange: its spans have one writer at a time. */
static int ring_take_track(struct ring *r, int64_t id)
{
    for (int k = 0; k < (int)ARRAY_LEN(r->runs); k++) {
        int_fast64_t none = 0;

        if (atomic_compare_exchange_strong(&r->runs[k], &none, id))
            return k;
    }
    return -1;
}

void ring_run(struct ring *r, int64_t id, int64_t now_ns)
{
    struct slot *s = ring_slot_of(r, id);
    ASSERT(id > 0);

    ASSERT(id <= ring_get(&r->handed));
    if (ring_get(&s->id) == id) {
        ring_put(&s->began_ns, now_ns);
        ring_put(&s->track, ring_take_track(r, id));
    }
}

/* An entry that a newer one has replaced counts as ended. */
static int has_ended(const struct ring *r, int64_t id)
{
    const struct slot *s = ring_slot_of(r, id);

    return id <= ring_get(&r->handed) && (ring_get(&s->id) != id || ring_get(&s->ended_ns) != 0);
}

const char *ring_kind_name(enum ring_kind k)
{
#define X(KIND, name) name,
    static const char *const names[] = {RING_LIST(X)};
#undef X
    return (size_t)k < ARRAY_LEN(names) ? names[k] : "?";
}

static const char *ring_span_kind(const struct slot *s)
{
    const int64_t bucket = ring_get(&s->bucket);

    if (ring_get(&s->is_failed))
        return "failed";
    return bucket >= 0 ? "bucket" : bucket == RING_SYNC ? "statistics" : "state";
}

/* The number of a collective in its formation rises with the formation's own, over 2^30 formations.
 */
static int64_t ring_number_of(const struct slot *s)
{
    return ((ring_get(&s->generation) & 0x3fffffff) << 32) + (ring_get(&s->number_in) & UINT32_MAX);
}

static void ring_add_span(struct ring *r, const struct slot *s, int64_t now_ns)
{
    const int64_t began_ns = ring_get(&s->began_ns);
    const struct trace_span span = {.begin_ns = began_ns,
                                    .took_ns = now_ns - began_ns,
                                    .step = ring_get(&s->step),
                                    .n_bytes = ring_get(&s->n_bytes),
                                    .collective = ring_number_of(s),
                                    .bucket = (int32_t)ring_get(&s->bucket)};

    if (began_ns)
        spans_add(r->track[ring_get(&s->track)], &span,
                  ring_kind_name((enum ring_kind)ring_get(&s->kind)), ring_span_kind(s));
}

void ring_end(struct ring *r, int64_t id, int64_t now_ns, int is_failed)
{
    struct slot *s = ring_slot_of(r, id);
    ASSERT(id > 0);

    ASSERT(id <= ring_get(&r->handed));
    if (ring_get(&s->id) == id) {
        const int64_t track = ring_get(&s->track);

        ring_put(&s->is_failed, is_failed);
        ring_put(&s->ended_ns, now_ns);
        if (track >= 0 && spans_is_on(r->track[track]))
            ring_add_span(r, s, now_ns);
    }
    for (size_t k = 0; k < ARRAY_LEN(r->runs); k++)
        if (ring_get(&r->runs[k]) == id)
            ring_put(&r->runs[k], 0);
    for (id = ring_get(&r->ended) + 1; has_ended(r, id); id++)
        ring_put(&r->ended, id);
}

/* ---- reading ---- */

/* 1: *out is entry `id`, whole; 0: another has taken its place. */
static int read_slot(const struct ring *r, int64_t id, struct collective *out)
{
    const struct slot *s = ring_slot_of(r, id);

    if (ring_get(&s->id) != id)
        return 0;
    *out = (struct collective){
        .generation = ring_get(&s->generation),
        .number = ring_get(&s->number_in),
        .step = ring_get(&s->step),
        .bucket = ring_get(&s->bucket),
        .n_bytes = ring_get(&s->n_bytes),
        .phase = ring_get(&s->phase),
        .handed_ns = ring_get(&s->handed_ns),
        .began_ns = ring_get(&s->began_ns),
        .ended_ns = ring_get(&s->ended_ns),
        .is_failed = ring_get(&s->is_failed),
    };
    return ring_get(&s->id) == id;
}

/* 1: *h is of one formation, and consistent: what has ended had been handed over before. */
static int try_head(const struct ring *r, struct ring_head *h)
{
    int64_t generation = ring_get(&r->generation), first = ring_get(&r->first);
    int64_t ended = ring_get(&r->ended), handed = ring_get(&r->handed);

    *h = (struct ring_head){
        .generation = generation, .n_handed = handed - first, .n_ended = ended - first};
    if (handed > ended && !read_slot(r, ended + 1, &h->at))
        return 0;
    return generation >= 0 && ring_get(&r->generation) == generation;
}

void ring_head(const struct ring *r, struct ring_head *out)
{
    enum { TRIES = 16 };

    for (int i = 0; i < TRIES; i++)
        if (try_head(r, out))
            return;
    out->at = (struct collective){0}; /* it moves on all the time, so this rank waits for none */
    if (out->generation < 0 || ring_get(&r->generation) != out->generation)
        *out = (struct ring_head){0}; /* a formation begins: the counts may be of two */
}

int ring_read(const struct ring *r, struct collective out[RING_LEN])
{
    int64_t newest = ring_get(&r->handed);
    int n = 0;

    for (int64_t id = max_i64(1, newest - RING_LEN + 1); id <= newest; id++)
        n += read_slot(r, id, &out[n]);
    return n;
}

static int64_t ring_before(int64_t t, int64_t now_ns) { return t ? min_i64(t - now_ns, -1) : 0; }

void ring_rebase(struct collective *c, int n, int64_t now_ns)
{
    for (int i = 0; i < n; i++) {
        c[i].handed_ns = ring_before(c[i].handed_ns, now_ns);
        c[i].began_ns = ring_before(c[i].began_ns, now_ns);
        c[i].ended_ns = ring_before(c[i].ended_ns, now_ns);
    }
}
