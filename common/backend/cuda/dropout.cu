/* dropout - y = x * mask / (1-p), where the mask comes from Philox4x32-10 as in base/rng.c.
 *
 * op/dropout.c has the formula; the twin, cpu/dropout.c, gives the same bits. */
#include "backend/cuda/draw.cuh"

/* A thread makes a draw of four words, for four elements; the first and the last draw may be used
 * in part.  A sample has `length` elements.  y may be x. */
template <typename T>
static __global__ void cuda_dropout_mask(const T *x, T *y, int64_t n, int64_t length,
                                         const struct step_scalars *s, float p, uint64_t tag)
{
    const int64_t first = s->first_position * length;
    const float scale = 1.0f / (1.0f - p);

    for (int64_t q = (first >> 2) + grid_first(); q <= (first + n - 1) >> 2; q += grid_stride()) {
        const struct rng_block block = draw(s->seed, RNG_DROPOUT, s->step, tag + (uint64_t)q);

        for (int word = 0; word < 4; word++) {
            const int64_t i = 4 * q + word - first;

            if (i >= 0 && i < n)
                y[i] = draw_unit(block.v[word]) >= p ? (T)((float)x[i] * scale) : (T)0.0f;
        }
    }
}

/* As drop, where all elements of a sample share one draw.  A thread draws anew only when it comes
 * to another sample. */
template <typename T>
static __global__ void cuda_dropout_drop_samples(const T *x, T *y, int64_t n, int64_t length,
                                                 const struct step_scalars *s, float p,
                                                 uint64_t tag)
{
    const float scale = 1.0f / (1.0f - p);
    int64_t end = 0; /* of the elements that share the last draw */
    bool kept = false;

    for (int64_t i = grid_first(); i < n; i += grid_stride()) {
        if (i >= end) {
            const int64_t sample = i / length, e = s->first_position + sample;

            kept = draw_unit(
                       draw(s->seed, RNG_DROPOUT, s->step, tag + ((uint64_t)e >> 2)).v[e & 3]) >= p;
            end = (sample + 1) * length;
        }
        y[i] = kept ? (T)((float)x[i] * scale) : (T)0.0f;
    }
}

template <typename T> static void run_samples(const struct own *p)
{
    LAUNCH((cuda_dropout_drop_samples<T>), blocks_for(p, p->n, THREADS), THREADS, p,
           (const T *)p->in[DROPOUT_X], (T *)p->out[DROPOUT_Y], p->n,
           dropout_sample_length(&p->attr, &p->in_shape[DROPOUT_X]),
           (const struct step_scalars *)p->in[DROPOUT_SCALARS], p->attr.dropout.p,
           (uint64_t)p->attr.dropout.tag << 40);
}

template <typename T> static void cuda_dropout_run(const struct own *p)
{
    LAUNCH((cuda_dropout_mask<T>), blocks_for(p, p->n / 4 + 2, THREADS), THREADS, p,
           (const T *)p->in[DROPOUT_X], (T *)p->out[DROPOUT_Y], p->n,
           dropout_sample_length(&p->attr, &p->in_shape[DROPOUT_X]),
           (const struct step_scalars *)p->in[DROPOUT_SCALARS], p->attr.dropout.p,
           (uint64_t)p->attr.dropout.tag << 40);
}

extern "C" int cuda_make_dropout(struct cuda *b, const struct graph *g, const struct node *n,
                                 struct kernel **out, struct err *err)
{
    if (n->attr.dropout.whole)
        return own_new(b, g, n,
                       typed(g, n, run_samples<float>, run_samples<bf16_t>, run_samples<f16_t>), 0,
                       out, err);
    return own_new(
        b, g, n,
        typed(g, n, cuda_dropout_run<float>, cuda_dropout_run<bf16_t>, cuda_dropout_run<f16_t>), 0,
        out, err);
}
