/* rig - a program on the naive backend, with the memory and samples that the engine would give it.
 * Several rigs act as several ranks (rigs_run).
 *
 * Life: rig_open -> rig_init -> rig_fill, rig_run ... -> rig_close. */
#ifndef TESTS_PROGRAM_RIG_H
#define TESTS_PROGRAM_RIG_H

#include "model/layers.h"
#include "model/mlp.h"
#include "model/model.h"
#include "op/scaler.h"
#include "program/program.h"

struct rig {
    struct backend *backend;
    const struct graph *graph; /* the program's */
    struct program *program;
    struct layout *layout;
    int owns_layout;
    struct program_spaces spaces;
    struct step_scalars scalars;
    double metrics[METRIC_COUNT];
    float scaler[SCALER_LEN]; /* a scale of 1; used if the layout has a scaler */
    void *arena;
    size_t arena_bytes;
};

/* A model's options by value, and those of its own kind, for an mlp or a list of layers. */
struct rig_model {
    struct model_options o; /* its `options` is set by rig_options */
    struct mlp_options mlp;
    struct layers_options list;
};

/* The model with default options: no hidden layers, relu, cross-entropy. */
struct rig_model rig_model(const struct model_arch *arch);
struct model_options rig_options(const struct rig_model *model); /* points into *model */
extern const struct sample_spec rig_mnist;                       /* 28x28x1, 10 classes */

/* Build the model's graph; it is differentiated if training is 1. */
struct graph *rig_graph(const struct rig_model *model, const struct sample_spec *in, int64_t batch,
                        int training, int sync);

/* Make the program and its memory.  Takes g.
 *   layout   NULL: made from g
 *   fusions  as in ref_open */
void rig_open(struct rig *r, unsigned fusions, struct graph *g, struct layout *layout);
/* The same on the backend b; takes b, too. */
void rig_open_on(struct rig *r, struct backend *b, struct graph *g, struct layout *layout);
void rig_close(struct rig *r);

/* Set the parameters to their initial values for this seed. */
void rig_init(struct rig *r, uint64_t seed);

/* Write all parameters' initial values to a flat space; padding is zero. */
void rig_init_params(const struct layout *l, uint64_t seed, double std, float *to);

/* Set the inputs to the samples [first, first + batch) of a synthetic data set. */
void rig_fill(struct rig *r, int64_t first);

/* Fill the arena, except the inputs, with NaNs and run all stages.  rigs_run sums the values of
 * SYNC stages over its rigs. */
void rig_run(struct rig *r);
void rigs_run(struct rig *const *r, int n);

double rig_loss(struct rig *r); /* run, and return the loss sum times scalars.loss_scale */

float *rig_param(const struct rig *r, const char *name, int64_t *length);
float *rig_grad(const struct rig *r, const char *name);

/* For calls that fail only if the test is wrong: rig_must(f(..., &rig_err)) then ends the test with
 * the message in rig_err. */
extern struct err rig_err;
void rig_must(int rc);

/* Allocate memory of b with this content. */
void *rig_put(struct backend *b, const void *from, size_t n_bytes);

float test_uniform(uint64_t step, uint64_t index); /* a number in [-1,1), the same in every run */
#endif
