/* golden_rig - one model in training, without a trainer: its parts, put together by hand, on any
 * backend and in any precision; weights and samples are those that PyTorch had (golden_data.h).
 *
 * Life: golden_rig_open -> golden_rig_step ... -> golden_rig_close.  Failures end the test. */
#ifndef TESTS_GOLDEN_GOLDEN_RIG_H
#define TESTS_GOLDEN_GOLDEN_RIG_H

#include <jansson.h>

#include "backend/backend.h"
#include "golden_data.h"
#include "model/model.h"
#include "program/program.h"
#include "train/update.h"

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

/* Takes the backend.  model: what the job file says of it; extra: more lines of the job file; run:
 * the golden run, which has the weights and the optimizer's numbers. */
void golden_rig_open(struct golden_rig *r, struct backend *b, const char *model, const char *extra,
                     json_t *run);
void golden_rig_close(struct golden_rig *r);

/* From here on a step is one launch of what is recorded here; weights are those of `run` again.
 * Where backend_can_record. */
void golden_rig_record(struct golden_rig *r, json_t *run);

/* Train step k; its mean loss.  *applied: whether its numbers were finite. */
double golden_rig_step(struct golden_rig *r, int k, int *applied);

/* The logits of the first GOLDEN_EVALUATED samples, [][GOLDEN_CLASSES]. */
void golden_rig_logits(struct golden_rig *r, float *to);

/* n elements of the backend's memory, of any real type, as floats. */
void golden_rig_read(struct golden_rig *r, const void *from, enum dtype type, int64_t n, float *to);

#endif
