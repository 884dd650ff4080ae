/* backend - the GPU backend's memory, its waiting copies, its recordings and its table of kernels.
 * lanes.c has the other work that a step enqueues.
 *
 * copy_in and copy_out go through two slots of pinned memory: while one slot's copy is under way,
 * the other slot is filled or emptied.  copy_in returns when the last piece is in a slot; then the
 * caller may change its memory, but the piece may not have arrived yet.  Work that is enqueued
 * later sees all of it.  copy_out waits for its bytes.
 *
 * A recording is a CUDA graph.  Its nodes keep the priority of the stream that they were recorded
 * on, which matters for the all-reduces.  The capture belongs to the thread (ThreadLocal), so
 * NCCL's threads may allocate meanwhile.  This thread's waiting copies and allocations would spoil
 * the capture, so assertions forbid them.
 *
 * This has not run on a GPU yet: tests/cudasim runs it over a fake runtime. */
#include "backend/cuda/cuda.h"

#include <cuda_runtime_api.h>

#include <stdlib.h>
#include <string.h>

#include "backend/cuda/own.h"
#include "backend/cuda/plan_cache.h"
#include "base/alloc.h"
#include "base/util.h"

enum { N_SLOTS = 2, SLOT_BYTES = 4 << 20, BLOCKS_PER_SM = 8, DEFAULT_WORKSPACE = 256 << 20 };

struct slot {
    void *host;       /* pinned, SLOT_BYTES */
    cudaEvent_t idle; /* recorded after the copy that uses the slot */
};

struct gpu {
    struct cuda cuda;
    struct slot slot[N_SLOTS];
};

static const struct backend_ops cuda_ops;

static struct gpu *to_gpu(struct backend *b)
{
    ASSERT(b->ops == &cuda_ops);
    return container_of(b, struct gpu, cuda.base);
}

static int cuda_alloc(struct backend *b, size_t n_bytes, const char *what, void **out,
                      struct err *err)
{
    struct gpu *gpu = to_gpu(b);
    void *p = NULL;
    cudaError_t st;

    ASSERT(!gpu->cuda.is_recording);
    st = cudaMalloc(&p, n_bytes ? n_bytes : 1);
    if (st == cudaErrorMemoryAllocation)
        return cuda_no_memory(n_bytes, what, err);
    if (st == cudaSuccess)
        st = cudaMemsetAsync(p, 0, n_bytes, gpu->cuda.stream);
    if (st != cudaSuccess) {
        (void)cudaFree(p);
        return cuda_check((int)st, "allocate GPU memory", err);
    }
    *out = p;
    return 0;
}

static void cuda_free(struct backend *b, void *p)
{
    (void)cudaStreamSynchronize(to_gpu(b)->cuda.stream); /* kernels may still use it */
    (void)cudaFree(p);
}

static size_t cuda_backend_piece(size_t at, size_t n_bytes)
{
    return n_bytes - at < SLOT_BYTES ? n_bytes - at : SLOT_BYTES;
}

static int cuda_copy_in(struct backend *b, void *to, const void *from, size_t n_bytes,
                        struct err *err)
{
    struct gpu *gpu = to_gpu(b);
    cudaError_t st = cudaSuccess;

    ASSERT(!gpu->cuda.is_recording);
    for (size_t at = 0, i = 0; st == cudaSuccess && at < n_bytes; at += SLOT_BYTES, i++) {
        struct slot *s = &gpu->slot[i % N_SLOTS];
        const size_t len = cuda_backend_piece(at, n_bytes);

        st = cudaEventSynchronize(s->idle);
        if (st != cudaSuccess)
            break;
        memcpy(s->host, (const char *)from + at, len);
        st = cudaMemcpyAsync((char *)to + at, s->host, len, cudaMemcpyDefault, gpu->cuda.stream);
        if (st == cudaSuccess)
            st = cudaEventRecord(s->idle, gpu->cuda.stream);
    }
    return cuda_check((int)st, "copy to the GPU", err);
}

/* Queue the copy of the piece that starts at `at` into its slot. */
static cudaError_t cuda_backend_fetch(struct gpu *gpu, const void *from, size_t at, size_t n_bytes)
{
    struct slot *s = &gpu->slot[at / SLOT_BYTES % N_SLOTS];
    cudaError_t st =
        cudaMemcpyAsync(s->host, (const char *)from + at, cuda_backend_piece(at, n_bytes),
                        cudaMemcpyDefault, gpu->cuda.stream);

    return st == cudaSuccess ? cudaEventRecord(s->idle, gpu->cuda.stream) : st;
}

static int cuda_copy_out(struct backend *b, void *to, const void *from, size_t n_bytes,
                         struct err *err)
{
    struct gpu *gpu = to_gpu(b);
    cudaError_t st;

    ASSERT(!gpu->cuda.is_recording);
    st = cuda_backend_fetch(gpu, from, 0, n_bytes);
    for (size_t at = 0; st == cudaSuccess && at < n_bytes; at += SLOT_BYTES) {
        const struct slot *s = &gpu->slot[at / SLOT_BYTES % N_SLOTS];

        if (at + SLOT_BYTES < n_bytes)
            st = cuda_backend_fetch(gpu, from, at + SLOT_BYTES, n_bytes);
        if (st == cudaSuccess)
            st = cudaEventSynchronize(s->idle);
        if (st == cudaSuccess)
            memcpy((char *)to + at, s->host, cuda_backend_piece(at, n_bytes));
    }
    return cuda_check((int)st, "copy from the GPU", err);
}

/* 1: the node's kernel adds to its outputs by itself.  These are the kernels that write parameters'
 * gradients by a grad_array (device.cuh), and those of the libraries.  backend.c wraps the others,
 * which make gradients of activations, too. */
static int cuda_backend_adds_itself(const struct node *n)
{
    switch (n->op) {
    case OP_cast:
    case OP_bias_grad:
    case OP_embedding_grad:
    case OP_conv2d_grad_w:
    case OP_linear_grad_w:
        return 1;
    case OP_batch_norm_grad_stats:
        return !(n->adds & 1u << BATCH_NORM_GRAD_STATS_GSUMS);
    case OP_layer_norm_grad:
        return !(n->adds & 1u << LAYER_NORM_GRAD_DX);
    case OP_rms_norm_grad:
        return !(n->adds & 1u << RMS_NORM_GRAD_DX);
    case OP_group_norm_grad:
        return !(n->adds & 1u << GROUP_NORM_GRAD_DX);
    case OP_class_token_grad:
        return !(n->adds & 1u << CLASS_TOKEN_GRAD_DX);
    default:
        return 0;
    }
}

/* A fusion is done by a library's tail, or by one of our passes after the library's call (conv2d.c,
 * linear.c), or by our own kernel (pool2d.cu, softmax_xent.cu). */
static int cuda_can_fuse(struct backend *b, const struct graph *g, const struct node *n,
                         enum fusion f, enum activation act)
{
    (void)b, (void)g;
    if (f == FUSE_LINEAR_GRAD_ACT)
        return n->op == OP_linear || n->op == OP_linear_grad_x;
    if (f == FUSE_FOLD) /* the plans and passes of conv2d.c add no image */
        return n->op == OP_conv2d && !cuda_has_in(n, CONV2D_ADD);
    if (f == FUSE_ADDS)
        return cuda_backend_adds_itself(n);
    if (f == FUSE_BIAS && n->op == OP_linear_grad_w && n->adds)
        return 0; /* cuBLASLt has no tail for db if the product adds */
    return backend_usual_fusion(n, f, act);
}

/* program/ never asks for these kernels: a reshape only renames memory, and the engine does an
 * all-reduce between kernels. */
static int cuda_backend_no_kernel(const struct node *n, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED, "%s has no kernel", op_get(n->op)->name);
}

int cuda_make_reshape(struct cuda *b, const struct graph *g, const struct node *n,
                      struct kernel **out, struct err *err)
{
    (void)b, (void)g, (void)out;
    return cuda_backend_no_kernel(n, err);
}

int cuda_make_allreduce(struct cuda *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    (void)b, (void)g, (void)out;
    return cuda_backend_no_kernel(n, err);
}

typedef int make_fn(struct cuda *b, const struct graph *g, const struct node *n,
                    struct kernel **out, struct err *err);

static make_fn *const makers[OP_COUNT] = {
#define X(name) [OP_##name] = cuda_make_##name,
    OP_LIST(X)
#undef X
};

/* 1 if an input has no rows and the operator then computes nothing. */
static int cuda_backend_is_idle(const struct graph *g, const struct node *n)
{
    int empty = 0;

    for (int i = 0; i < n->n_in; i++)
        empty |= cuda_has_in(n, i) && shape_elements(cuda_in(g, n, i)) == 0;
    return empty && (op_get(n->op)->flags & (OP_ROWS | OP_INPLACE));
}

static int cuda_make_kernel(struct backend *b, const struct graph *g, const struct node *n,
                            struct kernel **out, struct err *err)
{
    struct gpu *gpu = to_gpu(b);

    if (cuda_backend_is_idle(g, n))
        return own_new_zero(&gpu->cuda, g, n, out, err);
    return makers[n->op](&gpu->cuda, g, n, out, err);
}

static int cuda_sync(struct backend *b, struct err *err)
{
    return cuda_check((int)cudaStreamSynchronize(to_gpu(b)->cuda.stream), "finish work on the GPU",
                      err);
}

static int cuda_record_begin(struct backend *b, struct err *err)
{
    struct gpu *gpu = to_gpu(b);
    int rc;

    ASSERT(!gpu->cuda.is_recording);
    rc = cuda_check((int)cudaStreamBeginCapture(gpu->cuda.stream, cudaStreamCaptureModeThreadLocal),
                    "begin to record a step", err);
    gpu->cuda.is_recording = rc == 0;
    return rc;
}

static int cuda_record_end(struct backend *b, struct recording **out, struct err *err)
{
    struct gpu *gpu = to_gpu(b);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t st;

    ASSERT(gpu->cuda.is_recording);
    gpu->cuda.is_recording = 0;
    st = cudaStreamEndCapture(gpu->cuda.stream, &graph);
    if (st == cudaSuccess && out)
        st = cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (st != cudaSuccess)
        return cuda_check((int)st, "record a step", err);
    if (out)
        *out = (struct recording *)exec;
    return 0;
}

static int cuda_launch(struct backend *b, struct recording *r, struct err *err)
{
    return cuda_check((int)cudaGraphLaunch((cudaGraphExec_t)r, to_gpu(b)->cuda.stream),
                      "launch a recorded step", err);
}

static void cuda_recording_free(struct backend *b, struct recording *r)
{
    (void)cudaStreamSynchronize(to_gpu(b)->cuda.stream); /* a launch of r may be under way */
    (void)cudaGraphExecDestroy((cudaGraphExec_t)r);
}

static int cuda_poll(struct backend *b, struct err *err)
{
    const cudaError_t st = cudaStreamQuery(to_gpu(b)->cuda.stream);

    if (st == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* no error, so the next check must not see it */
        return 1;
    }
    return cuda_check((int)st, "finish work on the GPU", err);
}

static void close_library(struct cuda_library *lib)
{
    if (lib->handle)
        lib->close(lib->handle);
}

static void cuda_close(struct backend *b)
{
    struct gpu *gpu = to_gpu(b);

    if (gpu->cuda.stream)
        (void)cudaStreamSynchronize(gpu->cuda.stream);
    cuda_lanes_close(&gpu->cuda);
    close_library(&gpu->cuda.blas);
    close_library(&gpu->cuda.dnn);
    plan_cache_close(gpu->cuda.plans);
    for (int i = 0; i < N_SLOTS; i++) {
        if (gpu->slot[i].idle)
            (void)cudaEventDestroy(gpu->slot[i].idle);
        if (gpu->slot[i].host)
            (void)cudaFreeHost(gpu->slot[i].host);
    }
    if (gpu->cuda.stream)
        (void)cudaStreamDestroy(gpu->cuda.stream);
    free(gpu);
}

static const struct backend_ops cuda_ops = {
    .name = "cuda",
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .can_fuse = cuda_can_fuse,
    .make_kernel = cuda_make_kernel,
    .sync = cuda_sync,
    .record_begin = cuda_record_begin,
    .record_end = cuda_record_end,
    .launch = cuda_launch,
    .recording_free = cuda_recording_free,
    .poll = cuda_poll,
    .device = &cuda_lanes,
    .close = cuda_close,
};

static int open_slots(struct gpu *gpu, struct err *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < N_SLOTS; i++) {
        rc = cuda_check((int)cudaMallocHost(&gpu->slot[i].host, SLOT_BYTES),
                        "allocate pinned memory", err);
        if (rc == 0)
            rc = cuda_check(
                (int)cudaEventCreateWithFlags(&gpu->slot[i].idle, cudaEventDisableTiming),
                "make an event", err);
    }
    return rc;
}

static int open_device(struct gpu *gpu, struct err *err)
{
    int n_sms = 0, rc;

    if ((rc = cuda_check((int)cudaSetDevice(gpu->cuda.device), "use the GPU", err)) < 0 ||
        (rc = cuda_check(
             (int)cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, gpu->cuda.device),
             "ask the GPU", err)) < 0 ||
        (rc = cuda_check((int)cudaStreamCreateWithFlags(&gpu->cuda.stream, cudaStreamNonBlocking),
                         "make a stream", err)) < 0)
        return rc;
    gpu->cuda.max_blocks = n_sms * BLOCKS_PER_SM;
    rc = cuda_lanes_open(&gpu->cuda, err);
    return rc < 0 ? rc : open_slots(gpu, err);
}

int cuda_open(int device, struct backend **out, struct err *err)
{
    struct gpu *gpu = xcalloc(1, sizeof *gpu);

    backend_init(&gpu->cuda.base, &cuda_ops);
    gpu->cuda.device = device;
    gpu->cuda.choices.max_workspace = DEFAULT_WORKSPACE;
    (void)cudaGetLastError(); /* drops an earlier backend's error */
    if (open_device(gpu, err) < 0) {
        backend_close(&gpu->cuda.base);
        (void)cudaGetLastError();
        return err_wrap(err, "cuda:%d", device);
    }
    *out = &gpu->cuda.base;
    return 0;
}

void cuda_configure(struct backend *b, const struct plugin_choices *c)
{
    struct gpu *gpu = to_gpu(b);
    char *folder = c->keep_plans ? plan_cache_folder() : NULL;

    ASSERT(!gpu->cuda.dnn.handle && !gpu->cuda.blas.handle);
    gpu->cuda.choices = *c;
    plan_cache_close(gpu->cuda.plans);
    gpu->cuda.plans = plan_cache_open(folder, c->warn, c->warn_arg);
    free(folder);
}
