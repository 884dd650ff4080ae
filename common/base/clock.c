/* The two clocks of the system, in the units that the rest of the code uses:
 * nanoseconds for durations, seconds for times of day. */
#include "base/clock.h"

#include <time.h>

int64_t clock_mono_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double clock_wall_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
