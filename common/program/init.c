/* init - the initial values of parameters.  They are functions of (seed, parameter, element) alone,
 * so they do not depend on the layout, the backend or the number of ranks. */
#include "base/rng.h"
#include "program/layout.h"

static float uniform_at(struct rng_block b, int64_t element, float bound)
{
    return (2 * rng_to_unit(b.v[element & 3]) - 1) * bound;
}

/* Two random words make two normal numbers. */
static float normal_at(struct rng_block b, int64_t element, double std)
{
    const int pair = (int)(element & 2);
    double z[2];

    rng_to_normal(b.v[pair], b.v[pair + 1], z);
    return (float)(z[element & 1] * std);
}

static void init_segment(const struct segment *s, uint64_t seed, uint64_t index, double std,
                         float *to)
{
    const int is_weight = s->info.kind == PARAM_WEIGHT || s->info.kind == PARAM_EMBEDDING;
    const int normal = std >= 0 && is_weight;
    const int zero = std >= 0 && s->info.kind == PARAM_BIAS;

    for (int64_t e = 0; e < s->length; e++) {
        struct rng_block b = {{0}};

        if (normal || s->info.init == PARAM_UNIFORM)
            b = rng_draw(seed, RNG_INIT, index, (uint64_t)e >> 2);
        to[e] = zero                            ? 0
                : normal                        ? normal_at(b, e, std)
                : s->info.init == PARAM_UNIFORM ? uniform_at(b, e, s->info.bound)
                                                : s->info.bound;
    }
}

void layout_init_param(const struct layout *l, int i, uint64_t seed, double std, float *to)
{
    /* The index in alphabetical order does not depend on the layout's order. */
    const int index = layout_find(l->param_by_name, l->n_params, l->param[i].name);

    init_segment(&l->param[i], seed, (uint64_t)index, std, to);
}
