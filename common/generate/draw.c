/* draw - tokens in the order of their probabilities, and a number of Philox's that falls upon one
 * of them. */
#include "generate/draw.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/rng.h"

struct choice {
    float logit;
    int32_t token;
};

struct draw {
    struct draw_rule rule;
    int64_t vocab;
    uint64_t n_drawn;
    struct choice *choice; /* [vocab] */
    double *weight;        /* [vocab] */
};

struct draw *draw_new(const struct draw_rule *rule, int64_t vocab)
{
    struct draw *d = xcalloc(1, sizeof *d);

    d->rule = *rule;
    d->vocab = vocab;
    d->choice = xcalloc((size_t)vocab, sizeof *d->choice);
    d->weight = xcalloc((size_t)vocab, sizeof *d->weight);
    return d;
}

void draw_free(struct draw *d)
{
    if (!d)
        return;
    free(d->choice);
    free(d->weight);
    free(d);
}

static int32_t draw_largest(const float *x, int64_t n)
{
    int64_t best = 0;

    for (int64_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return (int32_t)best;
}

static int draw_is_possible(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(x[i]))
            return 0;
    return !isinf(x[draw_largest(x, n)]);
}

static int draw_order(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

/* How many of the n weights, the largest first, add up to top_p of all. */
static int64_t draw_nucleus(const struct draw *d, int64_t n, double total)
{
    double sum = 0;
    int64_t k = 0;

    while (k < n && sum < d->rule.top_p * total)
        sum += d->weight[k++];
    return k;
}

int32_t draw_next(struct draw *d, const float *logits)
{
    const int sorts = d->rule.top_k > 0 || d->rule.top_p < 1;
    const float most = logits[draw_largest(logits, d->vocab)];
    int64_t n = d->vocab, k = 0;
    double total = 0, at;

    if (!draw_is_possible(logits, d->vocab))
        return -1;
    if (d->rule.temperature == 0)
        return draw_largest(logits, d->vocab);
    for (int64_t i = 0; i < n; i++)
        d->choice[i] = (struct choice){logits[i], (int32_t)i};
    if (sorts)
        qsort(d->choice, (size_t)n, sizeof *d->choice, draw_order);
    n = d->rule.top_k > 0 && d->rule.top_k < n ? d->rule.top_k : n;
    for (int64_t i = 0; i < n; i++) {
        d->weight[i] = exp(((double)d->choice[i].logit - (double)most) / d->rule.temperature);
        total += d->weight[i];
    }
    if (d->rule.top_p < 1) {
        n = draw_nucleus(d, n, total);
        total = 0;
        for (int64_t i = 0; i < n; i++)
            total += d->weight[i];
    }
    at = total * (double)rng_to_unit(rng_draw(d->rule.seed, RNG_SAMPLE, d->n_drawn++, 0).v[0]);
    while (k + 1 < n && at >= d->weight[k])
        at -= d->weight[k++];
    return d->choice[k].token;
}
