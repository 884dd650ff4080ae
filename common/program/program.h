/* program - a graph made ready to run on one backend: kernels, addresses, and stages.
 *
 *     graph (model/) -> program_differentiate -> layout_new -> program_new -> program_bind
 *     -> program_run_stage, again and again
 *
 * program_new applies the fusions that the backend offers.  It repeats the blocks' nodes in the
 * backward pass if the graph says so (graph.recompute), and drops unused nodes.  Then it makes
 * kernels and plans the memory of temporaries.  program_bind gives every value its address.
 * Running a stage allocates nothing, decides nothing and takes no lock.
 *
 * A program runs in stages, because collectives happen between kernels:
 *     RUN     executes kernels
 *     BUCKET  a range of the gradient buffer is final, and its all-reduce may start
 *     SYNC    a small value must be summed over all ranks before the next stage (batch norm)
 *     GATHER  the next stages read parameters of a set of buckets, and of no other (layout.gathers,
 *             layout.awaits_params)
 *
 * Batch 0 is legal: a rank may have no samples in a step.  Such a program zeroes its gradients and
 * the values of its SYNC stages.  It has the same stages, so that the rank takes part in every
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
 * in the reverse order of the forward nodes.  A gradient that no parameter needs, such as that of
 * the first layer's input, is not computed.  Fails with ERR_CONFIG (a parameter has no influence on
 * the loss), ERR_UNSUPPORTED (an operator has no gradient). */
int program_differentiate(struct graph *g, struct err *err);

/* Let a differentiated graph add all its gradients to what the gradients' memory holds, instead of
 * writing them there: so several runs give the sum of their gradients.  The memory must be zero
 * before the first of them. */
void program_accumulate(struct graph *g);

/* Turn a graph, differentiated or for evaluation, to half precision, before layout_new and
 * program_new.  Activations and their gradients become `compute` (BF16 or F16; with F32 nothing
 * changes).  Weights are read from working copies of that type.  Parameters' gradients become
 * `grad` (F32, or the same as compute).  Parameters, statistics, losses and the optimizer stay F32.
 * With F16 the gradient of the loss is multiplied by the VALUE_SCALER's scale. */
struct program_precision {
    enum dtype compute, grad;
};
int program_set_precision(struct graph *g, struct program_precision p, struct err *err);

/* The memory that programs share: backend memory of the engine. */
struct program_spaces {
    void *param; /* F32 [layout.n_total] */
    /* [layout.n_param_buckets]: the address of each bucket's parameters, and of their working
     * copies; NULL: they lie in param, and in copy */
    void *const *param_bucket, *const *copy_bucket;
    void *base; /* [layout.n_base_bytes] bytes; NULL if there are none */
    void *copy; /* working copies, [layout.n_total] of the layers' type; NULL if that is F32 */
    void *grad; /* layout_grad_bytes() of the graph's grad_dtype */
    /* [layout.n_buckets]: the address of each bucket's gradients, of layout.grad_dtype; NULL: they
     * lie in grad */
    void *const *bucket;
    void *state;   /* F32 [layout.n_state_total] */
    void *shadow;  /* F32 [layout.n_state_total]: the states' next values */
    void *scaler;  /* F32 [SCALER_LEN]; NULL without F16 */
    void *metrics; /* F64 [METRIC_COUNT] */
    void *scalars; /* struct step_scalars */
};

enum stage_kind { STAGE_RUN, STAGE_BUCKET, STAGE_SYNC, STAGE_GATHER };

struct stage {
    enum stage_kind kind;
    int from, to;    /* RUN: kernels [from, to) */
    int last_bucket; /* RUN: the last bucket of which it writes gradients; -1: it writes none */
    int bucket;      /* BUCKET: index into layout.bucket */
    int set;         /* GATHER: as in program_set */
    void *sync;      /* SYNC: F64 [n_sync], to be summed over all ranks in place */
    int64_t n_sync;
    int backward; /* 1: a part of the backward pass (the phase that heartbeats show) */
};

/* Make a program.  It takes g, on failure too.  Without differentiation it has no BUCKET stages.
 *   layout  borrowed; NULL if the graph has neither parameters nor states
 * Fails with ERR_CONFIG (a parameter is not in the layout, or has another shape there), ERR_ARG
 * (not all gradients of the layout are written), and as backend_make_kernel does. */
int program_new(struct backend *b, struct graph *g, const struct layout *layout,
                struct program **out, struct err *err);
void program_free(struct program *p);

/* Bytes of the arena: temporaries, scratch, and inputs without an address of their own.  Programs
 * that do not run at the same time may share one arena. */
size_t program_arena_bytes(const struct program *p);

/* Give a VALUE_INPUT an address outside the arena; before program_bind. */
void program_place(struct program *p, int value, void *address);

/* Give every value its address and hand the addresses to the kernels.  `arena` is aligned to 64
 * bytes.  The first call brings the graph's constants to memory of the program's own, since other
 * programs may use the arena between two runs.  Fails with ERR_ARG if a value's space is NULL,
 * ERR_NOMEM. */
int program_bind(struct program *p, const struct program_spaces *s, void *arena, struct err *err);

int program_n_stages(const struct program *p);
const struct stage *program_stage(const struct program *p, int i);

/* Run stage i if it is a RUN stage; else do nothing. */
int program_run_stage(struct program *p, int i, struct err *err);

/* A tensor that a node of the program has. */
struct program_sight {
    const char *node, *op;
    const struct value *value;
    int is_given;   /* 1: the node reads it, and no node made it: samples, parameters, states;
                     * 0: the node has written it */
    const void *at; /* in the backend's memory */
};
typedef int program_look(void *arg, const struct program_sight *s, struct err *err);

/* program_run_stage, node by node.  `look` is called for each tensor that is given to a node, and
 * then, when the node is queued, for each that it writes.  It has to wait until that is done, if it
 * wants to read the tensor.  Its failure ends the stage. */
int program_look_at_stage(struct program *p, int i, program_look *look, void *arg, struct err *err);

/* The sets of buckets whose parameters the program reads, one set after another: those of set i are
 * read between its GATHER stage and that of the next set.  The sets follow from the graph, so they
 * are the same for every batch size, 0 included.  A bucket in two sets in sequence stays in memory
 * between them. */
enum { PROGRAM_MOST_IN_SET = 2 * NODE_MAX_IN };
int program_n_sets(const struct program *p);
const int *program_set(const struct program *p, int i, int *n);

/* The most buckets of which gradients are written at the same time: from the start of the first
 * stage that writes one until its BUCKET stage. */
int program_most_open(const struct program *p);

int64_t program_batch(const struct program *p);
/* The address at which the engine writes field i of the batch's samples: that of the graph's
 * input[i], of its dtype, [N, the field's shape]. */
void *program_input(const struct program *p, int i);
/* The logits [N,C], of the layers' type.  They are valid after a run of an evaluation program; in a
 * training program the gradient may have been written over them. */
const void *program_logits(const struct program *p);
/* The output of this name (graph_output), in the backend's memory; valid after a run, until another
 * program runs in the same arena.  *value, unless NULL, gets its shape and type.  NULL: there is no
 * such output. */
const void *program_output(const struct program *p, const char *name, const struct value **value);

/* Run the program again, kernel by kernel and without collectives.  Name the first node that reads
 * a sample, parameter or state that is not finite, or that writes such an output: "conv2 (conv2d):
 * output [256,9,9,50] element 12 is inf".  Returns 1 if there is such a node, else 0.  Metrics and
 * the control vector stay as they were.  Gradients and shadows become those of this rank and of
 * this run alone, so call it only for a step that is not applied. */
int program_find_nonfinite(struct program *p, char *text, size_t cap, struct err *err);

/* Append the stages and their nodes after fusion, with places: for logs and tests. */
struct buf;
void program_print(const struct program *p, struct buf *out);

#endif
