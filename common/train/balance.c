/* balance - measures the ranks' speed, plans their shares, and makes programs for them.
 *
 * A device records its steps anew for new shares.  All ranks change their shares before the same
 * step, so they also record at the same times.
 *
 * A plan gives each rank samples in proportion to its speed, within the allowed limits.  The
 * samples that are left go one by one to the rank that would be done first with one more. */
#include "train/balance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "train/trainer_impl.h"

/* Shares change if the present time of a step, divided by the planned time, is at least this. */
static const double least_gain = 1.1;

/* ---- the plan ---- */

/* The time of a step: that of the rank which takes longest. */
static double step_time(const double *rate, int n, const int64_t *share)
{
    double most = 0;

    for (int r = 0; r < n; r++)
        most = fmax(most, (double)share[r] / rate[r]);
    return most;
}

/* With `more` 1: the rank that is done first if it has one more sample.  With `more` -1: the rank
 * that is done last now.  Only ranks whose share then is within [least, most] are candidates; -1:
 * there is none. */
static int balance_pick(const double *rate, int n, const int64_t *share, int more, int64_t least,
                        int64_t most)
{
    double best = INFINITY;
    int at = -1;

    for (int r = 0; r < n; r++) {
        const double time =
            more > 0 ? (double)(share[r] + 1) / rate[r] : -(double)share[r] / rate[r];

        if (share[r] + more <= most && share[r] + more >= least && time < best) {
            best = time;
            at = r;
        }
    }
    return at;
}

/* Give each rank that may have more samples a part of `left`, by speed.  Returns what is left. */
static int64_t hand_out(const double *rate, int n, int64_t left, int64_t most, int64_t *share)
{
    const int64_t whole = left;
    double all = 0;

    for (int r = 0; r < n; r++)
        all += share[r] < most ? rate[r] : 0;
    for (int r = 0; r < n && all > 0; r++) {
        const int64_t part = (int64_t)((double)whole * rate[r] / all);

        if (share[r] < most && part > 0) {
            const int64_t more = min_i64(min_i64(part, most - share[r]), left);

            share[r] += more;
            left -= more;
        }
    }
    return left;
}

int balance_plan(const double *rate, int n, int64_t batch, int64_t most, int64_t *share)
{
    const int64_t least = batch >= n;
    int64_t *plan = xcalloc((size_t)n, sizeof *plan), left = batch, before;
    int is_better;

    ASSERT(most * n >= batch);
    do {
        before = left;
        left = hand_out(rate, n, left, most, plan);
    } while (left > 0 && left < before);
    for (; left > 0; left--)
        plan[balance_pick(rate, n, plan, 1, 0, most)]++;
    for (int r = 0; r < n; r++)
        if (plan[r] < least) {
            plan[balance_pick(rate, n, plan, -1, least, most)]--;
            plan[r]++;
        }
    is_better = step_time(rate, n, share) > least_gain * step_time(rate, n, plan);
    if (is_better)
        memcpy(share, plan, sizeof *share * (size_t)n);
    free(plan);
    return is_better;
}

/* ---- what is done with a plan ---- */

static int balance_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double balance_rate(const int64_t *n_samples, const int64_t *busy_ns, int n)
{
    double rate[BALANCE_STEPS];
    int n_rates = 0;

    ASSERT(n <= BALANCE_STEPS);
    for (int i = 0; i < n; i++)
        if (n_samples[i] > 0)
            rate[n_rates++] = 1e9 * (double)n_samples[i] / (double)max_i64(busy_ns[i], 1);
    if (n_rates == 0)
        return 0;
    qsort(rate, (size_t)n_rates, sizeof *rate, balance_compare);
    return (rate[(n_rates - 1) / 2] + rate[n_rates / 2]) / 2;
}

static void list_equal(int n, int64_t batch, int64_t *share)
{
    for (int r = 0; r < n; r++)
        share[r] = span_part((struct span){0, batch}, n, r).n;
}

/* Each rank gets half of its change, rounded away from 0.  If the gains then exceed the losses, as
 * many odd gains as necessary are rounded down instead; and likewise losses. */
static void go_half_way(const int64_t *plan, int n, int64_t *share)
{
    int64_t sum = 0;

    for (int r = 0; r < n; r++) {
        const int64_t all = plan[r] - share[r];

        sum += (all + (all > 0) - (all < 0)) / 2;
    }
    for (int r = 0; r < n; r++) {
        const int64_t all = plan[r] - share[r];
        int64_t half = (all + (all > 0) - (all < 0)) / 2;

        if (all % 2 != 0 && sum != 0 && (all > 0) == (sum > 0)) {
            half -= sum > 0 ? 1 : -1;
            sum -= sum > 0 ? 1 : -1;
        }
        share[r] += half;
    }
    ASSERT(sum == 0);
}

/* 1: keep the shares; 0: they are on trial, and a step of `seconds` is too slow, so give them up.
 */
static int balance_judge(struct balance_course *c, double seconds)
{
    const int is_on_trial = c->most_seconds > 0, is_good = seconds <= c->most_seconds;

    c->most_seconds = 0;
    c->wait = BALANCE_STEPS;
    if (!is_on_trial)
        return 1;
    c->pause = is_good ? 0 : min_i64(2 * max_i64(c->pause, BALANCE_STEPS), BALANCE_MOST_PAUSE);
    if (!is_good)
        c->wait = c->pause;
    return is_good;
}

/* Decide on new shares.  If equal shares are as good as the present ones, take equal ones, because
 * unequal ones may have come from noise. */
static void balance_choose(struct balance_course *c, const double *rate, int n, int64_t batch,
                           const int64_t *equal, int64_t *share)
{
    const double now = step_time(rate, n, share);
    int64_t *plan;

    if (!balance_judge(c, now)) {
        memcpy(share, equal, sizeof *share * (size_t)n);
        return;
    }
    plan = xcalloc((size_t)n, sizeof *plan);
    memcpy(plan, share, sizeof *plan * (size_t)n);
    if (balance_plan(rate, n, batch, 2 * ceil_div_i64(batch, n), plan)) {
        go_half_way(plan, n, share);
        c->most_seconds = now / (1 + (now / step_time(rate, n, share) - 1) / 2);
    } else if (step_time(rate, n, equal) <= now) {
        memcpy(share, equal, sizeof *share * (size_t)n);
    }
    free(plan);
}

int balance_follow(struct balance_course *c, const double *rate, int n, int64_t batch,
                   int64_t *share)
{
    const size_t n_bytes = sizeof *share * (size_t)n;
    int64_t *equal = xcalloc((size_t)n, sizeof *equal), *before = xcalloc(1, n_bytes);
    int is_changed;

    list_equal(n, batch, equal);
    memcpy(before, share, n_bytes);
    balance_choose(c, rate, n, batch, equal, share);
    is_changed = memcmp(before, share, n_bytes) != 0;
    free(before);
    free(equal);
    return is_changed;
}

/* ---- a formation ---- */

void balance_reset(struct trainer *t)
{
    free(t->balance.bound);
    t->balance = (struct balance){0};
    t->sampler.bound = NULL;
}

void balance_begin(struct trainer *t) { t->balance.due = t->state->at.step + BALANCE_STEPS; }

void balance_note(struct balance *b, int64_t step, int64_t busy_ns)
{
    b->busy_ns[step % BALANCE_STEPS] = busy_ns;
}

/* This rank's speed in the last BALANCE_STEPS steps. */
static double own_rate(const struct trainer *t)
{
    int64_t n[BALANCE_STEPS];

    for (int64_t step = t->state->at.step - BALANCE_STEPS; step < t->state->at.step; step++) {
        const struct sampler_step at = sampler_at(&t->sampler, step);

        n[step % BALANCE_STEPS] = sampler_micro(&at, t->n_ranks, t->rank, 1, 0).n;
    }
    return balance_rate(n, t->balance.busy_ns, BALANCE_STEPS);
}

/* Gather every rank's speed into rate[n_ranks].  Returns 1 if a rank computed nothing. */
static int balance_measure(struct trainer *t, double *rate, struct err *err)
{
    const double mine = own_rate(t);
    int rc = step_allgather(&t->step, PHASE_UPDATE, &mine, sizeof mine, rate, err);

    for (int r = 0; r < t->n_ranks && rc == 0; r++)
        rc = !(rate[r] > 0);
    return rc;
}

static void report_shares(struct trainer *t, const int64_t *share)
{
    struct report *r = report_new(REPORT_REBALANCE, 0);

    r->rebalance.step = t->state->at.step;
    r->rebalance.n_ranks = t->n_ranks;
    r->rebalance.share = xcalloc((size_t)t->n_ranks, sizeof *r->rebalance.share);
    for (int k = 0; k < t->n_ranks; k++)
        r->rebalance.share[k] = (double)share[k];
    t->hooks.report(t->hooks.arg, r);
}

static int take_shares(struct trainer *t, const int64_t *share, int64_t last, struct err *err)
{
    int64_t *bound = xcalloc((size_t)t->n_ranks + 1, sizeof *bound);
    int rc;

    for (int r = 0; r < t->n_ranks; r++)
        bound[r + 1] = bound[r] + share[r];
    free(t->balance.bound);
    t->sampler.bound = t->balance.bound = bound;
    tapes_clear(t->step.tapes);
    rc = trainer_make_programs(t, err);
    if (rc == 0)
        rc = trainer_start_feed(t, last, err);
    if (rc == 0 && t->rank == 0)
        report_shares(t, share);
    return rc;
}

static int balance_follow_times(struct trainer *t, const double *rate, int64_t last,
                                struct err *err)
{
    struct balance *b = &t->balance;
    const int n = t->n_ranks;
    int64_t *share = xcalloc((size_t)n, sizeof *share);
    int rc = 0;

    list_equal(n, t->sampler.global_batch, share);
    for (int r = 0; r < n && b->bound; r++)
        share[r] = b->bound[r + 1] - b->bound[r];
    if (balance_follow(&b->course, rate, n, t->sampler.global_batch, share))
        rc = take_shares(t, share, last, err);
    free(share);
    return rc;
}

int balance_is_due(const struct trainer *t, int64_t step)
{
    return t->job->cluster.rebalance && t->n_ranks > 1 && step >= t->balance.due;
}

int balance_if_due(struct trainer *t, int64_t last, struct err *err)
{
    struct balance *b = &t->balance;
    double *rate;
    int rc;

    if (!balance_is_due(t, t->state->at.step))
        return 0;
    rate = xcalloc((size_t)t->n_ranks, sizeof *rate);
    b->course.wait = BALANCE_STEPS;
    rc = balance_measure(t, rate, err);
    if (rc == 0)
        rc = balance_follow_times(t, rate, last, err);
    free(rate);
    b->due = t->state->at.step + b->course.wait;
    return rc < 0 ? err_wrap(err, "cluster.rebalance") : 0;
}
