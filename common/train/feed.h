/* feed - brings micro-batches from a data set to where programs read them.
 *
 * On a backend in the host's memory batches are copied as they come.  On a device either the whole
 * data set lies there, where it fits (FEED_RESIDENT): only the samples' numbers travel, and a
 * kernel gathers.  Or batches travel (FEED_STREAM): read into pinned memory, from there by
 * LANE_COPY into one of two buffers while the step before computes, and by the device to the
 * program.
 *
 * For each batch:  feed_next -> feed_put -> feed_gather (which may be recorded) -> the program;
 *                  feed_ahead whenever there is time, and feed_done when all that was queued is
 *                  done, or a mark says so.
 *
 * Life:    feed_new -> { feed_fit -> feed_start_... -> batches ... } -> feed_free.
 * Threads: the engine's; the loader inside has its own. */
#ifndef TRAIN_FEED_H
#define TRAIN_FEED_H

#include "backend/backend.h"
#include "data/loader.h"
#include "program/program.h"

enum feed_kind { FEED_COPY, FEED_STREAM, FEED_RESIDENT };

enum { FEED_MARKS = 4, FEED_LOOK_NS = 1000 * 1000 };

struct feed; /* opaque */

/* first_mark   of FEED_MARKS that are the feed's.
 * keep_bytes   a data set that is not larger is kept on a device (if there is memory for it); <0:
 *              a quarter of what is free.  A set that is_slow is never kept: to decode it all
 *              before the first step would take long. */
int feed_new(struct backend *b, const struct dataset *ds, int first_mark, int64_t keep_bytes,
             struct feed **out, struct err *err);
void feed_free(struct feed *f); /* NULL is fine */

enum feed_kind feed_kind(const struct feed *f);

/* Room for batches of `largest` samples; forgets all programs, which may be freed then. */
int feed_fit(struct feed *f, int64_t largest, struct err *err);

/* Start an epoch, or a pass: as loader_start_train and loader_start_pass. */
int feed_start_train(struct feed *f, const struct sampler *s, int accumulate, int n_ranks, int rank,
                     int64_t first_step, int64_t end_step, struct err *err);
int feed_start_pass(struct feed *f, int64_t batch, int64_t unit, int n_ranks, int rank,
                    struct err *err);

/* The next batch, as loader_next; the fields and the index of *out are not to be used. */
int feed_next(struct feed *f, struct batch *out, struct err *err);

/* The batch of the last feed_next once more, to be put again; feed_done must not have been called
 * since. */
void feed_again(const struct feed *f, struct batch *out);

/* Queue the work that brings the batch to p: all of it, or (FEED_RESIDENT) all but
 * feed_gather's. */
int feed_put(struct feed *f, struct program *p, struct err *err);
int feed_gather(struct feed *f, struct program *p, struct err *err);

/* Read the batch after this one, and send it on its way.  If that fails, feed_next fails, at each
 * call until a start. */
void feed_ahead(struct feed *f);

/* Nanoseconds since feed_new for which a batch was not there yet and the backend had nothing to do:
 * how much longer training took because data came late.  A device that still has steps to do loses
 * nothing by a late batch; whether it has is looked at every FEED_LOOK_NS. */
int64_t feed_waited_ns(const struct feed *f);

/* To be called when all that was queued so far is done: gives the loader its slots back. */
void feed_done(struct feed *f);

#endif
