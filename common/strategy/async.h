/* async - the options of the strategy async.
 * Its definition is in async.c. */
#ifndef STRATEGY_ASYNC_H
#define STRATEGY_ASYNC_H

#include <stdint.h>

struct async_options {
    int64_t interval_ms;
};

#endif
