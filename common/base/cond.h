/* cond - conditions whose waits end by the monotonic clock.
 *
 * pthread's own conditions take times of day, which may be set while a thread waits.
 *
 * Life:    cond_init -> cond_wait_until, pthread_cond_broadcast, ... -> pthread_cond_destroy.
 * Threads: any; the mutex is the caller's. */
#ifndef BASE_COND_H
#define BASE_COND_H

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

static inline void cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

/* Wait as pthread_cond_wait does, with the lock held, but no longer than until `until_ns` of
 * clock_mono_ns.  1: that time has passed.  0: the condition may have changed; look again. */
static inline int cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, int64_t until_ns)
{
    const struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};

    return pthread_cond_timedwait(c, lock, &until) == ETIMEDOUT;
}

#endif
