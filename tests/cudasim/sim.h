/* sim - what tests say to the simulator, and ask it.
 *
 * Threads of a block are fibers: one runs until it ends or meets others at a barrier or a warp's
 * collective, then another of those that can; in an order that the seed picks.  Blocks run one
 * after another, also in the seed's order.  So a missing __syncthreads shows as numbers that vary
 * with the seed, and an unequal one (some threads there, others at another or ended) as a failed
 * launch.
 *
 * Threads: one. */
#ifndef TESTS_CUDASIM_SIM_H
#define TESTS_CUDASIM_SIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 0: threads and blocks in order; 1: in reverse; others: random. */
void sim_set_seed(uint64_t seed);

/* 0: a stream does its work only when somebody waits for it or asks.  Others: whenever work is
 * queued, each stream does some of its own, as much as the seed picks; so streams run ahead of each
 * other, and a wait that is missing between them shows as wrong numbers. */
void sim_set_order(uint64_t seed);

/* How many elements a launch may number where it has 32 bits for that: all of them at first, few to
 * have a kernel make several launches. */
void sim_limit_index(int64_t most);

/* Why the last launch failed (also in cudaGetErrorString), or "". */
const char *sim_failure(void);

uint64_t sim_launches(void); /* kernels run so far */

/* Calls of the runtime so far; the n-th from now fails (1: the next), 0 switches that off. */
uint64_t sim_calls(void);
void sim_fail_at(uint64_t n);

/* 1: no event tells a time any more; 0: they do. */
void sim_stop_clock(int stopped);

/* Of these: those that allocate or free, and those that wait for the device. */
uint64_t sim_allocs(void);
uint64_t sim_waits(void);

/* Streams, events, device and pinned memory that are there now: 0 when all is given back. */
int sim_open_things(void);

#ifdef __cplusplus
}
#endif

#endif
