/* rig - a program with everything it needs, as the engine would give it, on the naive backend.
 *
 * Life: rig_open -> rig_fill, rig_run ... -> rig_close.  Several rigs are several ranks
 * (rigs_run). */
#ifndef TESTS_PROGRAM_RIG_H
#define TESTS_PROGRAM_RIG_H

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
    float scaler[SCALER_LEN]; /* a scale of 1, where the layout has one */
    void *arena;
    size_t arena_bytes;
};

/* A model by value, with the options of an mlp where it is one. */
struct rig_model {
    struct model_options o; /* its `options` is set by rig_options */
    struct mlp_options mlp;
};

/* With defaults: no hidden layers, relu, cross-entropy. */
struct rig_model rig_model(const struct model_arch *arch);
struct model_options rig_options(const struct rig_model *model); /* points into *model */
extern const struct sample_spec rig_mnist;                       /* 28x28x1, 10 classes */

/* Differentiated if training. */
struct graph *rig_graph(const struct rig_model *model, const struct sample_spec *in, int64_t batch,
                        int training, int sync);

/* Takes g.  layout NULL: made of g.  fusions: as ref_open. */
void rig_open(struct rig *r, unsigned fusions, struct graph *g, struct layout *layout);
/* The same on another backend, which it takes. */
void rig_open_on(struct rig *r, struct backend *b, struct graph *g, struct layout *layout);
void rig_close(struct rig *r);

/* Parameters by the job's rule from seed; samples [first, first + batch) of a made-up data set. */
void rig_init(struct rig *r, uint64_t seed);

/* All parameters' initial values in the flat space, padding zero. */
void rig_init_params(const struct layout *l, uint64_t seed, double std, float *to);
void rig_fill(struct rig *r, int64_t first);

/* Spoil the arena (inputs apart), run everything; with several, SYNC stages are summed. */
void rig_run(struct rig *r);
void rigs_run(struct rig *const *r, int n);

double rig_loss(struct rig *r); /* runs; loss sum times loss_scale */

float *rig_param(const struct rig *r, const char *name, int64_t *length);
float *rig_grad(const struct rig *r, const char *name);

/* Of calls that cannot fail in a right test: rig_must(f(..., &rig_err)) ends with their words. */
extern struct err rig_err;
void rig_must(int rc);

/* New memory of b's, with this content. */
void *rig_put(struct backend *b, const void *from, size_t n_bytes);

float test_uniform(uint64_t step, uint64_t index); /* [-1,1) */
#endif
