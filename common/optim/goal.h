/* goal - the metric by which train/loop.c and the schedule `plateau` decide which model is best and
 * whether training still makes progress.
 *
 * Threads: pure. */
#ifndef OPTIM_GOAL_H
#define OPTIM_GOAL_H

#include "config/words.h"

#define GOAL_LIST(X)                                \
    X(GOAL_NONE, "none")                            \
    X(GOAL_LOSS, "validation_loss")                 \
    X(GOAL_ACCURACY, "validation_accuracy")         \
    X(GOAL_AVERAGE_LOSS, "average_validation_loss") \
    X(GOAL_AVERAGE_ACCURACY, "average_validation_accuracy")

enum goal { GOAL_LIST(WORD_VALUE) };

/* Exact metrics of the whole validation set, the same on every rank. */
struct validated {
    double loss;                           /* mean over targets; NAN if one is not finite */
    double accuracy;                       /* 0 to 1 */
    double average_loss, average_accuracy; /* with the averaged weights; NAN if there are none */
};

static inline int goal_is_of_average(enum goal g)
{
    return g == GOAL_AVERAGE_LOSS || g == GOAL_AVERAGE_ACCURACY;
}

static inline int goal_is_accuracy(enum goal g)
{
    return g == GOAL_ACCURACY || g == GOAL_AVERAGE_ACCURACY;
}

/* The metric as a score, where a lower score is better. */
static inline double goal_score(enum goal g, const struct validated *v)
{
    if (goal_is_of_average(g))
        return g == GOAL_AVERAGE_ACCURACY ? -v->average_accuracy : v->average_loss;
    return g == GOAL_ACCURACY ? -v->accuracy : v->loss;
}

#endif
