/* rates - a learning-rate range test: the loss of each step while the rate grows, and the rate that
 * it suggests (Smith 2017, "Cyclical Learning Rates for Training Neural Networks", section 3.3).
 *
 * Losses are smoothed by the mean of each step and its neighbours on both sides.  The suggested
 * rate is the one at which the smoothed loss falls most for a growth of the rate by a given factor;
 * only rates below that of the lowest smoothed loss count, since beyond it training diverges.
 *
 * Life:    zeroed -> rates_add ... -> rates_find -> rates_put_... -> rates_fini.
 * Threads: one at a time. */
#ifndef SEE_RATES_H
#define SEE_RATES_H

#include <stdint.h>

#include "base/buf.h"

struct rates_point {
    int64_t step;
    double rate, loss, smoothed; /* NAN: not finite */
};

struct rates {
    struct rates_point *point; /* steps rise */
    int n, room;
    double steepest; /* rates_find's suggestion; 0: the loss falls nowhere */
    double lowest;   /* the rate of the lowest smoothed loss; 0: no loss is finite */
};

/* Add the mean loss of a step.  A step that is told again, after a lost rank, replaces itself and
 * those behind it. */
void rates_add(struct rates *r, int64_t step, double rate, double loss);
void rates_fini(struct rates *r);

/* Smooth, and set `steepest` and `lowest`. */
void rates_find(struct rates *r);

/* Append a table of a dozen steps, and the suggestion. */
void rates_put_table(const struct rates *r, struct buf *out);
/* Append the same as one line of JSON, without the steps. */
void rates_put_json(const struct rates *r, struct buf *out);
/* Append all steps: step,learning_rate,loss,smoothed. */
void rates_put_csv(const struct rates *r, struct buf *out);
/* Append the picture of the losses over the rates; `name` is the job's. */
void rates_put_svg(const struct rates *r, const char *name, struct buf *out);

#endif
