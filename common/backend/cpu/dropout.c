/* dropout - one random word decides whether one element is dropped (op/dropout.c).
 *
 * The twin, cuda/dropout.cu, gives the same bits. */
#include "backend/cpu/plain.h"
#include "base/rng.h"
#include "base/util.h"

/* Element e of the global batch takes word e & 3 of draw e >> 2 (op/dropout.c).  `first` is the
 * global number of x[0]. */
static void drop(const struct plain *p, uint64_t first, const float *x, float *y, int64_t n)
{
    const struct step_scalars *s = p->in[DROPOUT_SCALARS];
    const float drop = p->attr.dropout.p, scale = 1.0f / (1.0f - drop);
    const uint64_t tag = (uint64_t)p->attr.dropout.tag << 40;

    for (int64_t i = 0; i < n;) {
        const uint64_t e = first + (uint64_t)i;
        const struct rng_block block = rng_draw(s->seed, RNG_DROPOUT, s->step, tag + (e >> 2));

        for (unsigned word = e & 3; word < 4 && i < n; word++, i++)
            y[i] = rng_to_unit(block.v[word]) >= drop ? x[i] * scale : 0.0f;
    }
}

static void drop_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct step_scalars *s = p->in[DROPOUT_SCALARS];
    const int64_t first =
        s->first_position * dropout_sample_length(&p->attr, &p->in_shape[DROPOUT_X]);
    float room[PLAIN_PIECE];

    (void)part;
    for (int64_t at = from; at < to; at += PLAIN_PIECE) {
        const int64_t n = min_i64(to - at, PLAIN_PIECE);

        drop(p, (uint64_t)(first + at), plain_read(p, DROPOUT_X, at, n, room),
             plain_dest(p, DROPOUT_Y, at, room), n);
        plain_done(p, DROPOUT_Y, at, n, room);
    }
}

static void run(const struct plain *p)
{
    plain_split(p, p->rows * p->c, p->rows * p->c * 4, drop_part);
}

int cpu_make_dropout(struct cpu *b, const struct graph *g, const struct node *n,
                     struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, run, 0, 0, out, err);
}
