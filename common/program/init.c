/* init - the initial values of parameters.  They are functions of (seed, parameter, element) alone,
 * so they do not depend on the layout, the backend or the number of ranks. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/util.h"
#include "program/base.h"
#include "program/layout.h"

/* Numbers that are drawn at once; 4 of them take the words of one block. */
enum { PIECE = 1024 };

/* Two random words make two normal numbers. */
static void init_normals(const uint32_t *word, int64_t n, double std, float *to)
{
    float last[2];

    rng_to_normals(word, n / 2, std, to);
    if (n % 2 == 0)
        return;
    rng_to_normals(word + n - 1, 1, std, last);
    to[n - 1] = last[0];
}

/* The quantile of the normal distribution for a probability of 0.5 + q, |q| <= 0.4773: P. J.
 * Acklam's rational approximation, there within 4e-8. */
static double init_quantile(double q)
{
    static const double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                               -2.759285104469687e+02, 1.383577518672690e+02,
                               -3.066479806614716e+01, 2.506628277459239e+00},
                        b[] = {-5.447609879822406e+01, 1.615858368580409e+02,
                               -1.556989798598866e+02, 6.680131188771972e+01,
                               -1.328068155288572e+01};
    const double r = q * q;

    return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
           (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

/* Normal numbers, of which none is further than 2 * std from 0. */
static void init_truncated(const uint32_t *word, int64_t n, double std, float *to)
{
    const double within = 0.9544997361036416; /* the probability of that */

    for (int64_t i = 0; i < n; i++)
        to[i] = (float)(init_quantile(((double)rng_to_unit(word[i]) - 0.5) * within) * std);
}

static void init_uniforms(const uint32_t *word, int64_t n, float bound, float *to)
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
    switch (init.rule) {
    case INIT_RULE_OWN:
    case INIT_RULE_NORMAL:
        break;
    case INIT_RULE_TRUNC_NORMAL:
        return (struct draw){PARAM_TRUNCATED, init.std};
    case INIT_RULE_KAIMING_NORMAL:
        return (struct draw){PARAM_NORMAL, sqrt(2 / fan_in)};
    case INIT_RULE_KAIMING_UNIFORM:
        return (struct draw){PARAM_UNIFORM, (double)(float)sqrt(6 / fan_in)};
    case INIT_RULE_XAVIER_NORMAL:
        return (struct draw){PARAM_NORMAL, sqrt(2 / (fan_in + fan_out))};
    case INIT_RULE_XAVIER_UNIFORM:
        return (struct draw){PARAM_UNIFORM, (double)(float)sqrt(6 / (fan_in + fan_out))};
    }
    return (struct draw){PARAM_NORMAL, init.std};
}

static void init_part(uint64_t seed, uint64_t index, struct draw draw, int64_t first, int64_t n_all,
                      float *to)
{
    struct rng_block block[PIECE / 4];

    for (int64_t e = 0; e < n_all; e += PIECE) {
        const int64_t n = min_i64(n_all - e, PIECE);

        if (draw.init != PARAM_CONST)
            rng_draw_many(seed, RNG_INIT, index, (uint64_t)(first + e) / 4, (n + 3) / 4, block);
        if (draw.init == PARAM_NORMAL)
            init_normals(block[0].v, n, draw.bound, to + e);
        else if (draw.init == PARAM_TRUNCATED)
            init_truncated(block[0].v, n, draw.bound, to + e);
        else if (draw.init == PARAM_UNIFORM)
            init_uniforms(block[0].v, n, (float)draw.bound, to + e);
        else
            for (int64_t i = 0; i < n; i++)
                to[e + i] = (float)draw.bound;
    }
}

/* Zero those of the elements [first, first + n) that are of the embedding's row of padding. */
static void init_padding(const struct segment *s, int64_t first, int64_t n, float *to)
{
    const int64_t width = s->length / s->shape.dim[0];
    const int64_t from = max_i64((s->padding - 1) * width, first),
                  end = min_i64(s->padding * width, first + n);

    if (from < end)
        memset(to + (from - first), 0, (size_t)(end - from) * sizeof *to);
}

/* The number that tells a parameter's draws from others': its place in the alphabetical order of
 * all, those of the base included.  So it depends neither on the layout's order nor on the form of
 * the base. */
static int init_number(const struct layout *l, const char *name)
{
    int n = layout_find(l->param_by_name, l->n_params, name);

    for (int i = 0; i < l->n_base; i++)
        n += !base_is_scales(l->base[i].name) && strcmp(l->base[i].name, name) < 0;
    return n;
}

void layout_init_param(const struct layout *l, int i, uint64_t seed, struct layout_init init,
                       int64_t first, int64_t n, float *to)
{
    const int index = init_number(l, l->param[i].name);

    ASSERT(first >= 0 && first % 4 == 0 && first + n <= l->param[i].length);
    init_part(seed, (uint64_t)index, draw_of(&l->param[i], init), first, n, to);
    if (l->param[i].padding > 0 && init.rule == INIT_RULE_OWN)
        init_padding(&l->param[i], first, n, to);
}
