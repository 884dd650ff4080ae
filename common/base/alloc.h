/* alloc - memory from the heap, in two manners.
 *
 * x*()          for small host objects: abort when memory is out (nothing sensible could follow).
 * try_alloc()   for tensors, and for any size that came from a file or a peer: ERR_NOMEM names it.
 *
 * Every allocation is counted, so a test can show that a training step makes none, and the n-th
 * try_alloc() can be made to fail.  All of it is released with free(), except try_alloc_aligned's,
 * which free() takes too.
 * Threads: any. */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

void *xmalloc(size_t n_bytes);
void *xcalloc(size_t n, size_t size); /* zeroed */
void *xrealloc(void *p, size_t n_bytes);
char *xstrdup(const char *s);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* `n_bytes` zeroed bytes, aligned to 64 (to 2 MiB and advised as huge pages from 4 MiB on), in
 * *out; `what` names it in the message.  Fails with ERR_NOMEM. */
int try_alloc(void **out, size_t n_bytes, const char *what, struct err *err);

/* Allocations made so far by this process through this module. */
uint64_t alloc_count(void);

/* Tests: let the n-th try_alloc from now fail (1 = the next); 0 switches it off. */
void alloc_fail_at(uint64_t n);

#endif
