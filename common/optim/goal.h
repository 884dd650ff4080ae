/* goal - the metric by which state/loop.c and the schedule `plateau` decide which model is best and
 * whether training still makes progress.
 *
 * Threads: pure. */
#ifndef OPTIM_GOAL_H
#define OPTIM_GOAL_H

#include "config/words.h"

#define GOAL_LIST(X)                                        \
    X(GOAL_NONE, "none")                                    \
    X(GOAL_LOSS, "validation_loss")                         \
    X(GOAL_ACCURACY, "validation_accuracy")                 \
    X(GOAL_AVERAGE_LOSS, "average_validation_loss")         \
    X(GOAL_AVERAGE_ACCURACY, "average_validation_accuracy") \
    X(GOAL_TOP5, "validation_top5")                         \
    X(GOAL_AVERAGE_TOP5, "average_validation_top5")

enum goal { GOAL_LIST(WORD_VALUE) };

/* Exact metrics of the whole validation set, the same on every rank. */
struct validated {
    double loss;           /* mean over the weighted targets; NAN if one is not finite */
    double accuracy, top5; /* 0 to 1 */
    /* The same with the averaged weights; NAN if there are none. */
    double average_loss, average_accuracy, average_top5;
};

static inline int goal_is_of_average(enum goal g)
{
    return g == GOAL_AVERAGE_LOSS || g == GOAL_AVERAGE_ACCURACY || g == GOAL_AVERAGE_TOP5;
}

static inline int goal_is_top5(enum goal g) { return g == GOAL_TOP5 || g == GOAL_AVERAGE_TOP5; }

/* The loss that can take the metric's place. */
static inline enum goal goal_loss(enum goal g)
{
    return goal_is_of_average(g) ? GOAL_AVERAGE_LOSS : GOAL_LOSS;
}

static inline int goal_is_accuracy(enum goal g)
{
    return g == GOAL_ACCURACY || g == GOAL_AVERAGE_ACCURACY;
}

/* The metric as a score, where a lower score is better. */
static inline double goal_score(enum goal g, const struct validated *v)
{
    switch (g) {
    case GOAL_ACCURACY:
        return -v->accuracy;
    case GOAL_TOP5:
        return -v->top5;
    case GOAL_AVERAGE_LOSS:
        return v->average_loss;
    case GOAL_AVERAGE_ACCURACY:
        return -v->average_accuracy;
    case GOAL_AVERAGE_TOP5:
        return -v->average_top5;
    default:
        return v->loss;
    }
}

#endif
