/* board_events - the events of a TensorBoard file (proto/tensorboard.proto), each as one record.
 *
 * Threads: any; no state. */
#ifndef SEE_BOARD_EVENTS_H
#define SEE_BOARD_EVENTS_H

#include <stdint.h>

#include "base/buf.h"
#include "job/job.h"

enum { BOARD_SCALARS = 8 };

struct board_scalar {
    const char *tag;
    double value;
};

/* The first record of a file. */
void board_put_version(struct buf *out, double time);

/* Whatever other files have of `step` and later does not count. */
void board_put_start(struct buf *out, double time, int64_t step);

/* Up to BOARD_SCALARS numbers of one step. */
void board_put_scalars(struct buf *out, double time, int64_t step, const struct board_scalar *s,
                       int n);

struct board_picture {
    const char *tag;
    const void *png;
    size_t n;
    int width, height;
};

void board_put_picture(struct buf *out, double time, int64_t step, const struct board_picture *p);

/* The job as a text, and for the HPARAMS tab; runs of one `group` are one line there. */
void board_put_job(struct buf *out, double time, int64_t step, const struct job *job,
                   const char *group);

/* For the HPARAMS tab: the run has finished. */
void board_put_end(struct buf *out, double time, int64_t step);

#endif
