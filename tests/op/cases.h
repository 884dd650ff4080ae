/* cases - one table of operator cases; every backend's kernels are tested with all of them.
 *
 * A case describes a node: its attributes, and the shape and content of its inputs.  The graph
 * built from it has the nodes that must come before (the sums of a batch norm), the node itself,
 * and the gradient nodes that its operator appends.  So gradients need no rows of their own, except
 * in forms that only a rewrite makes.
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
    FILL_FEW,      /* one of -0.5, -0.25, 0, 0.25, 0.5: often equal to its neighbours */
    FILL_ZERO,
    FILL_KINKS,      /* -3.5, -3, .. 0, .. 6, 6.5: where formulas change */
    FILL_KINKS_NEXT, /* the same from 1 on, without 0 */
    FILL_HIDDEN,     /* rows of 40: normal, but -infinity in row 1, and in column 3 */
    FILL_LABELS,     /* I32 in [0, C) of in[0] */
    FILL_STRAY,      /* labels, but the first is -1 and the last is C */
    FILL_IGNORED,    /* labels, but the first and the last are SAMPLE_IGNORED */
    FILL_TOKENS,     /* I32 in [0, M) of in[0] */
    FILL_STARTS,     /* I32: in each row several documents, and where each one begins */
    FILL_INDEX,      /* I64 in [0, M) of in[0] */
    FILL_METRICS,    /* the graph's metrics */
    FILL_SCALARS,    /* the graph's scalars */
    FILL_MASK,       /* the mask of a relu of that shape, made by a linear node */
    FILL_SUMS,       /* made by a batch_norm_stats node from in[0] and in[4] */
    FILL_CHECK,      /* F64 [2]: finite, sum of squares 9 */
    FILL_BAD,        /* F64 [2]: not finite */
    FILL_CHECKS,     /* F64 [n,2]: row i is 1 / (i + 1), and 1 in each fifth row, else 0 */
    FILL_CONTROL,    /* F32: a finite sum with every request */
    FILL_LOST,       /* F32: a sum that says a rank's loss was not finite */
    FILL_VOID,       /* F32: a sum that says the step is void */
    FILL_QUIET,      /* F32: a sum without requests */
    FILL_WAITS,      /* I64 [2] */
    FILL_STALE,      /* the graph's scalars: the step before was not clean */
    FILL_FIRST,      /* the graph's scalars: no update was made yet */
    FILL_SEGMENTS, /* F64 [rows, SEGMENT_COLUMNS]: in[0] in that many ranges, each with settings */
    FILL_ENDS,     /* I64 [n]: where n ranges of a row of in[0] end */
    FILL_DOTS,     /* F64: as adasum_dots makes them; some are 0 */
    FILL_NAN,      /* F32: normal, but for a NaN in the middle */
    FILL_INFINITE, /* F32: normal, but for one infinity */
    FILL_BF16,     /* N(0,1) in BF16, whatever the case's type */
    FILL_F16,      /* N(0,1) in F16, likewise */
    FILL_BLOCKS,   /* I8 in [-127, 127] */
    FILL_CODES,    /* U8 [codes, bytes]: each begins with two numbers as MinMaxUInt8 has them */
    FILL_SCALER,   /* F32 [SCALER_LEN]: a scale of 4, two good steps, hysteresis 1 */
    FILL_LOWEST,   /* as FILL_SCALER, with a scale of 1 */
    FILL_HIGHEST,  /* as FILL_SCALER, with a scale of SCALER_MAX */
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
    int only_in;              /* not 0: of the inputs, this one alone gets a gradient */
    enum activation grad_act; /* pool2d: activation fused into its gradient, as program/ does it */
    double tol;               /* relative to the largest output; 0: equal bits */
    double grad_tol; /* of central differences, relative to the largest; 0: no such check */
    int training;    /* 0: no gradient nodes */
    int fusion;      /* run only on backends with this enum fusion; 0: on all */
};

/* The rows of one file. */
struct op_case_family {
    const struct op_case *row;
    int n;
};

extern const struct op_case_family cases_layers, cases_pixels, cases_norms, cases_general,
    cases_tokens, cases_recurrent, cases_losses, cases_updates;

/* Case i of all families, from 0; NULL if there are no more. */
const struct op_case *op_case_at(int i);

/* The types that a case is built in: that of the nodes, and that of parameters' gradients. */
struct case_types {
    enum dtype type, grad;
};

/* Build the graph of a case.  The case's own node is the last of the forward part.  din[i] is set
 * to the value that holds the gradient of that node's in[i], or NO_VALUE. */
struct graph *case_build(const struct op_case *c, struct case_types t, int din[NODE_MAX_IN]);

int case_is_typed(const struct op_case *c); /* whether types other than F32 make a difference */

/* The size of a value, and its initial content: what its fill says, the same in every run. */
size_t case_bytes(const struct graph *g, int value);
void case_fill(const struct op_case *c, const struct graph *g, int value, void *to);

#endif
