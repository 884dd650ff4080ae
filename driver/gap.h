/* gap - the largest difference of two tensors of float32, which stand in two files by one name.
 *
 * Threads: any.
 * Errors:  those of reading (ckpt/safetensors.h); ERR_CONFIG if they cannot be compared. */
#ifndef DRIVER_GAP_H
#define DRIVER_GAP_H

#include "base/buf.h"
#include "ckpt/safetensors.h"

struct gap {
    int64_t n;       /* numbers of each */
    int64_t n_other; /* that have other bits */
    int64_t at;      /* the place of the largest difference */
    float x, y;      /* the two numbers there */
    double most;     /* the difference; 0: zeros of other signs, or bits of undefined numbers */
};

/* Compare the tensors called `name`. */
int gap_measure(const struct st_file *a, const struct st_file *b, const char *name, struct gap *out,
                struct err *err);

/* Append "3 of 10 numbers of [10], by up to 2e-09 (element 4: 0.012 and 0.013)". */
void gap_put(struct buf *out, const struct st_tensor *t, const struct gap *g);

#endif
