/* clock - the two clocks of the system.
 *
 * Durations use the monotonic clock only, since the other one may be set.
 *
 * Threads: any. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

int64_t clock_mono_ns(void); /* CLOCK_MONOTONIC */
double clock_wall_s(void);   /* Unix time in seconds */

static inline double clock_since_s(int64_t start_ns)
{
    return 1e-9 * (double)(clock_mono_ns() - start_ns);
}

#endif
