/* schedule - the learning rate, as a pure function of the global step.  The schedule `plateau` also
 * depends on the validations so far.  step/step.c asks for the rate of each step.
 *
 *   warm-up   step g < W:  rate = peak * (f + (1 - f) * w), f = warmup_start, or 1 / n_ranks with
 *             warmup_from_one_rank; w = (g + 1) / W, or with warmup_shape log
 *             w = log(g + 2) / log(W + 1)
 *   constant  peak
 *   step      peak * gamma^floor(g / every)
 *   cosine    min + (peak - min) * (1 + cos(pi * t)) / 2     (Loshchilov, Hutter 2017, equation 5)
 *   linear    peak + (min - peak) * t
 *   multistep, exponential, onecycle, wsd, range   in their files
 *   plateau   in its file; it follows the validations, by numbers of its own in the job's state
 *
 * with t = (g - W) / (total - W), which is 0 at the end of the warm-up and 1 after the last step.
 * `total` is schedule.total_steps, or if that is 0 the job's number of steps.
 *
 * With schedule.timing deepspeed a step has the rate that DeepSpeed 0.19.8 gives it.  There the
 * scheduler counts L = max(g - 1, 0), because it makes its own first step after the first update:
 *   L < W     w = L / W, or with warmup_shape log w = log(L + 1) / log(W)
 *   else      t = (L - W + lead) / (total - W), and t = 1 if total <= W
 * `lead` is 1 for cosine (WarmupCosineLR), whose first update has the rate 0, and 0 for constant
 * (WarmupLR) and linear (WarmupDecayLR).
 *
 * `peak` is the optimizer's rate: optimizer.lr, or with optimizer.scale_lr_by_ranks (Horovod's
 * rule) optimizer.lr times the number of ranks that train this step.  With f = 1 / n_ranks the
 * warm-up is Horovod's gradual one.  Horovod's momentum correction is for optimizers whose momentum
 * contains the rate (Keras).  optim/sgd.h multiplies the momentum by the rate of each step instead,
 * which has the effect of the correction (Goyal and others 2017, "Accurate, Large Minibatch SGD",
 * section 3). min_lr is not scaled.  Every rank computes the rate for itself, in double, so all
 * ranks have the same rate at the same step.
 *
 * To add a schedule: a word in optim/meson.build, and `schedule_NAME` in a file of optim/.
 *
 * Threads: pure. */
#ifndef OPTIM_SCHEDULE_H
#define OPTIM_SCHEDULE_H

#include <stdint.h>

#include "config/option.h"
#include "optim/goal.h"
#include "optim/optimizer.h"

#include "optim/schedule_list.h" /* generated: SCHEDULE_LIST(X) with X(name) for each entry */

enum { SCHEDULE_STATE = 4 }; /* numbers that a schedule may keep: a score, then three counts */

/* The length of the job, which schedules such as cosine need, and the ranks. */
struct schedule_span {
    int64_t steps_per_epoch;
    int64_t total_steps; /* epochs * steps_per_epoch, or train.max_steps if that comes first */
    int n_ranks;         /* of the formation that trains the step */
    const double *state; /* [SCHEDULE_STATE]; NULL if the schedule keeps no numbers */
};

/* A step after the warm-up, as a schedule sees it. */
struct schedule_at {
    const struct schedule_span *span;
    int64_t step;    /* from 0, the warm-up's steps included */
    int64_t since;   /* steps from the warm-up's end to this one */
    int64_t rest;    /* steps from the warm-up's end to the schedule's end, >= 1 */
    double progress; /* t of the formulas above, 0 to 1 */
    double peak;
};

/* If a schedule follows schedule.timing deepspeed, and how (`lead` above). */
enum schedule_lead { SCHEDULE_NO_LEAD, SCHEDULE_LEAD_0, SCHEDULE_LEAD_1 };

struct schedule {
    struct option_group group;
    enum schedule_lead lead; /* SCHEDULE_NO_LEAD: the job's check refuses timing deepspeed */
    double (*rate)(const void *options, const struct schedule_at *at);
    /* NULL, unless the schedule follows the validations.  `begin` sets the first numbers (NULL:
     * zeros), and `validated` changes them after a validation. */
    void (*begin)(double state[SCHEDULE_STATE]);
    void (*validated)(const void *options, const struct validated *v, double state[SCHEDULE_STATE]);
};

#define X(name) extern const struct schedule schedule_##name;
SCHEDULE_LIST(X)
#undef X

extern const struct option_group *const schedules[]; /* all of them; NULL at the end */

enum schedule_warmup { SCHEDULE_WARMUP_LINEAR, SCHEDULE_WARMUP_LOG };
enum schedule_timing { SCHEDULE_TIMING_DPTRAIN, SCHEDULE_TIMING_DEEPSPEED };

/* The section `schedule` of a job. */
struct schedule_options {
    const struct schedule *kind;
    const void *options;   /* of kind: its own struct */
    int64_t total_steps;   /* 0: those of the job */
    int64_t warmup_steps;  /* the rate rises over this many steps, */
    int64_t warmup_epochs; /* or, if that is 0, over this many epochs */
    enum schedule_warmup warmup_shape;
    enum schedule_timing timing;
    double warmup_start;      /* from this fraction of the peak, */
    int warmup_from_one_rank; /* or, if this is 1, from optimizer.lr */
};

/* The steps over which the schedule is laid out, in a job of n_steps. */
int64_t schedule_total(const struct schedule_options *s, int64_t n_steps);

/* The learning rate of `step`. */
double schedule_rate(const struct schedule_options *s, const struct optimizer_options *o,
                     const struct schedule_span *span, int64_t step);

/* The options of entries that have some. */
struct schedule_step_options {
    int64_t every_steps;  /* the rate is multiplied by gamma once in this many steps, */
    int64_t every_epochs; /* or in this many epochs; exactly one of the two is > 0 */
    double gamma;
};

struct schedule_multistep_options {
    struct option_ints epochs, steps; /* exactly one of the two has some */
    double gamma;
};

enum schedule_shape { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_SQRT };

struct schedule_onecycle_options {
    double rise, div, final_div;
    enum schedule_shape shape; /* not SCHEDULE_SQRT */
    int three_phases;
};

struct schedule_wsd_options {
    double decay; /* the part of the steps in which the rate goes down */
    enum schedule_shape shape;
    double min_lr;
};

struct schedule_plateau_options {
    enum goal goal; /* not GOAL_NONE */
    double factor, threshold, min_lr;
    int64_t patience, cooldown; /* validations */
};

struct schedule_range_options {
    double first_lr, last_lr;
};

struct schedule_anneal_options { /* cosine, linear */
    double min_lr;               /* the rate at the schedule's end */
};

#endif
