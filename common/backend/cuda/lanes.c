/* lanes - the functions of a device: its lanes are streams, its marks are events.
 *
 * Only host_alloc, host_free, open and close allocate, free or wait. */
#include <cuda_runtime_api.h>

#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/latch.h"
#include "base/util.h"

static struct cuda *to_cuda(struct backend *b) { return container_of(b, struct cuda, base); }

static cudaStream_t stream_of(const struct cuda *b, enum backend_lane lane)
{
    return lane == LANE_MAIN ? b->stream : b->copies;
}

static int host_alloc(struct backend *b, size_t n_bytes, const char *what, void **out,
                      struct err *err)
{
    void *p = NULL;
    cudaError_t st;

    ASSERT(!to_cuda(b)->is_recording);
    st = cudaMallocHost(&p, n_bytes ? n_bytes : 1);
    if (st == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return err_set(err, ERR_NOMEM,
                       "%s needs %.1f MiB of pinned host memory, which there is not", what,
                       (double)n_bytes / 0x1p20);
    }
    if (st != cudaSuccess)
        return cuda_check((int)st, "allocate pinned memory", err);
    memset(p, 0, n_bytes);
    *out = p;
    return 0;
}

static void cuda_lanes_host_free(struct backend *b, void *p)
{
    (void)cudaStreamSynchronize(to_cuda(b)->copies); /* copies may still use it */
    (void)cudaStreamSynchronize(to_cuda(b)->stream);
    (void)cudaFreeHost(p);
}

static int cuda_lanes_room(struct backend *b, size_t *n_bytes, struct err *err)
{
    size_t all;

    (void)b;
    return cuda_check((int)cudaMemGetInfo(n_bytes, &all), "ask for free GPU memory", err);
}

static int cuda_lanes_zero(struct backend *b, void *p, size_t n_bytes, struct err *err)
{
    return cuda_check((int)cudaMemsetAsync(p, 0, n_bytes, to_cuda(b)->stream), "zero GPU memory",
                      err);
}

static int cuda_lanes_copy(struct backend *b, void *to, const void *from, size_t n_bytes,
                           struct err *err)
{
    return cuda_check(
        (int)cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDefault, to_cuda(b)->stream),
        "copy on the GPU", err);
}

static int cuda_lanes_put(struct backend *b, enum backend_lane lane, void *to, const void *from,
                          size_t n_bytes, struct err *err)
{
    return cuda_check((int)cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyHostToDevice,
                                           stream_of(to_cuda(b), lane)),
                      "copy to the GPU", err);
}

static int cuda_lanes_mark(struct backend *b, enum backend_lane lane, int i, struct err *err)
{
    struct cuda *c = to_cuda(b);

    ASSERT(!c->is_recording);
    return cuda_check((int)cudaEventRecord(c->mark[i], stream_of(c, lane)), "mark work", err);
}

static int cuda_lanes_follow(struct backend *b, enum backend_lane lane, int i, struct err *err)
{
    struct cuda *c = to_cuda(b);

    ASSERT(!c->is_recording);
    return cuda_check((int)cudaStreamWaitEvent(stream_of(c, lane), c->mark[i], 0), "order work",
                      err);
}

static int cuda_lanes_passed(struct backend *b, int i, struct err *err)
{
    const cudaError_t st = cudaEventQuery(to_cuda(b)->mark[i]);

    if (st == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* no error, so the next check must not see it */
        return 1;
    }
    return cuda_check((int)st, "finish work on the GPU", err);
}

static int cuda_lanes_stopwatch(struct backend *b, int64_t watch[2], int stops, struct err *err)
{
    return latch_time(to_cuda(b), watch, stops, err);
}

const struct backend_device_ops cuda_lanes = {
    .host_alloc = host_alloc,
    .host_free = cuda_lanes_host_free,
    .room = cuda_lanes_room,
    .zero = cuda_lanes_zero,
    .copy = cuda_lanes_copy,
    .put = cuda_lanes_put,
    .mark = cuda_lanes_mark,
    .follow = cuda_lanes_follow,
    .passed = cuda_lanes_passed,
    .stopwatch = cuda_lanes_stopwatch,
};

int cuda_lanes_open(struct cuda *b, struct err *err)
{
    int rc = cuda_check((int)cudaStreamCreateWithFlags(&b->copies, cudaStreamNonBlocking),
                        "make a stream", err);

    for (int i = 0; rc == 0 && i < BACKEND_MARKS; i++)
        rc = cuda_check((int)cudaEventCreateWithFlags(&b->mark[i], cudaEventDisableTiming),
                        "make an event", err);
    return rc;
}

void cuda_lanes_close(struct cuda *b)
{
    for (int i = 0; i < BACKEND_MARKS; i++)
        if (b->mark[i])
            (void)cudaEventDestroy(b->mark[i]);
    if (b->copies)
        (void)cudaStreamDestroy(b->copies);
}
