/* dropout - one random word decides whether one element, or one sample, is dropped (op/dropout.c).
 *
 * The twin, cuda/dropout.cu, gives the same bits. */
#include "backend/cpu/dropout.h"

#include "base/util.h"

/* y = x * scale, or 0 for what is dropped; y may be x. */
CPU_CLONES static void cpu_dropout_drop(const uint32_t *word, const float *x, float *y,
                                        float fraction, float scale, int64_t n)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const float kept = x[i] * scale;

        y[i] = dropout_unit(word[i]) >= fraction ? kept : 0.0f;
    }
}

static void drop_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct step_scalars *s = p->in[DROPOUT_SCALARS];
    const float fraction = p->attr.dropout.p;
    const int64_t first =
        s->first_position * dropout_sample_length(&p->attr, &p->in_shape[DROPOUT_X]);
    struct rng_block block[DROPOUT_BLOCKS];
    float room[PLAIN_PIECE];

    (void)part;
    for (int64_t at = from; at < to; at += PLAIN_PIECE) {
        const int64_t n = min_i64(to - at, PLAIN_PIECE);
        const float *x = plain_read(p, DROPOUT_X, at, n, room);

        cpu_dropout_drop(dropout_words(s, p->attr.dropout.tag, (uint64_t)(first + at), n, block), x,
                         plain_dest(p, DROPOUT_Y, at, room), fraction, 1.0f / (1.0f - fraction), n);
        plain_done(p, DROPOUT_Y, at, n, room);
    }
}

/* y = x * scale, or 0; y may be x. */
CPU_CLONES static void cpu_dropout_keep(const float *x, float *y, float scale, int is_kept,
                                        int64_t n)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const float kept = x[i] * scale;

        y[i] = is_kept ? kept : 0.0f;
    }
}

/* Elements [from, to), which share a draw with all others of their sample. */
static void cpu_dropout_drop_samples(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct step_scalars *s = p->in[DROPOUT_SCALARS];
    const float fraction = p->attr.dropout.p;
    const int64_t length = dropout_sample_length(&p->attr, &p->in_shape[DROPOUT_X]);
    float room[PLAIN_PIECE];

    (void)part;
    for (int64_t at = from, end; at < to; at = end) {
        const int64_t sample = at / length, e = s->first_position + sample;
        const struct rng_block block =
            rng_draw(s->seed, RNG_DROPOUT, s->step,
                     ((uint64_t)p->attr.dropout.tag << 40) + ((uint64_t)e >> 2));

        end = min_i64(min_i64((sample + 1) * length, at + PLAIN_PIECE), to);
        cpu_dropout_keep(plain_read(p, DROPOUT_X, at, end - at, room),
                         plain_dest(p, DROPOUT_Y, at, room), 1.0f / (1.0f - fraction),
                         dropout_unit(block.v[e & 3]) >= fraction, end - at);
        plain_done(p, DROPOUT_Y, at, end - at, room);
    }
}

static void cpu_dropout_run(const struct plain *p)
{
    plain_split(p, p->rows * p->c, p->rows * p->c / 4,
                p->attr.dropout.whole ? cpu_dropout_drop_samples : drop_part);
}

int cpu_make_dropout(struct cpu *b, const struct graph *g, const struct node *n,
                     struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_dropout_run, 0, 0, out, err);
}
