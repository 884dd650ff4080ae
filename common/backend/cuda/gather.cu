/* y[i] = table[index[i]]; twin cpu/gather.c.  F32 and I32 are words here. */
#include "backend/cuda/device.cuh"

static __global__ void gather(const uint32_t *table, const int64_t *index, uint32_t *y, int64_t n,
                              int64_t length)
{
    for (struct walk w(length); w.i < n; w.next())
        y[w.i] = table[index[w.row] * length + w.col];
}

static void run(const struct own *p)
{
    const int64_t n = (int64_t)(p->out_bytes[0] / sizeof(uint32_t));

    LAUNCH(gather, blocks_for(p, n, THREADS), THREADS, p, (const uint32_t *)p->in[0],
           (const int64_t *)p->in[1], (uint32_t *)p->out[0], n, n / p->out_shape[0].dim[0]);
}

extern "C" int cuda_make_gather(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return own_new(b, g, n, run, 0, out, err);
}
