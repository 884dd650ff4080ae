/* parts - the parts of one task, on the OpenMP threads that oneDNN uses.
 *
 * Threads: the engine's. */
#ifndef BACKEND_CPU_PARTS_H
#define BACKEND_CPU_PARTS_H

#include <stdint.h>

/* The number of parts for n things that take `work` vector instructions altogether, roughly: one
 * for each of n_threads, unless a part would then have less than least_work. */
int parts_of(int n_threads, int64_t least_work, int64_t n, int64_t work);

/* Call part(task, i) for each i < n_parts, on no more threads than omp_set_num_threads allows;
 * returns when all are done. */
void parts_run(int n_parts, void (*part)(const void *task, int i), const void *task);

#endif
