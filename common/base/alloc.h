/* alloc - memory from the heap, in two manners.
 *
 * Functions named x... are for small host objects.  They abort when memory is out: nothing sensible
 * could follow.  Functions named try_... are for tensors, and for any size that came from a file or
 * a peer.  They fail with ERR_NOMEM, which names the size.
 *
 * Every allocation is counted, so a test can show that a training step makes none.  A test can also
 * make the n-th try_ function fail.  All memory is released with free().
 * Threads: any. */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

void *xmalloc(size_t n_bytes);
void *xcalloc(size_t n, size_t size); /* zeroed */
void *xrealloc(void *p, size_t n_bytes);
char *xstrdup(const char *s);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
char *xvasprintf(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));

/* `n_bytes` zeroed bytes, aligned to 64, in *out; `what` names it in the message.  From 4 MiB on
 * they are aligned to 2 MiB, advised as huge pages, and take physical memory only as they are used.
 * Fails with ERR_NOMEM. */
int try_alloc(void **out, size_t n_bytes, const char *what, struct err *err);

/* Make bytes of try_alloc's zero: those of whole huge pages go back to the system, and take
 * physical memory again as they are used.  For a start: a page that is written to every step is
 * cheaper to overwrite. */
void alloc_clear(void *p, size_t n_bytes);

/* Like realloc: *p, which may be NULL, holds at least n_bytes, the new ones not zeroed.  Fails with
 * ERR_NOMEM, and *p is as it was. */
int try_realloc(void **p, size_t n_bytes, const char *what, struct err *err);

/* Allocations made so far by this process through this module. */
uint64_t alloc_count(void);

/* Tests: let the n-th try_alloc or try_realloc from now fail (1 = the next); 0 switches it off.
 * Returns what was left of the count before; 0: the allocation that was to fail has come. */
uint64_t alloc_fail_at(uint64_t n);

#endif
