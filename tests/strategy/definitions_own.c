/* The definitions of the strategies in which each rank updates by its own gradients, as the
 * reference simulator plays them. */
#include <string.h>

#include "definitions.h"

/* Each rank's share of the gradient, times the number of ranks. */
static void own(struct sim *s)
{
    for (int r = 0; r < s->n; r++)
        for (int64_t i = 0; i < sim_space.len; i++)
            s->g[r][i] *= s->n;
}

static double mean_weight(const struct sim *s, int64_t i)
{
    double sum = 0;

    for (int r = 0; r < s->n; r++)
        sum += s->w[r][i];
    return sum / s->n;
}

static void set_all(struct sim *s, int64_t i, double w)
{
    for (int r = 0; r < s->n; r++)
        s->w[r][i] = w;
}

static void take_means(struct sim *s)
{
    for (int64_t i = 0; i < sim_space.len; i++)
        set_all(s, i, mean_weight(s, i));
}

enum { EVERY = 3, START = 7 };

/* local_sgd: after every so many steps all ranks take the mean of their weights. */
static void mix_local(struct sim *s)
{
    if ((s->step + 1) % EVERY == 0)
        take_means(s);
}

/* Post-local SGD: so many steps of all-reduce come first. */
static void combine_post_local(struct sim *s)
{
    if (s->step < START)
        sim_allreduce(s);
    else
        own(s);
}

static void mix_post_local(struct sim *s)
{
    if (s->step >= START && (s->step - START + 1) % EVERY == 0)
        take_means(s);
}

/* DiLoCo: keep[0] is where all ranks were after the exchange before, keep[1] the momentum. */
static void combine_outer(struct sim *s)
{
    if (s->step == 0)
        memcpy(s->keep[0][0], s->w[0], sizeof s->w[0]);
    own(s);
}

static void step_outside(struct sim *s)
{
    const double lr = 0.5, mu = 0.8;
    double *start = s->keep[0][0], *momentum = s->keep[1][0];

    for (int64_t i = 0; i < sim_space.len; i++) {
        const double d = start[i] - mean_weight(s, i);

        momentum[i] = mu * momentum[i] + d;
        start[i] -= lr * (d + mu * momentum[i]);
        set_all(s, i, start[i]);
    }
}

static void mix_outer(struct sim *s)
{
    if ((s->step + 1) % EVERY == 0)
        step_outside(s);
}

/* The same behind steps of all-reduce. */
static void combine_post_outer(struct sim *s)
{
    if (s->step == START)
        memcpy(s->keep[0][0], s->w[0], sizeof s->w[0]);
    combine_post_local(s);
}

static void mix_post_outer(struct sim *s)
{
    if (s->step >= START && (s->step - START + 1) % EVERY == 0)
        step_outside(s);
}

/* decentralized: the gradient is that at the weights before the exchange, and is applied to the
 * weights after it. */
static void decentralized(struct sim *s)
{
    own(s);
    if (s->step % 2 == 0)
        take_means(s);
}

/* Of an even number of ranks each of the lower half meets another one of the upper half in each
 * round.  An odd number has one rank more, which is not there. */
static void meet_peers(struct sim *s, int64_t round)
{
    const int half = (s->n + 1) / 2;

    for (int a = 0; a < half; a++) {
        const int b = half + (int)((round + a) % half);

        for (int64_t i = 0; i < sim_space.len && b < s->n; i++)
            s->w[a][i] = s->w[b][i] = (s->w[a][i] + s->w[b][i]) / 2;
    }
}

static void shift_one(struct sim *s)
{
    own(s);
    meet_peers(s, s->step);
}

/* Rounds are counted, not steps. */
static void shift_now_and_then(struct sim *s)
{
    own(s);
    if (s->step % EVERY == 0)
        meet_peers(s, s->step / EVERY);
}

/* low_precision_decentralized: keep[0] is what the neighbours know of each rank, keep[1] and
 * keep[2] what each rank knows of its left and right neighbour. */
static void combine_low_precision(struct sim *s)
{
    for (int r = 0; r < s->n && s->step == 0; r++)
        for (int k = 0; k < 3; k++)
            memcpy(s->keep[k][r], s->w[r], sizeof s->w[r]);
    own(s);
}

static float difference(const struct sim *s, int r, int64_t i)
{
    const float x = (float)s->w[r][i], known = (float)s->keep[0][r][i];
    const float left = (float)s->keep[1][r][i], right = (float)s->keep[2][r][i];

    return x + left / 3 + right / 3 - known * (5.0f / 3.0f);
}

static void mix_low_precision(struct sim *s)
{
    static double d[SIM_MAX_RANKS][SIM_MAX_LEN];

    if (s->n == 1)
        return;
    for (int r = 0; r < s->n; r++) {
        for (int64_t i = 0; i < sim_space.len; i++)
            d[r][i] = (double)difference(s, r, i);
        for (struct range b = {0, 0}; sim_next_bucket(&b);)
            sim_through_bytes(d[r], b);
    }
    for (int r = 0; r < s->n; r++)
        for (int64_t i = 0; i < sim_space.len; i++) {
            const int from[] = {r, (r + s->n - 1) % s->n, (r + 1) % s->n};

            for (int k = 0; k < 3; k++)
                s->keep[k][r][i] = (double)((float)s->keep[k][r][i] + (float)d[from[k]][i]);
            s->w[r][i] = s->keep[0][r][i];
        }
}

static void mix_low_precision_now_and_then(struct sim *s)
{
    if ((s->step + 1) % EVERY == 0)
        mix_low_precision(s);
}

/* async: a round begins after a step if no rank had one under way when the step ended.  keep[0] is
 * each rank's copy of its weights.  When a rank has the sum, it moves by what the mean of the
 * copies is more than its own. */
static void mix_async(struct sim *s)
{
    int n_under_way = 0;

    for (int r = 0; r < s->n; r++)
        n_under_way += s->is_under_way[r];
    for (int r = 0; r < s->n; r++)
        for (int64_t i = 0; i < sim_space.len && s->is_under_way[r] && s->has_ended[r]; i++) {
            double mean = 0;

            for (int q = 0; q < s->n; q++)
                mean += s->keep[0][q][i] / s->n;
            s->w[r][i] += mean - s->keep[0][r][i];
        }
    for (int r = 0; r < s->n; r++)
        s->is_under_way[r] &= !s->has_ended[r];
    if (n_under_way > 0 || s->n == 1)
        return;
    for (int r = 0; r < s->n; r++) {
        memcpy(s->keep[0][r], s->w[r], sizeof s->w[r]);
        s->is_under_way[r] = 1;
    }
    s->n_rounds++;
}

const struct sim_strategy sim_owns[] = {
    {.name = "local_sgd",
     .job = "{name: local_sgd, every: 3}",
     .combine = own,
     .mix = mix_local,
     .tol = 1e-5},
    {.name = "post-local SGD",
     .job = "{name: local_sgd, every: 3, start: 7}",
     .combine = combine_post_local,
     .mix = mix_post_local,
     .tol = 1e-5},
    {.name = "DiLoCo",
     .job = "{name: local_sgd, every: 3, outer: nesterov, outer_lr: 0.5, outer_momentum: 0.8}",
     .combine = combine_outer,
     .mix = mix_outer,
     .tol = 1e-5},
    {.name = "DiLoCo behind all-reduce",
     .job = "{name: local_sgd, every: 3, start: 7, outer: nesterov, outer_lr: 0.5, "
            "outer_momentum: 0.8}",
     .combine = combine_post_outer,
     .mix = mix_post_outer,
     .tol = 1e-5},
    {.name = "decentralized",
     .job = "{name: decentralized, every: 2}",
     .combine = decentralized,
     .tol = 1e-5},
    {.name = "decentralized, one peer",
     .job = "{name: decentralized, peers: shift_one}",
     .combine = shift_one,
     .tol = 1e-5},
    {.name = "decentralized, one peer in every third step",
     .job = "{name: decentralized, peers: shift_one, every: 3}",
     .combine = shift_now_and_then,
     .tol = 1e-5},
    {.name = "low_precision_decentralized",
     .job = "{name: low_precision_decentralized}",
     .combine = combine_low_precision,
     .mix = mix_low_precision,
     .tol = 0},
    {.name = "low_precision_decentralized, after every third step",
     .job = "{name: low_precision_decentralized, every: 3}",
     .combine = combine_low_precision,
     .mix = mix_low_precision_now_and_then,
     .tol = 0},
    {.name = "async",
     .job = "{name: async, interval: 0}",
     .combine = own,
     .mix = mix_async,
     .is_timed = 1,
     .tol = 1e-5},
};

const int sim_n_owns = sizeof sim_owns / sizeof sim_owns[0];
