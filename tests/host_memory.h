/* host_memory - the memory of a test's own backend: the host's.
 *
 * Threads: any. */
#ifndef TESTS_HOST_MEMORY_H
#define TESTS_HOST_MEMORY_H

#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/alloc.h"

static inline int host_memory_alloc(struct backend *b, size_t n_bytes, const char *what, void **out,
                                    struct err *err)
{
    (void)b;
    return try_alloc(out, n_bytes, what, err);
}

static inline void host_memory_free(struct backend *b, void *p)
{
    (void)b;
    free(p);
}

/* In, out, and within. */
static inline int host_memory_copy(struct backend *b, void *to, const void *from, size_t n_bytes,
                                   struct err *err)
{
    (void)b, (void)err;
    memcpy(to, from, n_bytes);
    return 0;
}

static inline int host_memory_zero(struct backend *b, void *p, size_t n_bytes, struct err *err)
{
    (void)b, (void)err;
    memset(p, 0, n_bytes);
    return 0;
}

#endif
