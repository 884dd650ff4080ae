/* An arena is a list of blocks, the newest first; allocation takes the next bytes of the newest.
 * A request that does not fit opens a block of its own size or of the usual one. */
#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

/* Most arenas are those of one short message: the first block is small, and so quickly zeroed. */
enum { FIRST_BYTES = 960, BLOCK_BYTES = 16 << 10, ALIGN = 16 };

struct arena_block {
    struct arena_block *next;
    size_t cap;
    _Alignas(16) char data[];
};

void arena_init(struct arena *a) { *a = (struct arena){0}; }

void arena_fini(struct arena *a)
{
    while (a->blocks) {
        struct arena_block *next = a->blocks->next;

        free(a->blocks);
        a->blocks = next;
    }
    a->used = 0;
}

static void add_block(struct arena *a, size_t n_bytes)
{
    const size_t least = a->blocks ? BLOCK_BYTES : FIRST_BYTES;
    size_t cap = n_bytes > least ? n_bytes : least;
    struct arena_block *b = xcalloc(1, sizeof *b + cap);

    b->cap = cap;
    b->next = a->blocks;
    a->blocks = b;
    a->used = 0;
}

void *arena_alloc(struct arena *a, size_t n_bytes)
{
    void *p;

    n_bytes = (n_bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!a->blocks || a->blocks->cap - a->used < n_bytes)
        add_block(a, n_bytes);
    p = a->blocks->data + a->used;
    a->used += n_bytes;
    return p;
}

void *arena_copy(struct arena *a, const void *src, size_t n_bytes)
{
    void *p = arena_alloc(a, n_bytes);

    if (n_bytes)
        memcpy(p, src, n_bytes);
    return p;
}

char *arena_strdup(struct arena *a, const char *s) { return arena_copy(a, s, strlen(s) + 1); }

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap;
    char *s;
    int len;

    va_start(ap, fmt);
    len = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ASSERT(len >= 0);
    s = arena_alloc(a, (size_t)len + 1);
    va_start(ap, fmt);
    vsnprintf(s, (size_t)len + 1, fmt, ap);
    va_end(ap);
    return s;
}
