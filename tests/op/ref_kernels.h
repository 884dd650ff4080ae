/* ref_kernels - the naive kernels: one function for each operator, and the node that it computes.
 * All memory is the host's. */
#ifndef TESTS_OP_REF_KERNELS_H
#define TESTS_OP_REF_KERNELS_H

#include "ir/graph.h"
#include "op/op.h"

struct ref_node {
    int op;
    union node_attr attr;
    struct shape in_shape[NODE_MAX_IN], out_shape[NODE_MAX_OUT];
    enum dtype in_type[NODE_MAX_IN], out_type[NODE_MAX_OUT];
    void *in[NODE_MAX_IN], *out[NODE_MAX_OUT]; /* NULL: absent; BF16 and F16 come as floats */
};

#define X(name) void ref_##name(const struct ref_node *n);
OP_LIST(X)
#undef X

double *ref_sums(int64_t n); /* n zeroed doubles; the caller frees them */
void ref_round(const double *from, int64_t n, float *to);
double ref_activate(enum activation kind, double x);
double ref_activate_grad(enum activation kind, double x, double y); /* dy/dx */

#endif
