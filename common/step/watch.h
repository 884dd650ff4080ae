/* watch - how long the buckets of a step take to be filled and summed, on this rank.
 *
 * On a device the collectives of the steps that are watched do not overlap the backward pass: each
 * bucket's sum ends before the next bucket is computed, so that stopwatches in the device's main
 * lane tell the two apart.  The host reads them after each step, so no step is queued ahead
 * meanwhile.  On a CPU only the filling is measured here; the record of collectives has the sums.
 *
 * Of each bucket the shortest times count, because what disturbs a step makes them longer.
 *
 * Life:    watch_start -> { watch_backward -> watch_filled, watch_handed ... -> watch_read } ...
 *          -> watch_stop.
 * Threads: the engine's. */
#ifndef STEP_WATCH_H
#define STEP_WATCH_H

#include "backend/backend.h"
#include "strategy/exchange.h"

/* Zeroed: nothing is watched. */
struct bucket_watch {
    int n;              /* buckets */
    int64_t *filled_ns; /* [n]: from the start of backward until the bucket is filled; NULL: nothing
                           is watched */
    int64_t *summed_ns; /* [n]: the time of its sum; NULL on CPUs */
    int64_t began_ns;   /* when backward of the step under way began; 0: it has not */
    /* On a device: its memory, for backend_stopwatch; else NULL. */
    struct stopwatches *on_device; /* [n] */
    struct backend *backend;
};

/* Watch the n buckets from the next step on.  A time is INT64_MAX until it was measured. */
int watch_start(struct bucket_watch *w, struct backend *b, int n, struct err *err);
/* Drop what was measured.  The device's memory is freed, so no recording may use it any more. */
void watch_stop(struct bucket_watch *w);

/* 1: steps are watched on a device, so their collectives are queued in another way, and no step is
 * queued before the one ahead of it has ended.  The same on all ranks. */
int watch_holds_up(const struct bucket_watch *w);

/* This rank begins a stage of the step's last backward pass; and has filled a bucket in it; and has
 * handed the bucket to the strategy, by `x`.  On a device these functions queue work. */
int watch_backward(struct bucket_watch *w, struct err *err);
int watch_filled(struct bucket_watch *w, int bucket, struct err *err);
int watch_handed(struct bucket_watch *w, int bucket, struct exchange *x, struct err *err);

/* A step has ended: on a device, read the stopwatches, and set them to zero for the next step. */
int watch_read(struct bucket_watch *w, struct err *err);

#endif
