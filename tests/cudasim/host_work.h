/* host_work - a piece of host code in a stream's order, with device memory open to it. */
#ifndef TESTS_CUDASIM_HOST_WORK_H
#define TESTS_CUDASIM_HOST_WORK_H

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

void sim_host_work(struct CUstream_st *s, void (*fn)(void *arg), void *arg);

/* Whether p points into device memory. */
int sim_is_device(const void *p);

/* The same; arg is given back by `release` once nothing will do the work any more, neither the
 * stream nor a recording of it. */
void sim_host_work_owned(struct CUstream_st *s, void (*fn)(void *arg), void *arg,
                         void (*release)(void *arg));

/* From the work under way on, which is the last, the device does nothing any more and every call
 * of the runtime fails: what a kernel that touches what is not its own does to a process. */
void sim_break(void);

/* The work under way takes so long, as events tell it; whatever says nothing takes no time.  Work
 * that is launched by itself takes 50 us at least, one in a recording what it says. */
void sim_spend(double us);

#ifdef __cplusplus
}
#endif

#endif
