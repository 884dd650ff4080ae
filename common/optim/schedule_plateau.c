/* The schedule `plateau`: the rate drops when the validation's metric no longer improves.  It works
 * like torch.optim.lr_scheduler.ReduceLROnPlateau with threshold_mode rel, stepped after each
 * validation.  A metric that is NaN counts as no better. */
#include "optim/schedule.h"

#include <math.h>

#include "base/util.h"

#define AT(field) offsetof(struct schedule_plateau_options, field)

static const char *const goals[] = {GOAL_LIST(WORD_NAME) NULL};

static const struct option rows[] = {
    {"schedule.metric", OPT_CHOICE, AT(goal), "validation_loss", .choices = goals,
     .first = GOAL_LOSS, .help = "The metric that is to get better."},
    {"schedule.factor", OPT_REAL, AT(factor), "0.1", 0, 1, .flags = OPT_ABOVE | OPT_BELOW,
     .help = "The number by which the rate is multiplied."},
    {"schedule.patience", OPT_INT, AT(patience), "10", 0, 1e6, .unit = "validations",
     .help = "This many validations in a row may be no better; the next one lowers the rate."},
    {"schedule.threshold", OPT_REAL, AT(threshold), "0.0001", 0, 1,
     .help = "A validation counts as better if it differs from the best by more than this part of "
             "it."},
    {"schedule.cooldown", OPT_INT, AT(cooldown), "0", 0, 1e6, .unit = "validations",
     .help = "After the rate was lowered, this many validations are not counted."},
    {"schedule.min_lr", OPT_REAL, AT(min_lr), "0", 0, 1e6,
     .help = "The rate does not fall below this."},
};

/* The schedule's numbers in the job's state (SCHEDULE_STATE). */
enum { BEST, N_BAD, COOLDOWN, N_DROPS };

static void schedule_plateau_begin(double state[SCHEDULE_STATE]) { state[BEST] = INFINITY; }

static int is_better(const struct schedule_plateau_options *o, double score, double best)
{
    return isinf(best) ? score < best : score < best - o->threshold * fabs(best);
}

static void schedule_plateau_validated(const void *options, const struct validated *v,
                                       double state[SCHEDULE_STATE])
{
    const struct schedule_plateau_options *o = options;
    const double score = goal_score(o->goal, v);

    if (is_better(o, score, state[BEST])) {
        state[BEST] = score;
        state[N_BAD] = 0;
    } else {
        state[N_BAD]++;
    }
    if (state[COOLDOWN] > 0) {
        state[COOLDOWN]--;
        state[N_BAD] = 0;
    }
    if (state[N_BAD] > (double)o->patience) {
        state[N_DROPS]++;
        state[COOLDOWN] = (double)o->cooldown;
        state[N_BAD] = 0;
    }
}

/* PyTorch leaves out a drop that would change the rate by less than this. */
static const double least_drop = 1e-8;

static double schedule_plateau_rate(const void *options, const struct schedule_at *at)
{
    const struct schedule_plateau_options *o = options;
    double now = at->peak;

    for (double i = 0; i < at->span->state[N_DROPS]; i++) {
        const double next = fmax(now * o->factor, o->min_lr);

        if (now - next <= least_drop)
            break;
        now = next;
    }
    return now;
}

const struct schedule schedule_plateau = {
    .group = {.name = "plateau",
              .help = "times factor whenever validation gets no better",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct schedule_plateau_options)},
    .rate = schedule_plateau_rate,
    .begin = schedule_plateau_begin,
    .validated = schedule_plateau_validated,
};
