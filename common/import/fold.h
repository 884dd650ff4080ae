/* fold - nodes whose operands are all constants, computed on the host as PyTorch computes them.
 *
 * Masks and positions of exported networks are computed by nodes (arange, cumsum, le, index); for a
 * fixed length their values are known before training.  Integers, floats and booleans keep
 * PyTorch's types: what a node gives has the type and the shape that the export says, or folding
 * fails.  Views share the elements of their base, and an operator in place ("fill_.Scalar") writes
 * into them.  Shapes are those at export, those of the batch, too.
 *
 * Life:    all tensors live in the caller's arena.
 * Threads: one at a time for each arena.
 * Errors:  ERR_UNSUPPORTED: a target, type or size that is not folded; ERR_CONFIG: shapes that do
 *          not fit. */
#ifndef IMPORT_FOLD_H
#define IMPORT_FOLD_H

#include "base/err.h"
#include "import/network.h"

/* Of one constant.  Fuzzers run under sanitizers, at a fiftieth of the speed. */
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
enum { FOLD_MAX_ELEMENTS = 2 << 20 };
#else
enum { FOLD_MAX_ELEMENTS = 64 << 20 };
#endif
#define FOLD_MAX_BYTES ((int64_t)8 << 30) /* of all constants of a network; views count, too */

struct host_tensor {
    enum import_type type; /* BOOL: one byte, 0 or 1 */
    int n_dims;
    int64_t dim[IMPORT_MAX_DIMS], stride[IMPORT_MAX_DIMS]; /* in elements; 0: broadcast */
    void *data;                                            /* the first element */
    const void *memory; /* tensors with equal `memory` share elements */
    int is_read_only;   /* 1: the elements of the file */
};

/* The constants of a network. */
struct fold_host {
    struct arena *a;            /* has all of them */
    struct host_tensor **value; /* for each value of the network; NULL: it is no constant */
    int64_t n_bytes;            /* made so far */
};

int fold_can(const char *target); /* 1: the table has it, in place or not */

/* "add_.Tensor" changes its first argument, "__and__.Tensor" does not. */
int fold_is_in_place(const char *target);

/* Compute `node`, and set the entries of its outputs in h->value. */
int fold_node(struct fold_host *h, const struct import_network *n, const struct import_node *node,
              struct err *err);

/* A tensor of the file, whose elements are in memory. */
struct host_tensor host_of_file(const struct import_tensor *t);

/* Element i, counted row by row, as a number; booleans are 0 and 1. */
double host_element(const struct host_tensor *t, int64_t i);
int64_t host_integer(const struct host_tensor *t, int64_t i); /* of a type without fractions */
int64_t host_count(const struct host_tensor *t);

/* An element: `f` for floats and as a double, `i` for integers and booleans. */
struct fold_num {
    int64_t i;
    double f;
};

enum { FOLD_RUN = 256 };
/* Elements from number i on, row by row, n or FOLD_RUN of them; returns how many. */
int fold_read(const struct host_tensor *t, int64_t i, int64_t n, struct fold_num *to);

int host_is_real(enum import_type t);
/* 1: all elements along dimension d are equal. */
int host_is_even(const struct host_tensor *t, int d);

enum mask_kind {
    MASK_ALL,     /* every key may be read */
    MASK_CAUSAL,  /* key k for query q if k <= q + offset */
    MASK_SLIDING, /* likewise, and k > q + offset - width */
    MASK_OTHER
};

struct mask_form {
    enum mask_kind kind;
    int64_t offset, width;
};

/* The form of a constant mask [..., queries, keys], the same for all leading indices: booleans,
 * true for keys that may be read, or floats that are added, 0 or at most the lowest float32.  A
 * mask of which a row has no key is MASK_OTHER. */
struct mask_form mask_form_of(const struct host_tensor *mask);

#endif
