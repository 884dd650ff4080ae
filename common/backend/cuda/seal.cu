/* seal - writes a step's results straight into pinned memory of the host, and notes whether the
 * step was clean.  One block does it, with a thread for each number: copies would be several.
 *
 * op/seal.c says which results; the twin is cpu/seal.c. */
#include "backend/cuda/device.cuh"

extern "C" {
#include "op/seal.h"
}

static __global__ void cuda_seal_leave(struct seal s, float *clean, float *results)
{
    const int i = (int)grid_first();

    if (i < SEALED_LEN)
        results[s.scalars->slot * SEALED_LEN + i] = seal_value(&s, i);
    if (i == 0)
        *clean = seal_is_clean(&s) ? s.scalars->stamp : 0.0f;
}

static void cuda_seal_run(const struct own *p)
{
    struct seal s = {};

    s.check = (const double *)p->in[SEAL_CHECK];
    s.metrics = (const double *)p->in[SEAL_METRICS];
    s.control = (const float *)p->in[SEAL_CONTROL];
    s.scaler = (const float *)p->in[SEAL_SCALER];
    s.scalars = (const struct step_scalars *)p->in[SEAL_SCALARS];
    s.waits = (const int64_t *)p->in[SEAL_WAITS];
    s.kept = (const int64_t *)p->in[SEAL_KEPT];
    LAUNCH(cuda_seal_leave, 1, (SEALED_LEN + WARP - 1) / WARP * WARP, p, s,
           (float *)p->out[SEAL_NEW_CLEAN], (float *)p->out[SEAL_NEW_RESULTS]);
}

extern "C" int cuda_make_seal(struct cuda *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    return own_new(b, g, n, cuda_seal_run, 0, out, err);
}
