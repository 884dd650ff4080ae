/* async - the options of the strategy async.
 *
 * async.c defines the strategy and explains it.
 *
 * Threads: constant once the job is read. */
#ifndef STRATEGY_ASYNC_H
#define STRATEGY_ASYNC_H

#include <stdint.h>

struct async_options {
    int64_t interval_ms; /* least time from the start of one round to the start of the next */
};

#endif
