/* pretend - an engine's answers without an engine: what the control plane needs, at once.
 *
 * Every rank has the same small layout and the same data; rank 0 makes ids for all, as with NCCL.
 * Training is one step with a collective every now and then, until it is aborted.
 *
 * Threads: any; no state. */
#ifndef TESTS_BENCH_SWARM_PRETEND_H
#define TESTS_BENCH_SWARM_PRETEND_H

#include "session/command.h"

/* The report that answers c, a fault when c is not what it must be; NULL: none before an abort
 * (CMD_TRAIN). */
struct report *pretend_answer(const struct cmd *c);

/* The first step of a formation is done. */
struct report *pretend_first_step(const struct cmd *train);

/* Training was broken off. */
struct report *pretend_aborted(int64_t generation);

/* Where training that began at `since_ns` is by now. */
void pretend_progress(int64_t generation, int64_t since_ns, int64_t now_ns, struct progress *out);

#endif
