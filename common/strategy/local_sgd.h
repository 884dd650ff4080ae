/* local_sgd - the options of the strategy local_sgd.
 *
 * local_sgd.c defines the strategy and explains the options.
 *
 * Threads: constant once the job is read. */
#ifndef STRATEGY_LOCAL_SGD_H
#define STRATEGY_LOCAL_SGD_H

#include <stdint.h>

enum local_sgd_outer { OUTER_NONE, OUTER_NESTEROV };

struct local_sgd_options {
    int64_t every, start;
    enum local_sgd_outer outer;
    double outer_lr, outer_momentum;
};

#endif
