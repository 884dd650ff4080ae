/* guarded - memory of a backend with a pattern before and after it.  guarded_intact checks the
 * pattern; under ASan the memory of the pattern is poisoned, too. */
#include "guarded.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, n)   ((void)(at), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#endif

enum { GUARD = 256, ALIGN = BACKEND_SCRATCH_ALIGN, PATTERN = 0x7e };

/* End the test if rc < 0: without its memory the test cannot go on. */
static void check(int rc, const char *doing, size_t n_bytes, const struct err *err)
{
    if (rc >= 0)
        return;
    fflush(stdout);
    fprintf(stderr, "%s guarded memory of %zu bytes: %s\n", doing, n_bytes, err->msg);
    abort();
}

void guarded_init(struct guarded *m, struct backend *b, size_t n_bytes, size_t shift)
{
    struct err err;
    void *block;

    *m = (struct guarded){.b = b, .n_bytes = n_bytes};
    m->total = (ALIGN + GUARD + shift + n_bytes + GUARD + 63) / 64 * 64;
    check(backend_alloc(b, m->total, "a guarded place", &block, &err), "allocating", n_bytes, &err);
    m->block = block;
    m->offset = ALIGN - (uintptr_t)block % ALIGN + GUARD + shift;
    m->at = m->block + m->offset;
    m->image = xmalloc(m->total);
    memset(m->image, PATTERN, m->total);
    memset(m->image + m->offset, 0xff, n_bytes);
    check(backend_copy_in(b, m->block, m->image, m->total, &err), "writing", n_bytes, &err);
    check(backend_sync(b, &err), "writing", n_bytes, &err);
    ASAN_POISON_MEMORY_REGION(m->block, m->offset);
    ASAN_POISON_MEMORY_REGION(m->block + m->offset + n_bytes, m->total - m->offset - n_bytes);
}

void guarded_fini(struct guarded *m)
{
    if (!m->b)
        return;
    ASAN_UNPOISON_MEMORY_REGION(m->block, m->total);
    backend_free(m->b, m->block);
    free(m->image);
}

void guarded_set(const struct guarded *m, const void *from)
{
    struct err err;

    if (!from)
        from = memset(m->image, 0xff, m->n_bytes);
    check(backend_copy_in(m->b, m->at, from, m->n_bytes, &err), "writing", m->n_bytes, &err);
    check(backend_sync(m->b, &err), "writing", m->n_bytes, &err);
}

void guarded_get(const struct guarded *m, void *to)
{
    struct err err;

    check(backend_copy_out(m->b, to, m->at, m->n_bytes, &err), "reading", m->n_bytes, &err);
}

int guarded_intact(const struct guarded *m)
{
    struct err err;
    int intact = 1;

    ASAN_UNPOISON_MEMORY_REGION(m->block, m->total);
    check(backend_copy_out(m->b, m->image, m->block, m->total, &err), "reading", m->n_bytes, &err);
    for (size_t i = 0; i < m->total; i++)
        if (i < m->offset || i >= m->offset + m->n_bytes)
            intact &= m->image[i] == PATTERN;
    return intact;
}
