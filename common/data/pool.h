/* pool - threads that divide the parts of one task between them, such as the samples of a batch.
 *
 * Life:    pool_new -> pool_run ... -> pool_free.
 * Threads: one at a time calls pool_run and pool_free; it works along with the pool's own.
 * Lock:    one mutex guards the task and its counters; `more` wakes the threads, `done` the caller.
 *          Which thread takes which part depends on chance, so parts must not depend on each
 *          other. */
#ifndef DATA_POOL_H
#define DATA_POOL_H

#include <stdint.h>

#include "base/err.h"

enum { POOL_MAX_THREADS = 256 };

struct pool;

/* A pool of n_threads, 1 .. POOL_MAX_THREADS, the caller of pool_run among them. */
int pool_new(struct pool **out, int n_threads, struct err *err);
void pool_free(struct pool *p); /* NULL is fine */

/* Call part(arg, i) for each i of [0,n), and return when all calls have returned. */
void pool_run(struct pool *p, void (*part)(void *arg, int64_t i), void *arg, int64_t n);

#endif
