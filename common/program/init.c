/* init - the initial values of parameters.  They are functions of (seed, parameter, element) alone,
 * so they do not depend on the layout, the backend or the number of ranks. */
#include <math.h>

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

/* The distribution of one parameter's initial values. */
struct draw {
    enum param_init init;
    double bound; /* as in struct param_info */
};

static struct draw draw_of(const struct segment *s, struct layout_init init)
{
    const int is_weight = s->info.kind == PARAM_WEIGHT || s->info.kind == PARAM_EMBEDDING;
    const int64_t k = s->shape.n > 0 ? s->shape.dim[0] : 1,
                  c = s->shape.n > 1 ? s->shape.dim[1] : 1;
    const double fan_in = (double)s->length / (double)k, fan_out = (double)s->length / (double)c;

    if (init.rule == INIT_RULE_OWN || (!is_weight && s->info.kind != PARAM_BIAS))
        return (struct draw){s->info.init, (double)s->info.bound};
    if (!is_weight)
        return (struct draw){PARAM_CONST, 0};
    if (init.rule == INIT_RULE_XAVIER)
        return (struct draw){PARAM_UNIFORM, (double)(float)sqrt(6 / (fan_in + fan_out))};
    return (struct draw){PARAM_NORMAL, init.rule == INIT_RULE_NORMAL ? init.std : sqrt(2 / fan_in)};
}

static void init_segment(const struct segment *s, uint64_t seed, uint64_t index, struct draw draw,
                         float *to)
{
    for (int64_t e = 0; e < s->length; e++) {
        struct rng_block b = {{0}};

        if (draw.init != PARAM_CONST)
            b = rng_draw(seed, RNG_INIT, index, (uint64_t)e >> 2);
        to[e] = draw.init == PARAM_NORMAL    ? normal_at(b, e, draw.bound)
                : draw.init == PARAM_UNIFORM ? uniform_at(b, e, (float)draw.bound)
                                             : (float)draw.bound;
    }
}

void layout_init_param(const struct layout *l, int i, uint64_t seed, struct layout_init init,
                       float *to)
{
    /* The index in alphabetical order does not depend on the layout's order. */
    const int index = layout_find(l->param_by_name, l->n_params, l->param[i].name);

    init_segment(&l->param[i], seed, (uint64_t)index, draw_of(&l->param[i], init), to);
}
