/* fold - nodes whose operands are all constants, computed on the host as PyTorch computes them.
 *
 * Masks and positions of exported networks are computed by nodes (arange, cumsum, le, index); for a
 * fixed length their values are known before training.  Integers, floats and booleans keep
 * PyTorch's types: what a node gives has the type that the export says, or folding fails.
 * Views share the elements of their base.
 *
 * Life:    all tensors live in the caller's arena.
 * Threads: one at a time for each arena.
 * Errors:  ERR_UNSUPPORTED: a target, type or size that is not folded; ERR_CONFIG: shapes that do
 *          not fit. */
#ifndef IMPORT_FOLD_H
#define IMPORT_FOLD_H

#include "base/err.h"
#include "import/network.h"

enum { FOLD_MAX_ELEMENTS = 64 << 20 };

struct host_tensor {
    enum import_type type; /* IMPORT_I64, IMPORT_F32, IMPORT_F64 or IMPORT_BOOL (one byte) */
    int n_dims;
    int64_t dim[IMPORT_MAX_DIMS], stride[IMPORT_MAX_DIMS]; /* in elements; 0: broadcast */
    void *data;                                            /* the first element */
};

/* A value: an integer, a tensor, or neither while it is not known. */
struct fold_value {
    int is_int;
    int64_t number;                   /* is_int */
    const struct host_tensor *tensor; /* NULL: not known, unless is_int */
};

int fold_can(const char *target); /* 1: the table has it */

/* Compute `node`; value[] has an entry for each value of the network, the entry of the node's
 * output is set. */
int fold_node(struct arena *a, const struct import_network *n, const struct import_node *node,
              struct fold_value *value, struct err *err);

/* Element i, counted row by row, as a number; booleans are 0 and 1. */
double host_element(const struct host_tensor *t, int64_t i);
int64_t host_count(const struct host_tensor *t);

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
