/* spans - a record of what the threads of a rank did and when, for a timeline.
 *
 * Each thread that records has a track of its own, and writes to it without a lock.  While the
 * recorder is off, a span costs one branch.  A track has room for a fixed number of spans and of
 * different names; what comes after that is left out, and spans_read says so.
 *
 * A span is told when it ends, so a span that lies within another one stands before it.
 *
 * Life:    spans_new -> spans_use (each thread) -> { spans_start -> spans_begin, spans_end ...
 *          -> spans_stop -> spans_read } ... -> spans_free, once no thread uses it.
 * Threads: start, stop, read and free: one at a time.  A track: one at a time.  A reader sees whole
 * spans, because their number is stored after them. Errors:  ERR_NOMEM of spans_start; nothing is
 * recorded then. */
#ifndef BASE_SPANS_H
#define BASE_SPANS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

struct spans; /* opaque */

/* The tracks of a rank, and their names in a timeline. */
#define SPANS_LIST(X)   \
    X(ENGINE, "engine") \
    X(COMM, "comm")     \
    X(COMM_2, "comm 2") \
    X(LOADER, "loader") \
    X(DISK, "disk")

enum spans_thread {
#define X(THREAD, name) SPANS_##THREAD,
    SPANS_LIST(X)
#undef X
        SPANS_TRACKS
};

const char *spans_thread_name(enum spans_thread t);

enum {
    SPANS_NAME = 64,            /* bytes of a name, with its end; longer ones are cut */
    SPANS_MOST = 1 << 16,       /* spans of the engine's track; the others have fewer */
    SPANS_MOST_NAMES = 1 << 13, /* of all tracks of a rank, at most */
    SPANS_ADDRESSES = 1 << 10
};

struct trace_span {
    int64_t begin_ns, took_ns; /* clock_mono_ns */
    int64_t step;              /* the step under way; -1: none */
    int64_t n_bytes;
    int64_t collective; /* the same on all ranks, and rising; 0: the span is of none */
    int32_t track;      /* enum spans_thread; set by spans_read */
    int32_t name, kind; /* what it is of, and what it is: numbers of names */
    int32_t bucket;     /* -1: none */
};

struct spans_track {
    atomic_int is_on;
    struct trace_span *span;
    atomic_int n; /* spans that are whole */
    int cap;
    char (*name)[SPANS_NAME];
    atomic_int n_names;
    int cap_names;
    int *place;      /* [2 * cap_names]: names by their hash: 1 + number; 0: free */
    int *by_address; /* [SPANS_ADDRESSES]: 1 + number of the name that last stood there; 0: none */
    atomic_int is_cut; /* something was left out */
    int64_t step;      /* of the spans that follow (spans_step) */
    enum spans_thread of;
};

struct spans *spans_new(void);
void spans_free(struct spans *s); /* NULL is fine */

struct spans_track *spans_track(struct spans *s, enum spans_thread t);

/* The track of the calling thread; NULL: it records nothing. */
extern _Thread_local struct spans_track *spans_mine;

static inline void spans_use(struct spans_track *t) { spans_mine = t; }

static inline int spans_is_on(struct spans_track *t)
{
    return t && atomic_load_explicit(&t->is_on, memory_order_acquire);
}

/* The time, if the calling thread records now; else 0. */
static inline int64_t spans_begin(void) { return spans_is_on(spans_mine) ? clock_mono_ns() : 0; }

/* Add a span to a track; its track, name and kind need not be set. */
void spans_add(struct spans_track *t, const struct trace_span *span, const char *name,
               const char *kind);

/* The calling thread has done what began at began_ns; 0: it was not recording then. */
void spans_end_at(int64_t began_ns, const char *name, const char *kind, int bucket);

static inline void spans_end(int64_t began_ns, const char *name, const char *kind)
{
    if (began_ns)
        spans_end_at(began_ns, name, kind, -1);
}

/* The step of the calling thread's spans from here on. */
static inline void spans_step(int64_t step)
{
    if (spans_mine)
        spans_mine->step = step;
}

/* Record from now on, and forget what was recorded before. */
int spans_start(struct spans *s, struct err *err);
void spans_stop(struct spans *s);

struct spans_record {
    struct trace_span *span; /* [n], those of a track in the order of their ends */
    char (*name)[SPANS_NAME];
    int n, n_names;
    int is_cut; /* 1: more was done than there was room for */
};

/* Copy the spans between the last start and stop; spans_record_fini frees them. */
void spans_read(struct spans *s, struct spans_record *out);
void spans_record_fini(struct spans_record *r);

#endif
