/* pretend - an engine's answers without an engine: the reports that the control plane needs, at
 * once.
 *
 * Every rank has the same small layout and the same data; rank 0 makes ids for all, as with NCCL.
 * Training is one step with a collective every 100 ms, until it is aborted.
 *
 * Threads: any; there is no state. */
#ifndef TESTS_BENCH_SWARM_PRETEND_H
#define TESTS_BENCH_SWARM_PRETEND_H

#include "session/command.h"

/* The report that answers c: a fault if c is wrong; NULL if c has no answer before an abort
 * (CMD_TRAIN). */
struct report *pretend_answer(const struct cmd *c);

/* The report that the first step of a formation is done. */
struct report *pretend_first_step(const struct cmd *train);

/* The report that training was aborted. */
struct report *pretend_aborted(int64_t generation);

/* The progress, at now_ns, of training that began at `since_ns`. */
void pretend_progress(int64_t generation, int64_t since_ns, int64_t now_ns, struct progress *out);

#endif
