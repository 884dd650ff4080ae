/* latch - two kernels of one thread: one marks the step void in the control vector if the poison of
 * stopped collectives is set, the other reads the GPU's clock. */
extern "C" {
#include "backend/cuda/latch.h"
}

#include "backend/cuda/device.cuh"

static __global__ void cuda_latch(const volatile uint32_t *poison, float *veto)
{
    if (*poison != 0)
        *veto = 1.0f;
}

extern "C" int latch_queue(struct cuda *b, const uint32_t *poison, float *veto, struct err *err)
{
    struct own p = {};

    p.cuda = b;
    LAUNCH(cuda_latch, 1, 1, &p, (const volatile uint32_t *)poison, veto);
    return cuda_check((int)cudaGetLastError(), "launch the latch", err);
}

static __global__ void time_passes(int64_t *watch, int stops)
{
    const int64_t now = DEVICE_NS();

    if (stops)
        watch[1] += now - watch[0];
    else
        watch[0] = now;
}

extern "C" int latch_time(struct cuda *b, int64_t watch[2], int stops, struct err *err)
{
    struct own p = {};

    p.cuda = b;
    LAUNCH(time_passes, 1, 1, &p, watch, stops);
    return cuda_check((int)cudaGetLastError(), "launch the stopwatch", err);
}
