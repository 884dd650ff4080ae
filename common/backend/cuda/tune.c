/* tune - measures the time that an algorithm of a library takes on the stream, between two events.
 *
 * blas.c and cudnn_plan.c compare the times and choose. */
#include "backend/cuda/tune.h"

#include <cuda_runtime_api.h>

#include <stdio.h>

#include "base/util.h"

enum { SERIES = 3, RUNS = 8, BLOCK_ALIGN = 256 };

int tune_describe_gpu(const struct cuda *b, char out[TUNE_GPU_LEN], struct err *err)
{
    struct cudaDeviceProp p;
    int driver = 0, rc;

    if ((rc = cuda_check((int)cudaGetDeviceProperties(&p, b->device), "ask for properties", err)) <
            0 ||
        (rc = cuda_check((int)cudaDriverGetVersion(&driver), "ask for the driver's version", err)) <
            0)
        return rc;
    snprintf(out, TUNE_GPU_LEN, "%.60s sm_%d%d, %d SMs, %zu MiB, driver %d", p.name, p.major,
             p.minor, p.multiProcessorCount, p.totalGlobalMem >> 20, driver);
    return 0;
}

/* Records RUNS runs of the work.  If small kernels were launched one by one, the time would show
 * how fast the host is. */
static int cuda_tune_record(struct cuda *b, tune_work *work, void *arg, struct recording **out,
                            struct err *err)
{
    struct err none;
    int rc = backend_record_begin(&b->base, err);

    if (rc < 0)
        return rc;
    for (int i = 0; rc == 0 && i < RUNS; i++)
        rc = work(arg, err);
    if (rc == 0)
        return backend_record_end(&b->base, out, err);
    (void)backend_record_end(&b->base, NULL, &none);
    return rc;
}

static int run_series(struct cuda *b, cudaEvent_t *e, struct recording *r, double *us,
                      struct err *err)
{
    float ms = 0.0f;
    int rc = cuda_check((int)cudaEventRecord(e[0], b->stream), "time an algorithm", err);

    if (rc == 0)
        rc = backend_launch(&b->base, r, err);
    if (rc == 0)
        rc = cuda_check((int)cudaEventRecord(e[1], b->stream), "time an algorithm", err);
    if (rc == 0)
        rc = cuda_check((int)cudaEventSynchronize(e[1]), "time an algorithm", err);
    if (rc == 0)
        rc = cuda_check((int)cudaEventElapsedTime(&ms, e[0], e[1]), "time an algorithm", err);
    *us = 1e3 * (double)ms / RUNS;
    return rc;
}

static int best_series(struct cuda *b, cudaEvent_t *e, struct recording *r, double *us,
                       struct err *err)
{
    double one = 0.0;
    int rc = backend_launch(&b->base, r, err); /* the first launch also uploads the recording */

    for (int i = 0; rc == 0 && i < SERIES; i++) {
        rc = run_series(b, e, r, &one, err);
        if (i == 0 || one < *us)
            *us = one;
    }
    return rc;
}

int tune_time(struct cuda *b, tune_work *work, void *arg, double *us, struct err *err)
{
    cudaEvent_t e[2] = {NULL, NULL};
    struct recording *r = NULL;
    int rc = 0;

    for (int i = 0; rc == 0 && i < 2; i++)
        rc = cuda_check((int)cudaEventCreateWithFlags(&e[i], cudaEventDefault), "make an event",
                        err);
    if (rc == 0)
        rc = work(arg, err); /* a library's first run loads code, which would spoil the recording */
    if (rc == 0)
        rc = cuda_tune_record(b, work, arg, &r, err);
    if (rc == 0)
        rc = best_series(b, e, r, us, err);
    backend_recording_free(&b->base, r);
    for (int i = 0; i < 2; i++)
        if (e[i])
            (void)cudaEventDestroy(e[i]);
    return rc;
}

int tune_alloc(struct cuda *b, const size_t *n_bytes, int n, void **at, void **base,
               struct err *err)
{
    size_t total = 0;
    int rc;

    for (int i = 0; i < n; i++)
        total += (size_t)round_up_i64((int64_t)n_bytes[i], BLOCK_ALIGN);
    rc = backend_alloc(&b->base, total, "timing an algorithm", base, err);
    if (rc < 0)
        return rc;
    total = 0;
    for (int i = 0; i < n; i++) {
        at[i] = n_bytes[i] ? (char *)*base + total : NULL;
        total += (size_t)round_up_i64((int64_t)n_bytes[i], BLOCK_ALIGN);
    }
    return 0;
}
