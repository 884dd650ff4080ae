/* meter - the live line on a terminal that shows what training does now.
 *
 *   epoch 3/10  step 712/2350  loss 0.0531  9,120 samples/s  ETA 1:23
 *
 * The line is redrawn in place, at most five times a second.  On anything but a terminal nothing is
 * drawn, and the daemon logs one line per epoch instead.
 *
 * Life:    meter_start -> meter_show ... -> meter_stop.  There is one meter in a process, since
 *          there is one standard error.  meter_start makes log lines clear the meter's line first.
 * Threads: the main thread; log lines of other threads may come between at any time. */
#ifndef REPORT_METER_H
#define REPORT_METER_H

#include <stddef.h>
#include <stdint.h>

struct meter_reading {
    int64_t epoch, n_epochs;
    int64_t step, n_steps;    /* of the whole job; n_steps 0: not known yet */
    int64_t samples_per_step; /* global batch, for the time that is left */
    double loss, samples_per_second;
};

/* `fd` is standard error.  Returns 1 if it is a terminal, so that the line will be drawn. */
int meter_start(int fd);
void meter_show(const struct meter_reading *r, int64_t now_ns); /* now_ns: clock_mono_ns */
void meter_clear(void);                                         /* until the next reading */
void meter_stop(void);                                          /* clears the line */

/* The text of the line, at most `width` columns; returns its length. */
size_t meter_format(char *out, size_t cap, size_t width, const struct meter_reading *r);

/* "9,120", and "12.3" below 100. */
void format_count(char *out, size_t cap, double v);

/* A loss: "0.0531", "1.235e+11" from a million on, "nan" if it is undefined, and "overflow" if its
 * sum was too large to be kept (op/control.h). */
void format_loss(char *out, size_t cap, double v);

/* "0:07", "1:23", "2:05:09" */
void format_duration(char *out, size_t cap, double seconds);

#endif
