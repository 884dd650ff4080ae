/* replay - --replay RUN --step N: computes a step of a run again, from the checkpoint before it,
 * and tells whether it is the same, and which samples it had.
 *
 * Threads: main's.
 * Errors:  codes; the message says why a step cannot be computed. */
#ifndef DRIVER_REPLAY_H
#define DRIVER_REPLAY_H

#include "base/hash.h"
#include "driver/again.h"
#include "driver/options.h"

/* The exit status: 0: the same; 1: it differs, or there is nothing to compare it with; 2: it cannot
 * be computed again. */
int replay_run(const struct options *o);

/* The outcome of steps from+1 .. to. */
struct replayed {
    int64_t from, to;
    int64_t n_same;           /* rows of hashes.csv that are the same */
    int64_t differs_at;       /* the first step that differs; 0: none does */
    char *how;                /* in which way, for free(); NULL: it does not */
    char data[HASH_TEXT_LEN]; /* the fingerprint of the data now */
};

/* Compute a step of `run` in a->folder/NAME, from the checkpoint before it up to the next row of
 * hashes.csv, and compare all rows of these steps.  Fails where --replay has status 2. */
int replay_step(const struct options *o, const char *run, int64_t step, struct again *a,
                const char *name, struct replayed *out, struct err *err);

/* Steps that are computed: from the newest checkpoint on that was written when at most `past` were
 * done, or from the first step on, up to `to`. */
struct span_of_steps {
    int64_t past, to;
};

/* Compute these steps of `run` in a->folder/NAME, with these settings (KEY=VALUE, 4 at most, NULL
 * at the end; or NULL), on as many ranks as --replay takes, and compare nothing. */
int replay_steps(const struct options *o, const char *run, struct span_of_steps steps,
                 const char *const *sets, struct again *a, const char *name, struct err *err);

#endif
