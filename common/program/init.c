/* init - the initial values of parameters.  They are functions of (seed, parameter, element) alone,
 * so they do not depend on the layout, the backend or the number of ranks. */
#include <math.h>

#include "base/rng.h"
#include "base/util.h"
#include "program/layout.h"

/* Numbers that are drawn at once; 4 of them take the words of one block. */
enum { PIECE = 1024 };

/* Two random words make two normal numbers. */
static void normals(const uint32_t *word, int64_t n, double std, float *to)
{
    for (int64_t i = 0; i < n; i += 2) {
        double z[2];

        rng_to_normal(word[i], word[i + 1], z);
        to[i] = (float)(z[0] * std);
        if (i + 1 < n)
            to[i + 1] = (float)(z[1] * std);
    }
}

static void uniforms(const uint32_t *word, int64_t n, float bound, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (2 * rng_to_unit(word[i]) - 1) * bound;
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
    struct rng_block block[PIECE / 4];

    for (int64_t e = 0; e < s->length; e += PIECE) {
        const int64_t n = min_i64(s->length - e, PIECE);

        if (draw.init != PARAM_CONST)
            rng_draw_many(seed, RNG_INIT, index, (uint64_t)e / 4, (n + 3) / 4, block);
        if (draw.init == PARAM_NORMAL)
            normals(block[0].v, n, draw.bound, to + e);
        else if (draw.init == PARAM_UNIFORM)
            uniforms(block[0].v, n, (float)draw.bound, to + e);
        else
            for (int64_t i = 0; i < n; i++)
                to[e + i] = (float)draw.bound;
    }
}

void layout_init_param(const struct layout *l, int i, uint64_t seed, struct layout_init init,
                       float *to)
{
    /* The index in alphabetical order does not depend on the layout's order. */
    const int index = layout_find(l->param_by_name, l->n_params, l->param[i].name);

    init_segment(&l->param[i], seed, (uint64_t)index, draw_of(&l->param[i], init), to);
}
