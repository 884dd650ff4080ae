/* cases - one table of operator cases, which every backend's kernels run through.
 *
 * A case is a node: its attributes, and inputs by shape and manner of filling.  From it a graph is
 * built: what must come before the node (the sums of a batch norm), the node, and the gradient
 * nodes that its operator appends; so gradients need no rows of their own, except in forms that
 * only a rewrite makes.
 *
 * Life:  case_build -> graph_free. */
#ifndef TESTS_OP_CASES_H
#define TESTS_OP_CASES_H

#include "backend/backend.h"
#include "ir/graph.h"
#include "op/op.h"

enum fill {
    FILL_NONE,     /* input absent */
    FILL_NORMAL,   /* N(0,1) */
    FILL_SPACED,   /* distinct, at least 0.01 apart and 0.0025 from 0: no kinks near */
    FILL_POSITIVE, /* 0.1 .. 2 */
    FILL_UNIT,     /* (0, 1) */
    FILL_LABELS,   /* I32 in [0, C) of in[0] */
    FILL_STRAY,    /* the same, but the first is -1 and the last C */
    FILL_INDEX,    /* I64 in [0, M) of in[0] */
    FILL_METRICS,  /* the graph's */
    FILL_SCALARS,  /* the graph's */
    FILL_MASK,     /* of that shape's relu, made by a linear node */
    FILL_SUMS,     /* made by a batch_norm_stats node from in[0] and in[4] */
    FILL_CHECK,    /* F64 [2]: finite, sum of squares 9 */
    FILL_BAD,      /* F64 [2]: not finite */
    FILL_CONTROL,  /* F32: a sum with nothing non-finite */
    FILL_LOST,     /* F32: a sum that says a rank's loss was not finite */
    FILL_VOID,     /* F32: a sum that says the step counts as nothing */
    FILL_QUIET,    /* F32: a sum that asks for nothing */
    FILL_WAITS,    /* I64 [2] */
    FILL_STALE,    /* the graph's scalars: the step before was not clean */
    FILL_FIRST,    /* the graph's scalars: no update was made yet */
    FILL_SEGMENTS, /* F64: that many rows (op/update.h), of in[0]'s elements, each with its settings
                    */
    FILL_INFINITE, /* F32: normal, but for one infinity */
    FILL_BF16,     /* N(0,1) in this type, whatever the case's */
    FILL_F16,
    FILL_SCALER,  /* F32 [SCALER_LEN]: a scale of 4, two good steps, hysteresis 1 */
    FILL_LOWEST,  /* the same, but a scale of 1 */
    FILL_HIGHEST, /* the same, but a scale of SCALER_MAX */
};

struct op_case {
    const char *name;
    enum op op;
    union node_attr attr;
    struct {
        enum fill fill;
        struct shape shape;
    } in[NODE_MAX_IN];
    int no_out;               /* 1: optional outputs are refused */
    enum activation grad_act; /* pool2d: fused into its gradient, as the program does */
    double tol;               /* of the largest output; 0: equal bits */
    double grad_tol;          /* central differences, of the largest gradient; 0: none */
    int training;             /* 0: no gradient nodes */
    int fusion;               /* only where can_fuse has this enum fusion; 0: everywhere */
};

extern const struct op_case op_cases[];
extern const int n_op_cases;

/* In which types a case is built: the nodes' own, and that of parameters' gradients. */
struct case_types {
    enum dtype type, grad;
};

/* The graph of a case, whose own node is the last of the forward part.  din[i]: the value that
 * holds the gradient of that node's in[i], or NO_VALUE. */
struct graph *case_build(const struct op_case *c, struct case_types t, int din[NODE_MAX_IN]);

int case_is_typed(const struct op_case *c); /* whether types other than F32 make a difference */

/* Initial content of a value: by its case's fill, deterministic. */
size_t case_bytes(const struct graph *g, int value);
void case_fill(const struct op_case *c, const struct graph *g, int value, void *to);

#endif
