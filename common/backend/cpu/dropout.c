/* dropout - one random word decides whether one element is dropped (op/dropout.c).
 *
 * The twin, cuda/dropout.cu, gives the same bits. */
#include "backend/cpu/plain.h"
#include "base/rng.h"

/* Element e of the global batch takes word e & 3 of draw e >> 2 (op/dropout.c). */
static void run(const struct plain *p)
{
    const struct step_scalars *s = p->in[DROPOUT_SCALARS];
    const float *x = p->in[DROPOUT_X], drop = p->attr.dropout.p, scale = 1.0f / (1.0f - drop);
    float *y = p->out[DROPOUT_Y];
    const int64_t n = p->rows * p->c,
                  first =
                      s->first_position * dropout_sample_length(&p->attr, &p->in_shape[DROPOUT_X]);
    const uint64_t tag = (uint64_t)p->attr.dropout.tag << 40;

    for (int64_t i = 0; i < n;) {
        const uint64_t e = (uint64_t)(first + i);
        const struct rng_block block = rng_draw(s->seed, RNG_DROPOUT, s->step, tag + (e >> 2));

        for (unsigned word = e & 3; word < 4 && i < n; word++, i++)
            y[i] = rng_to_unit(block.v[word]) >= drop ? x[i] * scale : 0.0f;
    }
}

int cpu_make_dropout(struct cpu *b, const struct graph *g, const struct node *n,
                     struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, run, 0, out, err);
}
