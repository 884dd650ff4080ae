/* backend - a place where kernels run: the cpu (oneDNN), or a GPU (a plugin).
 *
 * A backend allocates memory, makes a kernel for a node, and runs kernels in order.  program/
 * decides which kernels run and where every tensor lies; a backend decides only how to compute.
 *
 * Life of a kernel: make (choose the algorithm, say how much scratch it needs) -> bind (addresses,
 * once) -> run (as often as wanted: allocates nothing) -> free.
 * Threads: one engine thread per backend; kernels may use the backend's own threads inside run.
 * Errors:  ERR_UNSUPPORTED (this backend has no such kernel), ERR_NOMEM, ERR_DEVICE (with the
 *          library's text). */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stddef.h>

#include "base/err.h"
#include "ir/graph.h"
#include "op/op.h"

struct backend;
struct kernel;
struct recording; /* each backend that records defines its own */

/* GPU libraries demand this alignment of a workspace, and a workspace is part of the scratch. */
enum { BACKEND_SCRATCH_ALIGN = 256 };

struct kernel_ops {
    /* Gives the kernel its addresses, which stay valid until free.  in[] and out[] are NULL where
     * the node has no operand, and else aligned to at least 16 bytes.  `scratch` has scratch_bytes
     * and is aligned to BACKEND_SCRATCH_ALIGN; other kernels overwrite it between runs. */
    int (*bind)(struct kernel *k, void *const *in, void *const *out, void *scratch,
                struct err *err);
    int (*run)(struct kernel *k, struct err *err);
    void (*free)(struct kernel *k);
};

struct kernel { /* a backend's kernels start with this */
    const struct kernel_ops *ops;
    size_t scratch_bytes; /* set by make */
};

/* Rewrites that a backend may take over in one kernel. */
enum fusion {
    FUSE_BIAS,            /* conv2d or linear + bias; and grad_w computes db, too */
    FUSE_ACTIVATION,      /* conv2d or linear (+ bias) + activation */
    FUSE_FLATTEN,         /* flatten + linear, and their gradients */
    FUSE_POOL_GRAD_ACT,   /* pool2d_grad + activation_grad */
    FUSE_LOSS_GRAD,       /* softmax_xent + its gradient, if no other node reads prob */
    FUSE_LINEAR_GRAD_ACT, /* linear_grad_x + activation_grad, from what linear + activation saved */
    FUSE_NORM,            /* batch norm + sum + relu; and its gradient computes that of the relu */
    FUSE_FOLD,            /* conv2d whose filter and bias batch_norm_fold makes, with its `add` */
    FUSE_UNPACK,          /* unpack + linear or linear_grad_x, of a large weight */
    FUSE_ADDS, /* the node's kernel does all of node.adds; else backend.c adds behind it */
};

/* A device's two queues.  Work in one lane is done in order; only marks order the two lanes. */
enum backend_lane {
    LANE_MAIN, /* kernels, recordings, and every call that names no lane */
    LANE_COPY, /* batches on their way in, while LANE_MAIN computes */
};

enum { BACKEND_MARKS = 16 };

/* The functions that a device adds; a device is a backend whose memory the host cannot touch.  From
 * `zero` on they only enqueue work or ask about it; they neither allocate nor wait. */
struct backend_device_ops {
    /* Pinned memory of the host.  Kernels, `put`, `copy`, copy_in and copy_out use it like the
     * device's own memory; kernels reach it over the bus. */
    int (*host_alloc)(struct backend *b, size_t n_bytes, const char *what, void **out,
                      struct err *err);
    void (*host_free)(struct backend *b, void *p);
    int (*room)(struct backend *b, size_t *n_bytes, struct err *err); /* memory still free */
    int (*zero)(struct backend *b, void *p, size_t n_bytes, struct err *err);
    int (*copy)(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err);
    int (*put)(struct backend *b, enum backend_lane lane, void *to, const void *from,
               size_t n_bytes, struct err *err);
    int (*mark)(struct backend *b, enum backend_lane lane, int mark, struct err *err);
    int (*follow)(struct backend *b, enum backend_lane lane, int mark, struct err *err);
    int (*passed)(struct backend *b, int mark, struct err *err);
    int (*stopwatch)(struct backend *b, int64_t watch[2], int stops, struct err *err);
};

struct backend_ops {
    const char *name; /* "cpu" */
    int (*alloc)(struct backend *b, size_t n_bytes, const char *what, void **out, struct err *err);
    void (*free)(struct backend *b, void *p);
    int (*copy_in)(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err);
    int (*copy_out)(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err);
    int (*can_fuse)(struct backend *b, const struct graph *g, const struct node *n, enum fusion f,
                    enum activation act);
    int (*make_kernel)(struct backend *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err);
    int (*sync)(struct backend *b, struct err *err); /* NULL: run is synchronous */
    /* The number of threads of kernels that are made from now on; NULL: there are none to set. */
    void (*set_threads)(struct backend *b, int n_threads);
    /* Optional, these five all or none: run kernels once to record them, then repeat all of them by
     * one launch, as often as wanted.  Between record_begin and record_end kernels are recorded but
     * not executed, and only kernels and the enqueuing calls below may be used.  record_end ends
     * the recording on failure, too; with out NULL it drops what was recorded. */
    int (*record_begin)(struct backend *b, struct err *err);
    int (*record_end)(struct backend *b, struct recording **out, struct err *err);
    int (*launch)(struct backend *b, struct recording *r, struct err *err); /* enqueues */
    void (*recording_free)(struct backend *b, struct recording *r);
    int (*poll)(struct backend *b, struct err *err); /* 1: some work is not done yet; 0: all done */
    const struct backend_device_ops *device;         /* NULL: the memory is the host's */
    void (*close)(struct backend *b);
};

struct backend { /* a backend's own struct starts with this */
    const struct backend_ops *ops;
};

void backend_init(struct backend *b, const struct backend_ops *ops); /* asserts required slots */

/* can_fuse for the fusions that both backends do.  Each backend decides about FUSE_LINEAR_GRAD_ACT,
 * FUSE_FOLD, FUSE_UNPACK and FUSE_ADDS itself; here the answer is 0. */
int backend_usual_fusion(const struct node *n, enum fusion f, enum activation act);

/* The embedded backend.  n_threads >= 1 is the number of oneDNN's OpenMP threads.  OpenMP keeps
 * that number for each calling thread: open the backend on the thread that will run kernels. */
int backend_open_cpu(int n_threads, struct backend **out, struct err *err);
/* The way in which this machine's CPU computes in BF16, as a part of a sentence. */
const char *backend_cpu_bf16(void);
/* The libraries by which the embedded backend computes: "oneDNN 2.6.0, glibc 2.36". */
void backend_cpu_libraries(char *out, size_t n_out);

int backend_alloc(struct backend *b, size_t n_bytes, const char *what, void **out, struct err *err);
void backend_free(struct backend *b, void *p);
int backend_copy_in(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err);
int backend_copy_out(struct backend *b, void *to, const void *from, size_t n_bytes,
                     struct err *err);
int backend_can_fuse(struct backend *b, const struct graph *g, const struct node *n, enum fusion f,
                     enum activation act);
int backend_make_kernel(struct backend *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err);
int backend_sync(struct backend *b, struct err *err);
int backend_can_record(const struct backend *b); /* whether the next five may be called */
int backend_record_begin(struct backend *b, struct err *err);
int backend_record_end(struct backend *b, struct recording **out, struct err *err);
int backend_launch(struct backend *b, struct recording *r, struct err *err);
void backend_recording_free(struct backend *b, struct recording *r); /* NULL is fine */
int backend_poll(struct backend *b, struct err *err); /* of LANE_MAIN; 0: all of it is done */
/* Kernels that exist already keep the order of their sums, on at most n_threads from now on. */
void backend_set_threads(struct backend *b, int n_threads);
void backend_close(struct backend *b); /* NULL is fine */

/* A device differs from the CPU in two properties, each with a question of its own. */
int backend_queues(const struct backend *b);   /* a call may return before its work is done */
int backend_is_apart(const struct backend *b); /* the host cannot touch its memory */

/* The work of a step besides its kernels.  A device enqueues it; the CPU does it at once.  zero,
 * copy, put and stopwatch may be recorded. */
/* Memory of the host that counts as the backend's: kernels and all copies take it.  Zeroed. */
int backend_host_alloc(struct backend *b, size_t n_bytes, const char *what, void **out,
                       struct err *err);
void backend_host_free(struct backend *b, void *p); /* NULL is fine */
/* For a device only: how much backend_alloc could give, if no other process takes it first. */
int backend_room(struct backend *b, size_t *n_bytes, struct err *err);
int backend_zero(struct backend *b, void *p, size_t n_bytes, struct err *err);
/* The same before a run begins: the CPU's memory is not taken before it is used (alloc_clear). */
int backend_zero_start(struct backend *b, void *p, size_t n_bytes, struct err *err);
int backend_copy(struct backend *b, void *to, const void *from, size_t n_bytes,
                 struct err *err); /* within the backend's memory, not overlapping */
/* Copies from backend_host_alloc's memory, which must not change until the copy is done. */
int backend_put(struct backend *b, enum backend_lane lane, void *to, const void *from,
                size_t n_bytes, struct err *err);

/* Set a mark (0 .. BACKEND_MARKS - 1) behind all work that the lane was given so far.  The mark is
 * passed when that work is done. */
int backend_mark(struct backend *b, enum backend_lane lane, int mark, struct err *err);
/* All work that `lane` is given from now on waits until the mark is passed.  A mark that was never
 * set counts as passed. */
int backend_follow(struct backend *b, enum backend_lane lane, int mark, struct err *err);
int backend_passed(struct backend *b, int mark, struct err *err); /* 1: not yet; 0: passed */

/* For a device only: start or stop a watch in the device's memory.  The watch starts or stops when
 * all work queued before is done; a stop adds the nanoseconds since the start to watch[1].  Zero
 * both numbers before the first start. */
int backend_stopwatch(struct backend *b, int64_t watch[2], int stops, struct err *err);

#endif
