/* cpu - the embedded backend: oneDNN's primitives, and plain C where oneDNN has no primitive.
 *
 * For every operator NAME there is cpu_make_NAME in the file of its family.  A kernel is either a
 * chain (chain.h: oneDNN primitives one after another) or plain (plain.h: one C function).
 * Threads: oneDNN's OpenMP threads.  The costly plain kernels are cut into parts for these threads
 * (plain_split); the other plain kernels use the calling thread alone. */
#ifndef BACKEND_CPU_CPU_H
#define BACKEND_CPU_CPU_H

#include "backend/backend.h"

struct onednn;

struct cpu {
    struct backend base;
    struct onednn *dn;
    int n_threads;
    int widens_bf16;    /* 1: products of BF16 are F32's (dn_widens_bf16, or a test's choice) */
    int64_t least_work; /* the least work worth another thread, in vector instructions, roughly */
};

#define X(name)                                                                     \
    int cpu_make_##name(struct cpu *b, const struct graph *g, const struct node *n, \
                        struct kernel **out, struct err *err);
OP_LIST(X)
#undef X

/* The shape of in[i] or out[i] of n, which must be present. */
static inline const struct shape *cpu_in(const struct graph *g, const struct node *n, int i)
{
    return &g->value[n->in[i]].shape;
}

static inline const struct shape *cpu_out(const struct graph *g, const struct node *n, int i)
{
    return &g->value[n->out[i]].shape;
}

/* The shape of a convolution's filter; n is any of its passes. */
static inline const struct shape *cpu_conv_filter(const struct graph *g, const struct node *n)
{
    return n->op == OP_conv2d          ? cpu_in(g, n, CONV2D_W)
           : n->op == OP_conv2d_grad_x ? cpu_in(g, n, CONV2D_GRAD_X_W)
                                       : cpu_out(g, n, CONV2D_GRAD_W_DW);
}

static inline int cpu_has_in(const struct node *n, int i)
{
    return i < n->n_in && n->in[i] != NO_VALUE;
}

static inline int cpu_has_out(const struct node *n, int i)
{
    return i < n->n_out && n->out[i] != NO_VALUE;
}

#endif
