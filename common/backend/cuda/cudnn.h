/* cudnn - operation graphs and execution plans, over cuDNN's backend descriptors.
 *
 * A caller describes one graph: tensors, then operations on them; plan_for() asks the heuristics,
 * refuses engines that break the rules below, and takes the first that finalises.  Equal graphs
 * share one plan (last batch, validation, equal layers).
 *
 *     struct cudnn_graph *g = cudnn_graph_new(d, "conv1 of [64,28,28,1]");
 *     int x = cudnn_image(g, DTYPE_F32, &x_shape), w = cudnn_filter(...), y = cudnn_image(...);
 *     cudnn_convolve(g, CUDNN_PASS_FORWARD, &geometry, x, w, y);
 *     rc = cudnn_plan_for(g, &rules, &plan, err);     (takes g; the first mistake is told here)
 *     rc = cudnn_pack_new(plan, (void *const[]){px, pw, py}, workspace, &pack, err);
 *     rc = cudnn_pack_run(d, pack, err);              (queues on the handle's stream)
 *
 * With rules.autotune a live device times the first CUDNN_CANDIDATES that finalise and takes the
 * fastest.  A device with a cache restores the plan that it chose before, by rules and graph,
 * without asking the heuristics; a kept plan that cuDNN refuses, or that breaks the rules, counts
 * as none.
 *
 * Rules: float32 stays float32: engines that round inputs (TF32) are refused unless allowed.
 * Engines that may give different bits on the same input are always refused: a resumed job must
 * repeat itself.  FFT and large Winograd tiles are refused for float32 as too coarse.
 *
 * A device is a live GPU (a handle), or the description of one, as text: then plans can be built on
 * a machine without a GPU, but not run.  tests/cudnn does that for all shapes of the models.
 *
 * Life:    a plan lives as long as its device; a pack is the caller's; free packs first.
 * Threads: one per device.
 * Errors:  ERR_UNSUPPORTED (no engine within the rules: which graph, how many tried, why the last
 *          failed), ERR_DEVICE (cuDNN's own text).
 * Never ran on a GPU so far: plans were built from a description of an H200, none was executed. */
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

/* handle: borrowed; its stream is where packs run.  gpu names the model, for the plans' keys. */
int cudnn_device_live(cudnnHandle_t handle, const char *gpu, struct cudnn_device **out,
                      struct err *err);
/* properties: the JSON text of a CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR. */
int cudnn_device_described(const char *properties, const char *gpu, struct cudnn_device **out,
                           struct err *err);
void cudnn_device_free(struct cudnn_device *d); /* and its plans; NULL is fine */

struct cudnn_plan;

/* How long a run of p takes, in microseconds, tensor i having n_bytes[i] (0: virtual). */
typedef int cudnn_timer(void *arg, struct cudnn_device *d, const struct cudnn_plan *p,
                        const size_t *n_bytes, double *us, struct err *err);

/* Where plans are kept, and how they are timed: borrowed, NULL: not.  Before any plan is made. */
void cudnn_device_use(struct cudnn_device *d, struct plan_cache *cache, cudnn_timer *timer,
                      void *arg);

struct cudnn_rules {
    size_t max_workspace;
    int allow_tf32; /* float32 products may round their inputs to TF32 */
    int autotune;   /* the fastest of the first CUDNN_CANDIDATES, where there is a timer */
};

enum { CUDNN_CANDIDATES = 8 };

enum cudnn_pass { CUDNN_PASS_FORWARD, CUDNN_PASS_GRAD_X, CUDNN_PASS_GRAD_W };

struct cudnn_window { /* [0] rows, [1] columns */
    int64_t stride[2], pad[2], dilation[2];
};

struct cudnn_graph;                                                            /* opaque */
struct cudnn_graph *cudnn_graph_new(struct cudnn_device *d, const char *what); /* what is copied */
void cudnn_graph_free(struct cudnn_graph *g);                                  /* NULL is fine */

/* Tensors, numbered 0, 1, ... as they are made; the pointers of a pack stand in that order. */
int cudnn_image(struct cudnn_graph *g, enum dtype t, const struct shape *nhwc);
int cudnn_filter(struct cudnn_graph *g, enum dtype t, const int64_t kcrs[4]); /* memory K,R,S,C */
int cudnn_channels(struct cudnn_graph *g, enum dtype t, int64_t c);           /* one a channel */
int cudnn_inner(struct cudnn_graph *g, const struct shape *nhwc); /* virtual, F32: no memory */

/* x, w, y: the tensor or its gradient, as the pass says.  Sums in float32. */
void cudnn_convolve(struct cudnn_graph *g, enum cudnn_pass pass, const struct cudnn_window *c,
                    int x, int w, int y);
/* y = x + b, b broadcast. */
void cudnn_add(struct cudnn_graph *g, int x, int b, int y);
/* y = mode(x), a forward activation.  relu is asked to keep a NaN, which not every engine says it
 * does. */
void cudnn_activate(struct cudnn_graph *g, cudnnPointwiseMode_t mode, int x, int y);

struct cudnn_plan { /* read only */
    size_t workspace;
    int64_t engine;               /* its global index */
    int uses_tensor_cores;        /* numerical note */
    int of_last_resort;           /* note STRICT_NAN_PROP: an engine for any graph, slow */
    int compiled_at_run_time;     /* behaviour note: needs libnvrtc */
    int is_restored;              /* from the cache */
    int n_tensors;                /* of the graph, virtual ones included */
    struct hash128 graph;         /* of all that was described, names excluded */
    cudnnBackendDescriptor_t raw; /* the execution plan */
    const int64_t *uid;           /* of tensor i, -1 for a virtual one */
};

/* The text that tells plans apart on disk: cuDNN version, GPU, rules, graph. */
enum { CUDNN_KEY_LEN = 256 };
void cudnn_plan_key(const struct cudnn_device *d, struct hash128 graph,
                    const struct cudnn_rules *rules, char out[CUDNN_KEY_LEN]);

/* Takes g.  *out stays the device's. */
int cudnn_plan_for(struct cudnn_graph *g, const struct cudnn_rules *rules,
                   const struct cudnn_plan **out, struct err *err);

/* A plan with addresses: ptr[i] for tensor i (NULL for virtual ones), workspace of p->workspace
 * bytes, all 16-byte aligned. */
struct cudnn_pack;
int cudnn_pack_new(const struct cudnn_plan *p, void *const *ptr, void *workspace,
                   struct cudnn_pack **out, struct err *err);
int cudnn_pack_run(struct cudnn_device *d, const struct cudnn_pack *pack, struct err *err);
void cudnn_pack_free(struct cudnn_pack *pack); /* NULL is fine */

#endif
