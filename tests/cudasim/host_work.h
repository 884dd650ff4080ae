/* host_work - queues a piece of host code on a stream; device memory is open while it runs.
 *
 * The simulated libraries use it, and so do tests that need the device to break or to take time. */
#ifndef TESTS_CUDASIM_HOST_WORK_H
#define TESTS_CUDASIM_HOST_WORK_H

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

void sim_host_work(struct CUstream_st *s, void (*fn)(void *arg), void *arg);

/* 1 if p points into device memory. */
int sim_is_device(const void *p);

/* As sim_host_work, but `release` frees arg when neither the stream nor a recording holds the work
 * any more. */
void sim_host_work_owned(struct CUstream_st *s, void (*fn)(void *arg), void *arg,
                         void (*release)(void *arg));

/* The work that calls this is the device's last: it does no more work, and every call of the
 * runtime fails.  A kernel with an illegal memory access does this to a process. */
void sim_break(void);

/* The work that calls this takes `us` microseconds, as events measure it; other work takes no time.
 * Host work that is not part of a recording takes at least 50 us. */
void sim_spend(double us);

#ifdef __cplusplus
}
#endif

#endif
