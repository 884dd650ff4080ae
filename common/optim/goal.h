/* goal - the metric by which the loop decides: when the model is best, when training stalls.
 *
 * Threads: pure. */
#ifndef OPTIM_GOAL_H
#define OPTIM_GOAL_H

#include "config/words.h"

#define GOAL_LIST(X)                \
    X(GOAL_NONE, "none")            \
    X(GOAL_LOSS, "validation_loss") \
    X(GOAL_ACCURACY, "validation_accuracy")

enum goal { GOAL_LIST(WORD_VALUE) };

/* Exact metrics of the whole validation set, the same on every rank. */
struct validated {
    double loss;     /* NAN if one target's loss is not finite */
    double accuracy; /* 0 to 1 */
};

/* The metric as a score of which less is better. */
static inline double goal_score(enum goal g, const struct validated *v)
{
    return g == GOAL_ACCURACY ? -v->accuracy : v->loss;
}

#endif
