/* own - a kernel of our own: a C function that launches on the backend's stream.
 *
 * The counterpart of backend/cpu/plain.h.  `run` launches (device.cuh) and returns; after it, one
 * check finds any launch that failed.
 *
 * Threads: the backend's. */
#ifndef BACKEND_CUDA_OWN_H
#define BACKEND_CUDA_OWN_H

#include "backend/cuda/cuda.h"

struct own {
    struct kernel k;
    struct cuda *cuda;
    void *in[NODE_MAX_IN], *out[NODE_MAX_OUT], *scratch; /* on the device; NULL: absent */
    struct shape in_shape[NODE_MAX_IN], out_shape[NODE_MAX_OUT];
    size_t out_bytes[NODE_MAX_OUT];
    enum dtype in_type[NODE_MAX_IN], out_type[NODE_MAX_OUT];
    int64_t n, rows, c; /* in[0] has n elements; as a matrix it is [rows,c] */
    unsigned adds;      /* as the node's */
    union node_attr attr;
    void *table; /* on the device: constants that the node brings; NULL: none */
    void (*run)(const struct own *p);
};

int own_new(struct cuda *b, const struct graph *g, const struct node *n,
            void (*run)(const struct own *p), size_t scratch_bytes, struct kernel **out,
            struct err *err);

/* The same for a kernel with constants of its own, which are copied to the device; table NULL:
 * there are none. */
int own_new_table(struct cuda *b, const struct graph *g, const struct node *n,
                  void (*run)(const struct own *p), size_t scratch_bytes, const void *table,
                  size_t table_bytes, struct kernel **out, struct err *err);

/* The kernel of a node that has no rows to compute: zeroes the outputs to which it does not add. */
int own_new_zero(struct cuda *b, const struct graph *g, const struct node *n, struct kernel **out,
                 struct err *err);

#endif
