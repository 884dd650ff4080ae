/* average - when the averaged weights take part of a step's weights, and how much.
 *
 * Threads: pure. */
#ifndef OP_AVERAGE_H
#define OP_AVERAGE_H

#include "ir/graph.h" /* struct step_scalars */
#include "op/control.h"

/* The factor w of average += w * (param - average): 0 if this step adds nothing, and 1 if the
 * average becomes the weights themselves.
 *
 * The average begins with the weights after step `first` (of all steps, from 1), and is those of
 * each step until then.  From there on every `every`-th step counts: with decay < 0 all count the
 * same, else the average keeps `decay` of what it was.  Steps are counted whether they were applied
 * or not, so that the ends of epochs stay the ends of epochs.  If a step that counts is skipped,
 * the average stays as it is and stands for that step's weights in the mean.  The first update of a
 * run is always taken as it is, because there is no average before it. */
OP_BOTH static inline float average_weight(const struct step_scalars *s, int64_t first,
                                           int64_t every, double decay)
{
    const int64_t since = (int64_t)s->step + 1 - first;

    if (since <= 0 || s->n_updates == 0)
        return 1.0f;
    if (since % every)
        return 0.0f;
    return decay < 0 ? 1.0f / (float)(since / every + 1) : (float)(1.0 - decay);
}

#endif
