/* uniform - a random word for each element (op/uniform.c).
 *
 * The twin, cuda/uniform.cu, gives the same bits. */
#include "backend/cpu/dropout.h"

#include "base/util.h"

static void cpu_uniform_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct step_scalars *s = p->in[UNIFORM_SCALARS];
    const struct shape *y = &p->out_shape[UNIFORM_Y];
    const int64_t first = s->first_position * (shape_elements(y) / y->dim[0]);
    struct rng_block block[DROPOUT_BLOCKS];
    float room[PLAIN_PIECE];

    (void)part;
    for (int64_t at = from; at < to; at += PLAIN_PIECE) {
        const int64_t n = min_i64(to - at, PLAIN_PIECE);
        const uint32_t *word = dropout_words_for(s, RNG_UNIFORM, p->attr.uniform.tag,
                                                 (uint64_t)(first + at), n, block);
        float *to_y = plain_dest(p, UNIFORM_Y, at, room);

        for (int64_t i = 0; i < n; i++)
            to_y[i] = dropout_unit(word[i]);
        plain_done(p, UNIFORM_Y, at, n, room);
    }
}

static void cpu_uniform_run(const struct plain *p)
{
    const int64_t n = shape_elements(&p->out_shape[UNIFORM_Y]);

    if (n > 0)
        plain_split(p, n, n / 4, cpu_uniform_part);
}

int cpu_make_uniform(struct cpu *b, const struct graph *g, const struct node *n,
                     struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_uniform_run, 0, 0, out, err);
}
