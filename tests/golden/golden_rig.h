/* golden_rig - trains one model without a trainer: the parts of a training are put together by
 * hand, on any backend and in any precision.  Weights and samples equal PyTorch's (golden_data.h).
 *
 * Life: golden_rig_open -> golden_rig_step ... -> golden_rig_close.  Failures end the test. */
#ifndef TESTS_GOLDEN_GOLDEN_RIG_H
#define TESTS_GOLDEN_GOLDEN_RIG_H

#include <jansson.h>

#include "backend/backend.h"
#include "golden_data.h"
#include "model/model.h"
#include "program/program.h"
#include "step/update.h"

enum { GOLDEN_EVALUATED = 4 }; /* samples whose logits are compared */

struct golden_rig {
    struct job *job;
    struct backend *backend;
    struct layout *layout;
    struct state *state;
    struct buffers *buffers;
    struct update *update;
    struct program *training, *evaluation;
    struct recording *step; /* NULL: the step's kernels are run one by one */
};

/* Takes over the backend.  model: the value of "model" in the job file; extra: more lines of the
 * job file; run: the golden run of golden.json, with the weights and the optimizer's settings. */
void golden_rig_open(struct golden_rig *r, struct backend *b, const char *model, const char *extra,
                     json_t *run);
void golden_rig_close(struct golden_rig *r);

/* Record a step, which from now on is one launch, and give the weights the values of `run` again.
 * Only if backend_can_record. */
void golden_rig_record(struct golden_rig *r, json_t *run);

/* Train step k and return its mean loss.  *applied: 1 if its numbers were finite. */
double golden_rig_step(struct golden_rig *r, int k, int *applied);

/* Write the logits of the first GOLDEN_EVALUATED samples, [][GOLDEN_CLASSES], to `to`. */
void golden_rig_logits(struct golden_rig *r, float *to);

/* Copy n elements of the backend's memory, of any real type, to `to` as floats. */
void golden_rig_read(struct golden_rig *r, const void *from, enum dtype type, int64_t n, float *to);

/* The model of the golden run `layers`: most norms, a residual and a transposed convolution. */
#define GOLDEN_LAYERS                                                                              \
    "{arch: layers, layers: [conv: {channels: 8, kernel: 3, stride: 2, padding: 1}, "              \
    "group_norm: {groups: 2}, silu, residual: [conv: {channels: 8, kernel: 3, padding: 1}, "       \
    "group_norm: {groups: 4}, leaky_relu], conv_transpose: {channels: 6, kernel: 3, stride: 2, "   \
    "padding: 1, output_padding: 1}, instance_norm, gelu, adaptive_avg_pool: {size: 4}, flatten, " \
    "layer_norm, linear: {units: 10}]}"

#endif
