/* impl - the structs and functions that the files of program/ share.  Only these files and tests
 * include it.
 *
 * program_new: fuse.c rewrites the graph, prune.c drops unused nodes, program.c makes a step of
 * each node that is left, stages.c cuts the steps into stages, plan.c gives temporaries their
 * places. */
#ifndef PROGRAM_IMPL_H
#define PROGRAM_IMPL_H

#include "program/program.h"

enum { PLACE_ALIGN = 64 };

/* Where a value lies. */
struct place {
    int root;       /* value whose memory it shares; itself: it shares none */
    size_t offset;  /* from the start of its space */
    size_t n_bytes; /* as planned */
    void *external; /* VALUE_INPUT: placed by program_place */
    void *address;  /* once bound */
};

struct step {
    int node;
    struct kernel *kernel; /* NULL: batch 0: zero the outputs */
};

struct program {
    struct backend *backend;
    struct graph *graph;
    const struct layout *layout;
    struct step *step; /* nodes that do something, in order */
    int n_steps, n_forward_steps;
    struct stage *stage;
    int *sync_value; /* [n_stages]: what a SYNC stage reduces */
    int n_stages;
    struct place *place; /* [n_values] */
    size_t temp_bytes;   /* temporaries; after them the scratch, then inputs that lie here */
    size_t scratch_bytes;
};

/* Rewrite the graph with what the backend can do in one kernel; removed nodes have op -1. */
int program_fuse(struct graph *g, struct backend *b, struct err *err);
/* Drop removed nodes, nodes without effect and unused optional outputs. */
void program_prune(struct graph *g);
/* Fill stage, sync_value; needs steps. */
int program_make_stages(struct program *p, struct err *err);
/* Fill place (root, offset) of temporaries, and temp_bytes. */
void program_plan(struct program *p);

size_t value_bytes(const struct value *v);
int program_run_step(struct program *p, int s, struct err *err);

/* Whether v is a temporary: only the program's own nodes use it. */
static inline int is_temp(const struct graph *g, int v)
{
    return v != NO_VALUE && g->value[v].role == VALUE_TEMP;
}

#endif
