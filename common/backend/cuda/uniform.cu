/* uniform - random numbers in [0,1), from Philox4x32-10 as in base/rng.c.
 *
 * op/uniform.c has the formula; the twin, cpu/uniform.c, gives the same bits. */
#include "backend/cuda/draw.cuh"

/* A thread makes a draw of four words, for four elements; the first and the last draw may be used
 * in part.  A sample has `length` elements. */
template <typename T>
static __global__ void cuda_uniform_draw(T *y, int64_t n, int64_t length,
                                         const struct step_scalars *s, uint64_t tag)
{
    const int64_t first = s->first_position * length;

    for (int64_t q = (first >> 2) + grid_first(); q <= (first + n - 1) >> 2; q += grid_stride()) {
        const struct rng_block block = draw(s->seed, RNG_UNIFORM, s->step, tag + (uint64_t)q);

        for (int word = 0; word < 4; word++) {
            const int64_t i = 4 * q + word - first;

            if (i >= 0 && i < n)
                y[i] = (T)draw_unit(block.v[word]);
        }
    }
}

template <typename T> static void cuda_uniform_run(const struct own *p)
{
    const struct shape *y = &p->out_shape[UNIFORM_Y];
    const int64_t n = shape_elements(y);

    if (n > 0)
        LAUNCH((cuda_uniform_draw<T>), blocks_for(p, n / 4 + 2, THREADS), THREADS, p,
               (T *)p->out[UNIFORM_Y], n, n / y->dim[0],
               (const struct step_scalars *)p->in[UNIFORM_SCALARS],
               (uint64_t)p->attr.uniform.tag << 40);
}

extern "C" int cuda_make_uniform(struct cuda *b, const struct graph *g, const struct node *n,
                                 struct kernel **out, struct err *err)
{
    return own_new(
        b, g, n,
        typed(g, n, cuda_uniform_run<float>, cuda_uniform_run<bf16_t>, cuda_uniform_run<f16_t>), 0,
        out, err);
}
