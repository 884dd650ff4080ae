/* spans - tracks of spans in memory that is taken when a record first begins.
 *
 * A thread of another track may still write a span while the record is stopped, read and begun
 * anew.  So no memory is taken back before spans_free, and a reader leaves out spans that began
 * before the record did. */
#include "base/spans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

struct spans {
    struct spans_track track[SPANS_TRACKS];
    int64_t start_ns;
    int has_memory;
};

_Thread_local struct spans_track *spans_mine;

static const struct {
    int spans, names;
} spans_room[SPANS_TRACKS] = {
    [SPANS_ENGINE] = {SPANS_MOST, SPANS_MOST_NAMES - 4 * 64},
    [SPANS_COMM] = {1 << 14, 64},
    [SPANS_COMM_2] = {1 << 14, 64},
    [SPANS_LOADER] = {1 << 12, 64},
    [SPANS_DISK] = {1 << 8, 64},
};

const char *spans_thread_name(enum spans_thread t)
{
#define X(THREAD, name) name,
    static const char *const names[] = {SPANS_LIST(X)};
#undef X
    return (size_t)t < SPANS_TRACKS ? names[t] : "?";
}

struct spans *spans_new(void)
{
    struct spans *s = xcalloc(1, sizeof *s);

    for (int i = 0; i < SPANS_TRACKS; i++)
        s->track[i].of = (enum spans_thread)i;
    return s;
}

void spans_free(struct spans *s)
{
    for (int i = 0; s && i < SPANS_TRACKS; i++)
        free(s->track[i].span);
    free(s);
}

struct spans_track *spans_track(struct spans *s, enum spans_thread t)
{
    ASSERT((size_t)t < SPANS_TRACKS);
    return &s->track[t];
}

/* ---- a thread's own track ---- */

static unsigned spans_hash(const char *text)
{
    unsigned h = 2166136261u;

    for (int i = 0; text[i] && i < SPANS_NAME - 1; i++)
        h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h;
}

static int is_name(const struct spans_track *t, int n, const char *text)
{
    return !strncmp(t->name[n], text, SPANS_NAME - 1);
}

/* The number of a name, which is entered if it is new; -1: there is no room for it. */
static int spans_enter(struct spans_track *t, const char *text)
{
    const unsigned n_places = 2 * (unsigned)t->cap_names;
    unsigned at = spans_hash(text) % n_places;
    int n;

    for (; t->place[at]; at = (at + 1) % n_places)
        if (is_name(t, t->place[at] - 1, text))
            return t->place[at] - 1;
    n = atomic_load_explicit(&t->n_names, memory_order_relaxed);
    if (n == t->cap_names)
        return -1;
    snprintf(t->name[n], SPANS_NAME, "%s", text);
    t->place[at] = n + 1;
    atomic_store_explicit(&t->n_names, n + 1, memory_order_release);
    return n;
}

/* The same.  A name mostly stands where it stood in the step before, and a comparison costs less
 * than a hash. */
static int spans_name_of(struct spans_track *t, const char *text)
{
    const uint64_t mixed = (uint64_t)(uintptr_t)text * UINT64_C(0x9e3779b97f4a7c15);
    int *known = &t->by_address[mixed / (UINT64_MAX / SPANS_ADDRESSES + 1)];

    if (!*known || !is_name(t, *known - 1, text))
        *known = spans_enter(t, text) + 1;
    return *known - 1;
}

void spans_add(struct spans_track *t, const struct trace_span *span, const char *name,
               const char *kind)
{
    int n, name_at, kind_at;

    if (!spans_is_on(t))
        return;
    n = atomic_load_explicit(&t->n, memory_order_relaxed);
    name_at = spans_name_of(t, name);
    kind_at = spans_name_of(t, kind);
    if (n == t->cap || name_at < 0 || kind_at < 0) {
        atomic_store_explicit(&t->is_cut, 1, memory_order_relaxed);
        return;
    }
    t->span[n] = *span;
    t->span[n].track = t->of;
    t->span[n].name = name_at;
    t->span[n].kind = kind_at;
    atomic_store_explicit(&t->n, n + 1, memory_order_release);
}

void spans_end_at(int64_t began_ns, const char *name, const char *kind, int bucket)
{
    struct spans_track *t = spans_mine;

    if (began_ns == 0 || !t)
        return;
    spans_add(t,
              &(struct trace_span){.begin_ns = began_ns,
                                   .took_ns = clock_mono_ns() - began_ns,
                                   .step = t->step,
                                   .bucket = bucket},
              name, kind);
}

/* ---- the record ---- */

static int spans_make_room(struct spans_track *t, struct err *err)
{
    const size_t n = (size_t)spans_room[t->of].spans, n_names = (size_t)spans_room[t->of].names;
    const size_t n_places = 2 * n_names + SPANS_ADDRESSES;
    char *at;

    if (try_alloc((void **)&t->span,
                  n * sizeof *t->span + n_names * SPANS_NAME + n_places * sizeof *t->place,
                  "the record of a timeline", err) < 0)
        return err->code;
    at = (char *)(t->span + n);
    t->place = (int *)(void *)at;
    t->by_address = t->place + 2 * n_names;
    t->name = (char(*)[SPANS_NAME])(void *)(at + n_places * sizeof *t->place);
    memset(t->place, 0, n_places * sizeof *t->place);
    t->cap = (int)n;
    t->cap_names = (int)n_names;
    return 0;
}

int spans_start(struct spans *s, struct err *err)
{
    for (int i = 0; !s->has_memory && i < SPANS_TRACKS; i++)
        if (!s->track[i].span && spans_make_room(&s->track[i], err) < 0)
            return err->code;
    s->has_memory = 1;
    s->start_ns = clock_mono_ns();
    for (int i = 0; i < SPANS_TRACKS; i++) {
        atomic_store(&s->track[i].n, 0);
        atomic_store(&s->track[i].is_cut, 0);
        atomic_store_explicit(&s->track[i].is_on, 1, memory_order_release);
    }
    return 0;
}

void spans_stop(struct spans *s)
{
    for (int i = 0; i < SPANS_TRACKS; i++)
        atomic_store(&s->track[i].is_on, 0);
}

static void read_track(const struct spans *s, struct spans_track *t, struct spans_record *out)
{
    const int n = atomic_load_explicit(&t->n, memory_order_acquire);
    const int n_names = atomic_load_explicit(&t->n_names, memory_order_acquire);

    for (int i = 0; i < n; i++) {
        struct trace_span *to = &out->span[out->n];

        *to = t->span[i];
        to->name += out->n_names;
        to->kind += out->n_names;
        out->n += to->begin_ns >= s->start_ns;
    }
    for (int i = 0; i < n_names; i++)
        memcpy(out->name[out->n_names + i], t->name[i], SPANS_NAME);
    out->n_names += n_names;
    out->is_cut |= atomic_load(&t->is_cut);
}

void spans_read(struct spans *s, struct spans_record *out)
{
    size_t n = 1;

    *out = (struct spans_record){0};
    for (int i = 0; i < SPANS_TRACKS; i++)
        n += (size_t)s->track[i].cap;
    out->span = xcalloc(n, sizeof *out->span);
    out->name = xcalloc(SPANS_MOST_NAMES, sizeof *out->name);
    for (int i = 0; i < SPANS_TRACKS; i++)
        read_track(s, &s->track[i], out);
}

void spans_record_fini(struct spans_record *r)
{
    free(r->span);
    free(r->name);
    *r = (struct spans_record){0};
}
