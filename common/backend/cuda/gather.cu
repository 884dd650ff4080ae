/* y[i] = table[index[i]], and the same of the labels; twin cpu/gather.c. */
#include "backend/cuda/device.cuh"

struct gathered {
    const float *table;
    const int64_t *index;
    const int32_t *labels;
    float *y;
    int32_t *picked; /* NULL: no labels */
};

static __global__ void gather(struct gathered p, int64_t n, int64_t length)
{
    for (struct walk w(length); w.i < n; w.next()) {
        const int64_t from = p.index[w.row];

        p.y[w.i] = p.table[from * length + w.col];
        if (p.picked && w.col == 0)
            p.picked[w.row] = p.labels[from];
    }
}

static void run(const struct own *p)
{
    const int64_t n = (int64_t)(p->out_bytes[0] / sizeof(float));
    const struct gathered what = {(const float *)p->in[0], (const int64_t *)p->in[1],
                                  (const int32_t *)p->in[2], (float *)p->out[0],
                                  (int32_t *)p->out[1]};

    LAUNCH(gather, blocks_for(p, n, THREADS), THREADS, p, what, n, n / p->out_shape[0].dim[0]);
}

extern "C" int cuda_make_gather(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return own_new(b, g, n, run, 0, out, err);
}
