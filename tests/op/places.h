/* places - where a node of a case under test reads and writes: guarded memory for each operand. */
#ifndef TESTS_OP_PLACES_H
#define TESTS_OP_PLACES_H

#include "guarded.h"
#include "runner.h"

enum { MOST_WRONG = 600 };

struct world { /* a case under test */
    const struct op_case *c;
    struct graph *g;
    int din[NODE_MAX_IN];
    const struct op_runner *r;
    void **own; /* content of each value as the backend made it */
    void **ref; /* content as the reference made it: other opaque values, other rounding */
    int adds;   /* 1: the variant under test adds to its outputs */
    char wrong[MOST_WRONG]; /* the first thing found wrong with the case, which then ends; or "" */
};

static inline int is_wrong(const struct world *w) { return w->wrong[0] != 0; }

/* The case ends with this, unless it has failed before. */
void world_fail(struct world *w, const struct node *n, const char *what);

/* The memory of one node: a guarded place for each of its operands. */
struct places {
    struct guarded in[NODE_MAX_IN], out[NODE_MAX_OUT], scratch;
    struct guarded *at[NODE_MAX_OUT]; /* the place of out[i]: its own, or that of an input */
    void *in_at[NODE_MAX_IN], *out_at[NODE_MAX_OUT];
    unsigned char *now[NODE_MAX_OUT]; /* room for a copy of out[i] */
};

/* in_place: out[0] gets the place of the input that the operator may overwrite. */
void places_init(struct places *p, const struct world *w, const struct node *n, size_t scratch,
                 size_t shift, int in_place);
void places_fini(struct places *p);

/* Inputs get their content, and outputs that the node adds to get terms; all else is 0xff. */
void places_load(struct places *p, const struct world *w, const struct node *n);
int places_input(const struct node *n, int value); /* the number of this input; -1: it is none */
double places_term(int64_t i); /* element i of an output before a node adds to it */

void places_check_guards(const struct places *p, struct world *w, const struct node *n);

/* Check that inputs are unchanged, except those that the operator updates or adds to. */
void places_check_inputs(const struct places *p, struct world *w, const struct node *n);

#endif
