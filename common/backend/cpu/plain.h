/* plain - a kernel that is one C function.
 *
 * Every rank runs the optimizers and grad_check for itself, so these kernels must give the same
 * bits on every machine, whatever the instruction set and the number of threads.  Their sums run in
 * fixed blocks and lanes, no multiplication and addition are contracted, and CPU_CLONES only gives
 * the compiler wider registers for the same operations.
 *
 * Threads: the engine's.  A plain_part runs on any of the backend's threads, beside the other
 *          parts, and writes only its own range and its own scratch. */
#ifndef BACKEND_CPU_PLAIN_H
#define BACKEND_CPU_PLAIN_H

#include <stdatomic.h>

#include "backend/cpu/cpu.h"
#include "op/control.h"
#include "op/scaler.h"

/* Variants of a hot function for newer processors; the loader chooses one.  There are none under a
 * sanitizer, whose run time is not ready at that moment, and none with clang, of which some
 * versions reject the attribute for hidden static functions. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CPU_CLONES
#endif

/* Before a loop whose iterations touch different elements only, although an output may lie where an
 * input does: without it the compiler's check for overlap would choose scalar code there. */
#if defined(__clang__)
#define CPU_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define CPU_INDEPENDENT _Pragma("GCC ivdep")
#endif

struct plain {
    struct kernel k;
    int n_threads;                                       /* how many plain_split may use */
    int64_t least_work;                                  /* the least work for one of them */
    int widens_bf16;                                     /* as struct cpu's */
    void *in[NODE_MAX_IN], *out[NODE_MAX_OUT], *scratch; /* NULL: absent */
    size_t part_scratch, part_bytes; /* where the parts' own scratch begins, and the size of each */
    struct shape in_shape[NODE_MAX_IN], out_shape[NODE_MAX_OUT];
    size_t out_bytes[NODE_MAX_OUT];
    enum dtype in_type[NODE_MAX_IN], out_type[NODE_MAX_OUT];
    int64_t rows, c; /* in[0] as a matrix: c is its last dimension */
    unsigned adds;   /* as the node's */
    union node_attr attr;
    void (*run)(const struct plain *p);
    atomic_int *failure; /* plain_multiplied's: a status of oneDNN, of whichever part came last */
};

int plain_new(const struct graph *g, const struct node *n, void (*run)(const struct plain *p),
              size_t scratch_bytes, struct kernel **out, struct err *err);

/* plain_split cuts [0, n) into plain_parts(p, n, work) equal parts, calls part(p, i, from, to) for
 * each on threads, and returns when all parts are done.  `work` is the number of vector
 * instructions of all parts together, roughly; little work is not cut.  The number of parts, and so
 * the bits of their sums, depend on the number of threads that the kernel was made for.  The parts
 * run on no more threads than the backend has now. */
typedef void plain_part(const struct plain *p, int i, int64_t from, int64_t to);
int plain_parts(const struct plain *p, int64_t n, int64_t work);
void plain_split(const struct plain *p, int64_t n, int64_t work, plain_part *part);

/* As plain_new, for a kernel that uses plain_split.  The scratch has scratch_bytes for all parts
 * together, and behind them part_bytes for each thread of `b`: plain_part_scratch(p, i) is part
 * i's. */
int plain_new_split(struct cpu *b, const struct graph *g, const struct node *n,
                    void (*run)(const struct plain *p), size_t scratch_bytes, size_t part_bytes,
                    struct kernel **out, struct err *err);
void *plain_part_scratch(const struct plain *p, int i);

/* Note the status that a product of oneDNN's returned.  If one failed, the kernel's run fails, too.
 * Any part may call this. */
void plain_multiplied(const struct plain *p, int status);

/* sum += x, and y = a + b, of n elements; none of the arrays overlap. */
void plain_add(float *restrict sum, const float *restrict x, int64_t n);
void plain_sum(float *restrict y, const float *restrict a, const float *restrict b, int64_t n);

int plain_adds(const struct plain *p, int i); /* 1: the node adds to out[i] (node.adds) */
/* The n numbers of `sum` go to out[i], which is F32, or are added there. */
void plain_give(const struct plain *p, int i, const float *sum, int64_t n);

/* Kernels compute in F32.  They read and write operands that may be BF16 in pieces, which pass
 * through a `room` that stays in the nearest cache; an F32 operand is read and written where it
 * lies, and its room is not used.  A piece has PLAIN_PIECE elements or, where a kernel needs whole
 * rows, as many rows as fit, but at least one.
 *
 * plain_read    elements [from, from + n) of in[i]
 * plain_dest    where to write elements [from, ..) of out[i]; then plain_done rounds them */
enum { PLAIN_PIECE = 1024 };

const float *plain_read(const struct plain *p, int i, int64_t from, int64_t n, float *room);
float *plain_dest(const struct plain *p, int i, int64_t from, float *room);
void plain_done(const struct plain *p, int i, int64_t from, int64_t n, const float *room);

int64_t plain_piece_rows(int64_t c);                /* rows of c elements that make a piece */
size_t plain_room_bytes(int64_t c);                 /* of a room for that many rows */
size_t plain_room_of(const struct graph *g, int v); /* for rows of value v's last dimension */

/* The run function of a node that has no rows to compute: zeroes the outputs to which it does not
 * add. */
void plain_zero(const struct plain *p);

/* The factor of a loss' gradient.  The inputs of these numbers are the scalars and the scaler;
 * without one gradients are not scaled. */
static inline float plain_loss_scale(const struct plain *p, int scalars, int scaler)
{
    const struct step_scalars *s = p->in[scalars];
    const float *scales = p->in[scaler];

    return (scales ? s->loss_scale * scales[SCALER_SCALE] : s->loss_scale) * loss_factor(&p->attr);
}

#endif
