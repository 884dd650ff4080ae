extern "C" {
#include "backend/cuda/latch.h"
}

#include "backend/cuda/device.cuh"

static __global__ void latch(const volatile uint32_t *poison, float *veto)
{
    if (*poison != 0)
        *veto = 1.0f;
}

extern "C" int latch_queue(struct cuda *b, const uint32_t *poison, float *veto, struct err *err)
{
    struct own p = {};

    p.cuda = b;
    LAUNCH(latch, 1, 1, &p, (const volatile uint32_t *)poison, veto);
    return cuda_check((int)cudaGetLastError(), "launch the latch", err);
}
