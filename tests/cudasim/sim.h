/* sim - the calls by which tests control the simulator and ask it.
 *
 * The threads of a block are fibers.  One fiber runs until it ends or waits for others at a barrier
 * or a warp's collective; then another one that can run is chosen, in an order that the seed picks.
 * Blocks run one after another, also in the seed's order.  So a missing __syncthreads shows as
 * numbers that vary with the seed.  If some threads are at one barrier while others are at another
 * or have ended, the launch fails.
 *
 * Threads: one. */
#ifndef TESTS_CUDASIM_SIM_H
#define TESTS_CUDASIM_SIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 0: threads and blocks in order; 1: in reverse; others: random. */
void sim_set_seed(uint64_t seed);

/* 0: a stream does its work only when the host waits for it or queries it.  Other seeds: whenever
 * work is queued, each stream does a part of its own work, as much as the seed picks.  So streams
 * run ahead of each other, and a missing wait between them shows as wrong numbers. */
void sim_set_order(uint64_t seed);

/* Sets the most elements of a launch that numbers them in 32 bits (at first INT32_MAX).  A small
 * limit makes a kernel do several launches. */
void sim_limit_index(int64_t most);

/* The reason why the last launch failed (also in cudaGetErrorString), or "". */
const char *sim_failure(void);

uint64_t sim_launches(void); /* number of kernels run so far */

/* sim_calls is the number of calls of the runtime so far.  sim_fail_at makes the n-th call from now
 * fail (1: the next one); 0 switches that off. */
uint64_t sim_calls(void);
void sim_fail_at(uint64_t n);

/* Kernels read the machine's clock from now on.  Until then each reading is 1 us after the one
 * before, the same in every run. */
void sim_use_real_clock(void);

/* 1: events tell no time from now on; 0: they do. */
void sim_stop_clock(int stopped);

/* The number of calls so far that allocate or free, and of those that wait for the device. */
uint64_t sim_allocs(void);
uint64_t sim_waits(void);

/* The number of streams, events, recordings and pieces of device and pinned memory that exist now;
 * 0 when all are freed. */
int sim_open_things(void);

/* The bytes of device memory that are allocated now, in whole pages. */
size_t sim_device_bytes(void);

#ifdef __cplusplus
}
#endif

#endif
