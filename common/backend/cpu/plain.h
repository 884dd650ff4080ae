/* plain - a kernel that is one C function.
 *
 * Kernels that every rank computes for itself (optimizers, grad_check) give the same bits on every
 * machine, whatever the instruction set and the threads: sums run in fixed blocks and lanes,
 * nothing is contracted, and CPU_CLONES only gives the compiler wider registers for the same
 * operations. */
#ifndef BACKEND_CPU_PLAIN_H
#define BACKEND_CPU_PLAIN_H

#include "backend/cpu/cpu.h"
#include "op/control.h"
#include "op/scaler.h"

/* Variants of a hot function for newer processors, chosen when the program is loaded; not under a
 * sanitizer (whose run time is not up by then) and not by clang, which rejects it for hidden
 * static functions in some versions. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CPU_CLONES
#endif

struct plain {
    struct kernel k;
    int n_threads;                                       /* that plain_split may use */
    int64_t least_work;                                  /* that it gives one of them */
    void *in[NODE_MAX_IN], *out[NODE_MAX_OUT], *scratch; /* NULL: absent */
    size_t part_scratch, part_bytes; /* where in the scratch each part's own begins, and its size */
    struct shape in_shape[NODE_MAX_IN], out_shape[NODE_MAX_OUT];
    size_t out_bytes[NODE_MAX_OUT];
    enum dtype in_type[NODE_MAX_IN];
    int64_t rows, c; /* of in[0]: elements / last dimension, last dimension */
    union node_attr attr;
    void (*run)(const struct plain *p);
};

int plain_new(const struct graph *g, const struct node *n, void (*run)(const struct plain *p),
              size_t scratch_bytes, struct kernel **out, struct err *err);

/* Do part(p, i, from, to) for all of [0, n), cut into equal parts i < plain_parts(p, n, work), on
 * as many threads; returns when all are done.  `work`: vector instructions in all, roughly; little
 * work is not cut.  The parts, and so the bits of what they add up, depend on the threads that
 * the kernel was made for; it runs on no more than the backend has now. */
typedef void plain_part(const struct plain *p, int i, int64_t from, int64_t to);
int plain_parts(const struct plain *p, int64_t n, int64_t work);
void plain_split(const struct plain *p, int64_t n, int64_t work, plain_part *part);

/* As plain_new, for a kernel that plain_split cuts: each thread of `b` adds part_bytes of scratch,
 * the i-th part's at plain_part_scratch, after scratch_bytes of all. */
int plain_new_split(struct cpu *b, const struct graph *g, const struct node *n,
                    void (*run)(const struct plain *p), size_t scratch_bytes, size_t part_bytes,
                    struct kernel **out, struct err *err);
void *plain_part_scratch(const struct plain *p, int i);

/* The run function of a node that has nothing to do: zeroes its outputs. */
void plain_zero(const struct plain *p);

/* The factor of a loss' gradient; scaler NULL: gradients are not scaled. */
static inline float plain_loss_scale(const struct step_scalars *s, const float *scaler)
{
    return scaler ? s->loss_scale * scaler[SCALER_SCALE] : s->loss_scale;
}

#endif
