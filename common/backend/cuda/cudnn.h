/* cudnn - operation graphs and execution plans, over cuDNN's backend descriptors.
 *
 * A caller describes one graph: tensors, then operations on them.  cudnn_plan_for() asks the
 * heuristics, refuses engines that break the rules below, and takes the first that finalises.
 * Equal graphs share one plan (last batch, validation, equal layers).
 *
 *     struct cudnn_graph *g = cudnn_graph_new(d, "conv1 of [64,28,28,1]");
 *     int x = cudnn_image(g, DTYPE_F32, &x_shape), w = cudnn_filter(...), y = cudnn_image(...);
 *     cudnn_convolve(g, CUDNN_PASS_FORWARD, &geometry, x, w, y);
 *     rc = cudnn_plan_for(g, &rules, &plan, err);     (takes g; reports the first failure so far)
 *     rc = cudnn_pack_new(plan, (void *const[]){px, pw, py}, workspace, &pack, err);
 *     rc = cudnn_pack_run(d, pack, err);              (queues on the handle's stream)
 *
 * With rules.autotune a live device times the first CUDNN_CANDIDATES that finalise and takes the
 * fastest.  A device with a cache restores the plan that it chose before, by rules and graph,
 * without asking the heuristics.  A kept plan that cuDNN refuses, or that breaks the rules, is
 * ignored.
 *
 * Rules: float32 stays float32: engines that round inputs (TF32) are refused unless allowed.
 * Engines that may give different bits on the same input are always refused, since a resumed job
 * must repeat itself.  FFT, large Winograd tiles and reductions in reduced precision are refused
 * for float32, since they are too coarse.
 *
 * A device is a live GPU (a handle), or a GPU's description as text.  With a description, plans can
 * be built on a machine without a GPU, but not run; tests/cudnn does that for all shapes of the
 * models.
 *
 * Life:    a plan lives as long as its device; a pack belongs to the caller; free packs first.
 * Threads: one per device.
 * Errors:  ERR_UNSUPPORTED (no engine within the rules; the message says for which graph, how many
 *          were tried, and why the last one failed), ERR_DEVICE (with cuDNN's own text).
 *
 * This has not run on a GPU yet: plans were built from a description of an H200, but none was
 * executed. */
#ifndef BACKEND_CUDA_CUDNN_H
#define BACKEND_CUDA_CUDNN_H

#include <stddef.h>
#include <stdint.h>

#include <cudnn.h>

#include "backend/cuda/plan_cache.h"
#include "base/err.h"
#include "base/hash.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

struct cudnn_device; /* opaque */

/* `handle` is borrowed; packs run on its stream.  `gpu` names the model, for the plans' keys. */
int cudnn_device_live(cudnnHandle_t handle, const char *gpu, struct cudnn_device **out,
                      struct err *err);
/* `properties` is the JSON text of a CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR. */
int cudnn_device_described(const char *properties, const char *gpu, struct cudnn_device **out,
                           struct err *err);
void cudnn_device_free(struct cudnn_device *d); /* frees its plans, too; NULL is fine */

struct cudnn_plan;

/* Measures the time of a run of p, in microseconds; tensor i has n_bytes[i] (0: virtual). */
typedef int cudnn_timer(void *arg, struct cudnn_device *d, const struct cudnn_plan *p,
                        const size_t *n_bytes, double *us, struct err *err);

/* Sets the cache that keeps plans and the timer, both borrowed; NULL: plans are not kept, or not
 * timed.  Call it before any plan is made. */
void cudnn_device_use(struct cudnn_device *d, struct plan_cache *cache, cudnn_timer *timer,
                      void *arg);

struct cudnn_rules {
    size_t max_workspace;
    int allow_tf32; /* float32 products may round their inputs to TF32 */
    int autotune;   /* with a timer: take the fastest of the first CUDNN_CANDIDATES */
};

enum { CUDNN_CANDIDATES = 8, CUDNN_MAX_TENSORS = 40 };

enum cudnn_pass { CUDNN_PASS_FORWARD, CUDNN_PASS_GRAD_X, CUDNN_PASS_GRAD_W };

struct cudnn_window { /* [0] rows, [1] columns */
    int64_t stride[2], pad[2], dilation[2];
};

struct cudnn_graph;                                                            /* opaque */
struct cudnn_graph *cudnn_graph_new(struct cudnn_device *d, const char *what); /* copies `what` */
void cudnn_graph_free(struct cudnn_graph *g);                                  /* NULL is fine */

/* Tensors get the numbers 0, 1, ... as they are made; a pack's pointers are in that order. */
int cudnn_image(struct cudnn_graph *g, enum dtype t, const struct shape *nhwc);
int cudnn_filter(struct cudnn_graph *g, enum dtype t, const int64_t kcrs[4]); /* memory K,R,S,C */
int cudnn_channels(struct cudnn_graph *g, enum dtype t, int64_t c);           /* [c], as a bias */
int cudnn_inner(struct cudnn_graph *g, const struct shape *nhwc); /* virtual, F32: no memory */

/* x, w and y are the tensors or their gradients, as the pass says.  Sums are in float32.  With
 * `adds` the result is added to what its tensor holds (beta = 1). */
void cudnn_convolve(struct cudnn_graph *g, enum cudnn_pass pass, const struct cudnn_window *c,
                    int x, int w, int y, int adds);

/* A tensor of any layout; strides count elements.  An inner one is virtual: it needs no memory. */
struct cudnn_tensor {
    cudnnDataType_t type;
    int64_t dim[4], stride[4];
};
int cudnn_tensor(struct cudnn_graph *g, const struct cudnn_tensor *t, int is_inner);
int cudnn_number(struct cudnn_graph *g, float value); /* F32 [1,1,1,1]; a pack needs no pointer */

/* c = a b, a product for each index of the first two dimensions.  Sums are in float32. */
void cudnn_matmul(struct cudnn_graph *g, int a, int b, int c);
/* y = mode(x, b), element by element in float32, where b is broadcast; b < 0: y = mode(x).  Relu
 * is asked to keep a NaN, but not every engine claims to do so. */
void cudnn_apply(struct cudnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, int y);
/* y = x reduced by `op` over the dimensions that y has only once. */
void cudnn_reduce(struct cudnn_graph *g, cudnnReduceTensorOp_t op, int x, int y);
/* y = x, whose elements y's dimensions and strides name in another order. */
void cudnn_reshape(struct cudnn_graph *g, int x, int y);
/* INT32 y = each element's index in x's dimension `axis`. */
void cudnn_index(struct cudnn_graph *g, int64_t axis, int x, int y);
/* BOOLEAN y = mode(x, b), a comparison. */
void cudnn_compare(struct cudnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, int y);
/* y = x where `mask` is true, b elsewhere. */
void cudnn_select(struct cudnn_graph *g, int mask, int x, int b, int y);

struct cudnn_plan { /* read only */
    size_t workspace;
    int64_t engine;               /* the engine's global index */
    int uses_tensor_cores;        /* numerical note */
    int of_last_resort;           /* note STRICT_NAN_PROP: a slow engine that computes any graph */
    int compiled_at_run_time;     /* behaviour note: needs libnvrtc */
    int is_restored;              /* comes from the cache */
    int n_tensors;                /* number of the graph's tensors, virtual ones included */
    struct hash128 graph;         /* hash of all that was described, without names */
    cudnnBackendDescriptor_t raw; /* the execution plan */
    const int64_t *uid;           /* unique id of tensor i; -1 if it is virtual */
    float *const *number;         /* tensor i, if it is a number; else NULL */
};

/* The text by which the cache tells plans apart: cuDNN version, GPU, rules, graph. */
enum { CUDNN_KEY_LEN = 256 };
void cudnn_plan_key(const struct cudnn_device *d, struct hash128 graph,
                    const struct cudnn_rules *rules, char out[CUDNN_KEY_LEN]);

/* Takes g.  *out belongs to the device. */
int cudnn_plan_for(struct cudnn_graph *g, const struct cudnn_rules *rules,
                   const struct cudnn_plan **out, struct err *err);

/* A pack is a plan with addresses: ptr[i] for tensor i (not read if it is virtual or a number) and
 * a workspace of p->workspace bytes.  All are 16-byte aligned. */
struct cudnn_pack;
int cudnn_pack_new(const struct cudnn_plan *p, void *const *ptr, void *workspace,
                   struct cudnn_pack **out, struct err *err);
int cudnn_pack_run(struct cudnn_device *d, const struct cudnn_pack *pack, struct err *err);
void cudnn_pack_free(struct cudnn_pack *pack); /* NULL is fine */

#endif
