/* feed - brings micro-batches from a data set to the memory where programs read them.
 *
 * FEED_COPY      The backend computes in host memory: batches are copied as they come.
 * FEED_RESIDENT  The whole data set is in the device's memory, if it fits.  Only the indices of the
 *                batch's samples travel, and a kernel gathers the samples.
 * FEED_STREAM    Batches travel to the device: the loader reads them into pinned memory, LANE_COPY
 *                copies them to one of two buffers on the device while the step before computes,
 *                and the device copies them to the program's inputs.
 *
 * For each batch:  feed_next -> feed_put -> feed_gather (which may be recorded) -> the program;
 *                  feed_ahead whenever there is time, and feed_done when all that was queued is
 *                  done, or a mark says so.
 *
 * Life:    feed_new -> { feed_fit -> feed_start_... -> batches ... } -> feed_free.
 * Threads: the engine's; the loader inside has its own. */
#ifndef STEP_FEED_H
#define STEP_FEED_H

#include "backend/backend.h"
#include "data/loader.h"
#include "program/program.h"

enum feed_kind { FEED_COPY, FEED_STREAM, FEED_RESIDENT };

enum { FEED_MARKS = 4, FEED_LOOK_NS = 1000 * 1000 };

struct feed; /* opaque */

/* first_mark   the first of the FEED_MARKS marks of the backend that this feed uses.
 * keep_bytes   a data set that is not larger is kept on a device (if there is memory for it); <0:
 *              a quarter of what is free.  A set that is_slow is never kept: to decode it all
 *              before the first step would take long. */
int feed_new(struct backend *b, const struct dataset *ds, int first_mark, int64_t keep_bytes,
             struct feed **out, struct err *err);
void feed_free(struct feed *f); /* NULL is fine */

/* Record the filling of batches in this track (base/spans.h), from the beginning. */
void feed_record(struct feed *f, struct spans_track *track);

enum feed_kind feed_kind(const struct feed *f);

/* Room for batches of `largest` samples; forgets all programs, which may be freed then. */
int feed_fit(struct feed *f, int64_t largest, struct err *err);

/* Start an epoch, or a pass: as loader_start_train, loader_start_pass and loader_start_turns. */
int feed_start_train(struct feed *f, const struct sampler *s, int accumulate, int n_ranks, int rank,
                     int64_t first_step, int64_t end_step, struct err *err);
int feed_start_pass(struct feed *f, int64_t batch, int64_t unit, int n_ranks, int rank,
                    struct err *err);
int feed_start_turns(struct feed *f, const struct sampler *s, int n_ranks, int rank, int64_t end,
                     struct err *err);

/* The next batch, as loader_next; the fields and the index of *out are not to be used. */
int feed_next(struct feed *f, struct batch *out, struct err *err);

/* The batch of the last feed_next once more, to be put again; feed_done must not have been called
 * since. */
void feed_again(const struct feed *f, struct batch *out);

/* Queue the work that brings the batch to p.  feed_put does all of it, except for FEED_RESIDENT,
 * where feed_gather queues the kernel.  Only feed_gather may be recorded. */
int feed_put(struct feed *f, struct program *p, struct err *err);
int feed_gather(struct feed *f, struct program *p, struct err *err);

/* Read the batch after this one, and start to send it to the device.  If that fails, feed_next
 * fails, at each call until the next feed_start. */
void feed_ahead(struct feed *f);

/* Nanoseconds since feed_new for which a batch was not there yet and the backend had nothing to do:
 * how much longer training took because data came late.  A device that still has steps to do loses
 * nothing by a late batch; whether it has is looked at every FEED_LOOK_NS. */
int64_t feed_waited_ns(const struct feed *f);
/* Where the time of the threads that read batches has gone since feed_new (data/effort.h). */
struct effort feed_effort(const struct feed *f);

/* To be called when all that was queued so far is done: gives the loader its slots back. */
void feed_done(struct feed *f);

#endif
