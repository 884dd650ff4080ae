/* sim - the problem of the reference simulator, and its loop over steps.
 *
 * The definitions of the strategies are in definitions.c and definitions_own.c. */
#include "sim.h"

#include <string.h>

/* Matrices, a convolution's weights and vectors; sizes that no number of ranks divides. */
const struct sim_space sim_space = {
    .segment =
        {
            {{12, 20}, 0, 240, 0},
            {{12}, 240, 12, 1},
            {{6, 5, 3, 3}, 256, 270, 0},
            {{7}, 528, 7, 0},
            {{1}, 544, 1, 1},
            {{13, 15}, 560, 195, 0},
            {{13}, 768, 13, 1},
        },
    .n_segments = 7,
    .len = 784,
};

int sim_is_padding(int64_t i)
{
    for (int k = 0; k < sim_space.n_segments; k++) {
        const struct sim_segment *s = &sim_space.segment[k];

        if (i >= s->at && i < s->at + s->n)
            return 0;
    }
    return 1;
}

/* A number in [-1, 1) that looks drawn. */
static float draw(int64_t a, int64_t b, int64_t c)
{
    uint64_t x = (uint64_t)a * 0x9e3779b97f4a7c15u + (uint64_t)b * 0xbf58476d1ce4e5b9u +
                 (uint64_t)c * 0x94d049bb133111ebu + 1;

    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 31;
    return (float)(x >> 40) / 8388608.0f - 1.0f;
}

float sim_first_weight(int64_t i) { return sim_is_padding(i) ? 0.0f : draw(i, 0, 0); }

float sim_gradient(int r, int n, int64_t step, int64_t i, float w)
{
    const float curve = 1.5f + draw(i, r + 1, 0), centre = draw(i, r + 1, 1);
    const float noise = 0.25f * draw(i, r + 1, step + 2);

    return sim_is_padding(i) ? 0.0f : (curve * (w - centre) + noise) / (float)n;
}

double sim_part(int is_uneven, int r, int n, int64_t step)
{
    if (!is_uneven)
        return 1.0 / n;
    return step % 3 == 2 ? r == 0 : 2.0 * (r + 1) / (n * (n + 1));
}

void sim_begin(struct sim *s, int n)
{
    memset(s, 0, sizeof *s);
    s->n = n;
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < sim_space.len; i++)
            s->w[r][i] = (double)sim_first_weight(i);
}

static void descend(struct sim *s)
{
    for (int r = 0; r < s->n; r++)
        for (int64_t i = 0; i < sim_space.len; i++)
            s->w[r][i] = (double)((float)s->w[r][i] - SIM_RATE * (float)s->g[r][i]);
}

void sim_step(struct sim *s, const struct sim_strategy *k)
{
    for (int r = 0; r < s->n; r++) {
        s->part[r] = sim_part(k->is_uneven, r, s->n, s->step);
        for (int64_t i = 0; i < sim_space.len; i++)
            s->g[r][i] = (k->is_uneven ? s->part[r] * s->n : 1) *
                         (double)sim_gradient(r, s->n, s->step, i, (float)s->w[r][i]);
    }
    k->combine(s);
    (k->update ? k->update : descend)(s);
    s->n_updates++;
    if (k->mix)
        k->mix(s);
    s->step++;
}
