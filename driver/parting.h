/* parting - finds the first step at which two runs are not the same, by their hashes.csv and
 * metrics.csv.
 *
 * Threads: main's. */
#ifndef DRIVER_PARTING_H
#define DRIVER_PARTING_H

#include "driver/options.h"
#include "report/series.h"

/* The columns of hashes.csv. */
enum { HASHES_STEP, HASHES_STATE, HASHES_LOSS, HASHES_SAMPLES };

/* The result of comparing two files. */
struct parting {
    int64_t n_same;    /* rows of steps that both have, which are the same */
    int64_t last_same; /* the step of the last one; 0: there is none */
    int64_t step;      /* the first step at which they differ; 0: they do not */
    int64_t row[2];    /* its row in each */
};

/* The steps above `from` and up to `to` that both tables of hashes.csv have.  A state that is empty
 * in one of them is not compared. */
struct parting parting_of_hashes(const struct series_table *a, const struct series_table *b,
                                 int64_t from, int64_t to);

/* The losses of the rows of metrics.csv that are means over the same steps in both. */
struct parting parting_of_losses(const struct series_table *a, const struct series_table *b,
                                 int64_t from, int64_t to);

/* Append "loss 0.5 and 0.6, state 01... and 02..., the same samples". */
void parting_put(struct buf *out, const struct parting *p, const struct series_table *a,
                 const struct series_table *b);

/* --compare: prints where the two runs part, and after computing these steps again which tensor is
 * the first that differs (driver/parted.h).  The exit status: 0: nowhere; 1: somewhere; 2: they
 * cannot be compared; 4: a signal ended it. */
int parting_run(const struct options *o);

#endif
