/* impl - the structs and functions that the files of program/ share.  Only these files and tests
 * include it.
 *
 * program_new works in this order: fuse.c rewrites the graph, recompute.c repeats parts of it,
 * and prune.c drops unused nodes.  program.c makes a step of each node that is left, stages.c cuts
 * the steps into stages, and plan.c gives temporaries their places.
 *
 * Threads: as program.h. */
#ifndef PROGRAM_IMPL_H
#define PROGRAM_IMPL_H

#include "program/program.h"

enum { PLACE_ALIGN = 64 };

/* The memory of a value. */
struct place {
    int root;       /* the value whose memory it shares; itself: it shares none */
    size_t offset;  /* from the start of its space; CONST: of the program's constants */
    size_t n_bytes; /* as planned */
    void *external; /* VALUE_INPUT: the address that program_place gave, or NULL */
    void *address;  /* set by program_bind */
};

/* One node that does something when the program runs. */
struct step {
    int node;
    struct kernel *kernel; /* NULL: batch is 0, so only zero the outputs */
};

struct program {
    struct backend *backend;
    struct graph *graph;
    const struct layout *layout;
    struct step *step; /* [n_steps], in the order of the nodes */
    int n_steps, n_forward_steps;
    struct stage *stage;
    int *sync_value; /* [n_stages]: the value that a SYNC stage reduces, else NO_VALUE */
    int n_stages;
    struct bucket_set {
        int bucket[PROGRAM_MOST_IN_SET], n;
    } * set; /* [n_sets] */
    int n_sets;
    struct place *place; /* [n_values] */
    size_t temp_bytes;   /* of the arena (bind.c): all temporaries */
    size_t scratch_bytes;
    void *constants; /* the backend's memory; NULL until program_bind, or if there are none */
};

/* Replace several nodes by one where the backend has a kernel for it; removed nodes get op -1. */
int program_fuse(struct graph *g, struct backend *b, struct err *err);
/* Let the backward pass compute again what the nodes of blocks made, where it reads that; removed
 * nodes stay removed.  Producers are not kept up; program_prune sets them anew.
 *   keeps_small  1: values that are small beside the inputs of their node are kept.  0: what is
 *                computed again does not depend on the batch size */
void program_recompute(struct graph *g, int keeps_small);
/* Drop removed nodes, nodes without effect and unused optional outputs; nodes get new indices. */
void program_prune(struct graph *g);
/* Fill stage and sync_value, from the steps. */
int program_make_stages(struct program *p, struct err *err);
/* Fill temp_bytes, and each place's root and size; the offset, too, of temporaries. */
void program_plan(struct program *p);

size_t value_bytes(const struct value *v);
/* The bucket that holds this element of the flat space; the element is not of the control vector.
 */
int program_bucket_of(const struct layout *l, int64_t offset);
int program_run_step(struct program *p, int s, struct err *err);

/* 1: v is a tensor that no node makes, and that differs from step to step or from job to job. */
static inline int is_given(const struct graph *g, int v)
{
    const enum value_role role = v == NO_VALUE ? VALUE_TEMP : g->value[v].role;

    return role == VALUE_INPUT || role == VALUE_PARAM || role == VALUE_COPY || role == VALUE_BASE ||
           role == VALUE_STATE;
}

/* 1: v is a temporary, which only the program's own nodes use. */
static inline int is_temp(const struct graph *g, int v)
{
    return v != NO_VALUE && g->value[v].role == VALUE_TEMP;
}

#endif
