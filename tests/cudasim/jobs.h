/* jobs - what the tests of whole trainings on the simulated GPU train, and how two trainings
 * compare. */
#ifndef TESTS_CUDASIM_JOBS_H
#define TESTS_CUDASIM_JOBS_H

#include "../test.h"

#include <math.h>

#include "base/util.h"
#include "ranks.h"

#define DATA "data: {format: digits, samples: 110, validation_samples: 70}\n"
#define MLP                                                                        \
    "model: {arch: mlp, hidden: [20, 12], batch_norm: true, dropout: 0.25}\n" DATA \
    "optimizer: {lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.0005}\n"

#define ADAMW                                                                               \
    "model: {arch: mlp, hidden: [20, 12], batch_norm: true}\n" DATA                         \
    "optimizer: {name: adamw, lr: 0.01, no_decay: [bias], groups: [{match: fc2.*, frozen: " \
    "true}]}\n"

#define HALF \
    "model: {arch: mlp, hidden: [20, 12], batch_norm: true}\n" DATA "optimizer: {lr: 0.1}\n"
#define PLAIN "model: {arch: mlp, hidden: [20, 12]}\n" DATA "optimizer: {lr: 0.1}\n"

enum { KEEP_ALL = 1 << 30 }; /* keep_bytes: the data stay on the device */

static inline double relative(double a, double b) { return fabs(a - b) / fmax(fabs(a), 1e-30); }

/* Samples are equal, and losses up to a relative tolerance. */
static inline void assert_same(const char *what, const struct run_result *a,
                               const struct run_result *b, double tolerance)
{
    assert_int_equal(a->n_steps, b->n_steps);
    for (int64_t i = 0; i < a->n_steps; i++)
        if (a->step_samples[i] != b->step_samples[i] ||
            !(relative(a->step_loss[i], b->step_loss[i]) <= tolerance))
            fail_msg("%s, step %d: loss %.9g, want %.9g", what, (int)i, b->step_loss[i],
                     a->step_loss[i]);
    assert_int_equal(a->n_validated, b->n_validated);
    assert_true(relative(a->validation_loss, b->validation_loss) <= 10 * tolerance);
}

#endif
