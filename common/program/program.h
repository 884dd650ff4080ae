/* program - a graph made ready to run: kernels, addresses, and the stages between them.
 *
 *     graph (model/) -> program_differentiate -> layout_new -> program_new -> program_bind
 *     -> program_run_stage, again and again
 *
 * program_new fuses with what the backend offers, drops unused nodes, makes kernels and plans
 * the memory of temporaries; program_bind gives addresses; running a stage allocates nothing,
 * decides nothing and takes no lock.
 *
 * A program runs in stages, because collectives happen between kernels: a RUN stage executes
 * kernels; after a BUCKET stage that range of the gradient buffer is final and its all-reduce may
 * start; a SYNC stage wants one small value reduced over all ranks before the next stage (batch
 * norm).
 *
 * Batch 0 is legal (a rank without samples in a step): such a program zeroes its gradients and the
 * values to be synchronised, and keeps the stages, so that this rank takes part in every
 * collective.
 *
 * Life:    program_new (takes the graph) -> bind -> run ... -> free.
 * Threads: the engine's. */
#ifndef PROGRAM_PROGRAM_H
#define PROGRAM_PROGRAM_H

#include "backend/backend.h"
#include "ir/graph.h"
#include "program/layout.h"

struct program; /* opaque */

/* Append the nodes that compute the gradient of the loss with respect to every trained parameter,
 * in reverse order of the forward nodes; sums where a value has several users; computes nothing
 * that no parameter needs (the first layer's input gradient). */
int program_differentiate(struct graph *g, struct err *err);

/* Turn a graph, differentiated or for evaluation, to half precision, before layout_new and
 * program_new: activations and their gradients become `compute` (BF16, F16; F32: nothing changes),
 * weights are read from working copies of that type, and parameters' gradients become `grad` (F32,
 * or the same type).  Parameters, statistics, losses and the optimizer stay float32.  With F16 the
 * gradient of the loss is scaled by the VALUE_SCALER. */
struct program_precision {
    enum dtype compute, grad;
};
int program_set_precision(struct graph *g, struct program_precision p, struct err *err);

/* The memory that programs share, given by the engine (backend memory). */
struct program_spaces {
    void *param;   /* F32 [layout.n_total] */
    void *copy;    /* the same in the layers' type; NULL where that is F32 */
    void *grad;    /* layout_grad_bytes() of the graph's grad_dtype */
    void *state;   /* F32 [layout.n_state_total] */
    void *shadow;  /* the same: next values */
    void *scaler;  /* F32 [SCALER_LEN]; NULL but with F16 */
    void *metrics; /* F64 [METRIC_COUNT] */
    void *scalars; /* struct step_scalars */
};

enum stage_kind { STAGE_RUN, STAGE_BUCKET, STAGE_SYNC };

struct stage {
    enum stage_kind kind;
    int from, to; /* RUN: kernels [from, to) */
    int bucket;   /* BUCKET: index into layout.bucket */
    void *sync;   /* SYNC: F64 [n_sync], to be summed over all ranks in place */
    int64_t n_sync;
    int backward; /* 1: belongs to the backward pass (for the phase shown in heartbeats) */
};

/* Takes g, on failure too.  An evaluation graph (not differentiated) has no BUCKET stages.
 * layout    borrowed; NULL if the graph has neither parameters nor states.
 * Fails with ERR_CONFIG (a parameter is not in the layout), and as backend_make_kernel does. */
int program_new(struct backend *b, struct graph *g, const struct layout *layout,
                struct program **out, struct err *err);
void program_free(struct program *p);

/* Bytes that the temporaries of this program need; several programs may share one arena. */
size_t program_arena_bytes(const struct program *p);
/* Place a VALUE_INPUT outside the arena; before program_bind. */
void program_place(struct program *p, int value, void *address);
int program_bind(struct program *p, const struct program_spaces *s, void *arena, struct err *err);

int program_n_stages(const struct program *p);
const struct stage *program_stage(const struct program *p, int i);
int program_run_stage(struct program *p, int i,
                      struct err *err); /* RUN stages; others do nothing */

int64_t program_batch(const struct program *p);
/* Where the engine puts field i of the batch's samples: the graph's input[i], of its dtype, [N, the
 * field's shape]. */
void *program_input(const struct program *p, int i);
/* [N,C] of the layers' type, valid after a run of an evaluation graph; in a differentiated one the
 * gradient may have been written over them. */
const void *program_logits(const struct program *p);

/* Run everything again, kernel by kernel, without collectives, and name the first node with an
 * input of its own (sample, parameter, state) or an output that is not finite: "conv2 (conv2d):
 * output [256,9,9,50] element 12 is inf".  Returns 1 if one was found, 0 if none. Metrics and the
 * control vector stay as they were; gradients and shadows become this rank's own: for a step that
 * is not applied. */
int program_find_nonfinite(struct program *p, char *text, size_t cap, struct err *err);

/* Nodes after fusion, with places: for logs and tests. */
struct buf;
void program_print(const struct program *p, struct buf *out);

#endif
