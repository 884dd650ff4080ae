/* backend - a place where kernels run: the cpu (oneDNN), or a GPU (a plugin).
 *
 * A backend gives memory, makes a kernel for a node, and runs kernels in order.  program/ decides
 * what to run and where everything lies; a backend decides only how.
 *
 * Life of a kernel: make (choose the algorithm, say how much scratch it needs) -> bind (addresses,
 * once) -> run (as often as wanted: allocates nothing) -> free.
 * Threads: one engine thread per backend; kernels may use the backend's own threads inside run.
 * Errors:  ERR_UNSUPPORTED (no such kernel here), ERR_NOMEM, ERR_DEVICE (library text added). */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stddef.h>

#include "base/err.h"
#include "ir/graph.h"
#include "op/op.h"

struct backend;
struct kernel;
struct recording; /* a backend's own */

/* The alignment that GPU libraries demand of a workspace, which is part of a kernel's scratch. */
enum { BACKEND_SCRATCH_ALIGN = 256 };

struct kernel_ops {
    /* Addresses of in[] and out[] (NULL where the node has none; at least 16-byte aligned) and of
     * `scratch_bytes` of scratch, BACKEND_SCRATCH_ALIGN-aligned, valid until free; scratch is
     * shared with other kernels between runs. */
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
    FUSE_BIAS,            /* conv2d or linear + bias; and db from grad_w */
    FUSE_ACTIVATION,      /* conv2d or linear (+ bias) + activation */
    FUSE_FLATTEN,         /* flatten + linear, and the gradients */
    FUSE_POOL_GRAD_ACT,   /* activation_grad after pool2d_grad in one pass */
    FUSE_LOSS_GRAD,       /* softmax_xent and its gradient, where nobody else reads prob */
    FUSE_LINEAR_GRAD_ACT, /* activation_grad after linear_grad_x, by what linear + act left */
};

/* A device's two queues: what one is given is done in order; only marks order the two. */
enum backend_lane {
    LANE_MAIN, /* kernels, recordings, and every call that names no lane */
    LANE_COPY, /* batches on their way in, while LANE_MAIN computes */
};

enum { BACKEND_MARKS = 16 };

/* The functions that a device adds: a backend whose memory the host cannot touch.  They only
 * enqueue work, and neither allocate nor wait. */
struct backend_device_ops {
    /* Memory of the host that put and kernels can work with (pinned). */
    int (*host_alloc)(struct backend *b, size_t n_bytes, const char *what, void **out,
                      struct err *err);
    void (*host_free)(struct backend *b, void *p);
    int (*room)(struct backend *b, size_t *n_bytes, struct err *err); /* not allocated yet */
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
    /* How many threads kernels made from now on use; NULL: not this backend's business. */
    void (*set_threads)(struct backend *b, int n_threads);
    /* Optional, all or none: run kernels once to record them, then do all of them by one launch, as
     * often as wanted.  Between record_begin and record_end nothing is done, and only kernels may
     * be run.  record_end ends it on failure, too; out NULL: forget what was recorded. */
    int (*record_begin)(struct backend *b, struct err *err);
    int (*record_end)(struct backend *b, struct recording **out, struct err *err);
    int (*launch)(struct backend *b, struct recording *r, struct err *err); /* enqueues */
    void (*recording_free)(struct backend *b, struct recording *r);
    int (*poll)(struct backend *b, struct err *err); /* 1: some work is not done; 0: all is */
    const struct backend_device_ops *device;         /* NULL: its memory is the host's */
    void (*close)(struct backend *b);
};

struct backend { /* a backend's own struct starts with this */
    const struct backend_ops *ops;
};

void backend_init(struct backend *b, const struct backend_ops *ops); /* asserts required slots */

/* can_fuse for the fusions that all of our backends do.  FUSE_LINEAR_GRAD_ACT is a choice of each.
 */
int backend_usual_fusion(const struct node *n, enum fusion f, enum activation act);

/* The embedded backend.  n_threads >= 1: oneDNN's OpenMP threads, set for the calling thread (the
 * engine's): open it on the thread that will run kernels. */
int backend_open_cpu(int n_threads, struct backend **out, struct err *err);

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
int backend_can_record(const struct backend *b); /* whether these five may be called */
int backend_record_begin(struct backend *b, struct err *err);
int backend_record_end(struct backend *b, struct recording **out, struct err *err);
int backend_launch(struct backend *b, struct recording *r, struct err *err);
void backend_recording_free(struct backend *b, struct recording *r); /* NULL is fine */
int backend_poll(struct backend *b, struct err *err);                /* of LANE_MAIN */
/* Kernels made before keep the order of their sums, on as many threads as now. */
void backend_set_threads(struct backend *b, int n_threads);
void backend_close(struct backend *b); /* NULL is fine */

/* The work of a step besides its kernels.  A device enqueues it; another backend does it at once.
 * zero, copy, put and stopwatch may be recorded. */
int backend_is_device(const struct backend *b);
int backend_host_alloc(struct backend *b, size_t n_bytes, const char *what, void **out,
                       struct err *err);            /* zeroed */
void backend_host_free(struct backend *b, void *p); /* NULL is fine */
/* Of a device: how much backend_alloc could give, others on the device aside. */
int backend_room(struct backend *b, size_t *n_bytes, struct err *err);
int backend_zero(struct backend *b, void *p, size_t n_bytes, struct err *err);
int backend_copy(struct backend *b, void *to, const void *from, size_t n_bytes,
                 struct err *err); /* both the backend's, not overlapping */
/* From backend_host_alloc's memory, which must be left alone until the copy is done. */
int backend_put(struct backend *b, enum backend_lane lane, void *to, const void *from,
                size_t n_bytes, struct err *err);

/* A mark, 0 .. BACKEND_MARKS - 1, stands behind what its lane had been given when last set. */
int backend_mark(struct backend *b, enum backend_lane lane, int mark, struct err *err);
/* All work that `lane` is given from now on waits until the mark is passed.  A mark that was never
 * set counts as passed. */
int backend_follow(struct backend *b, enum backend_lane lane, int mark, struct err *err);
int backend_passed(struct backend *b, int mark, struct err *err); /* 1: not yet; 0: passed */

/* Of a device: start, or stop, a watch in its memory when what was queued before is done: watch[1]
 * grows by the ns between the two.  Zero both before the first. */
int backend_stopwatch(struct backend *b, int64_t watch[2], int stops, struct err *err);

#endif
