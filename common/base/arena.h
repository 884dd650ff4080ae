/* arena - memory that is freed together.
 *
 * Small host objects (graph nodes, names, a parsed job) are allocated one after another and
 * released at once.  Blocks come from xmalloc, so allocation cannot fail.
 *
 * Life:    arena_init -> arena_alloc ... -> arena_fini.
 * Threads: one at a time. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks; /* newest first */
    size_t used;                /* bytes used of the newest */
};

void arena_init(struct arena *a); /* a zeroed arena is one, too */
void arena_fini(struct arena *a); /* frees all; a may be used again */

/* `n_bytes` zeroed bytes aligned to 16. */
void *arena_alloc(struct arena *a, size_t n_bytes);
void *arena_copy(struct arena *a, const void *src, size_t n_bytes);
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
