/* commit - gives the running statistics their next values, if the step is applied.
 *
 * op/commit.c has the formula; the twin is cpu/commit.c. */
#include "backend/cuda/device.cuh"

static __global__ void cuda_commit(const float *shadow, const double *check, const float *control,
                                   float *state, int64_t n)
{
    if (!control_applies(check, control))
        return;
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        state[i] = shadow[i];
}

static void cuda_commit_run(const struct own *p)
{
    if (p->n > 0)
        LAUNCH(cuda_commit, blocks_for(p, p->n, THREADS), THREADS, p,
               (const float *)p->in[COMMIT_SHADOW], (const double *)p->in[COMMIT_CHECK],
               (const float *)p->in[COMMIT_CONTROL], (float *)p->out[COMMIT_STATE], p->n);
}

extern "C" int cuda_make_commit(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return own_new(b, g, n, cuda_commit_run, 0, out, err);
}
