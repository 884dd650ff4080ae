/* golden_update - makes updates of a small network by gradients that a formula gives, so that
 * PyTorch can make the same ones: what the tests of optimizers and of averaged weights share.
 *
 * Life: golden_update_open -> golden_update_step ... -> golden_update_close.  Each function fails
 * the test if it cannot do its work. */
#ifndef TESTS_GOLDEN_GOLDEN_UPDATE_H
#define TESTS_GOLDEN_GOLDEN_UPDATE_H

#include <jansson.h>

#include "job/job.h"
#include "step/update.h"

struct golden_update {
    struct job *job;
    struct backend *backend;
    struct layout *layout;
    struct state *state;
    struct buffers *buffers;
    struct update *update;
    const char *const *order; /* the parameters' names, as golden_update_open has them */
    /* [layout->n_total] each, in host memory: the slot that golden_update_get read last, and the
     * newest gradient. */
    float *values, *grad;
};

/* Build the model of the job `yaml`, and give its parameters their first values.
 *
 * order  the names of all parameters in PyTorch's order, which numbers their streams of values;
 *        NULL at the end.  Borrowed.
 * more   a slot that the state has besides the optimizer's, or NULL */
void golden_update_open(struct golden_update *t, const char *yaml, const char *const *order,
                        const struct slot_def *more);
void golden_update_close(struct golden_update *t);

/* Make update k, by the gradient that make_optimizers.py and make_averages.py compute for it. */
void golden_update_step(struct golden_update *t, int k, double rate);

/* Copy the parameters, or another slot that has an element for each trained parameter, to
 * t->values. */
void golden_update_get(struct golden_update *t, const struct slot_def *slot);

/* Compare t->values with PyTorch's arrays, by name in `want`, and fail the test with the first
 * tensor that is off: by more than `tolerance`, or with `is_relative` 1 by more than `tolerance`
 * times the tensor's largest element. */
void golden_update_compare(const struct golden_update *t, json_t *want, double tolerance,
                           int is_relative);

#endif
