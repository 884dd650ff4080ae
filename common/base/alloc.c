/* Memory from the heap: the counters, the test hook, and huge pages for large tensors.
 * Every other room allocates through these functions, so that a test can count. */
#include "base/alloc.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 64, HUGE_PAGE = 2 << 20 };

/* Statistics and the test hook only: relaxed order is enough, nothing is published through them. */
static atomic_uint_fast64_t n_allocs;
static atomic_uint_fast64_t fail_countdown;

static void *alloc_checked(void *p, size_t n_bytes)
{
    if (!p) {
        fprintf(stderr, "out of memory: %zu bytes wanted\n", n_bytes);
        abort();
    }
    atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed);
    return p;
}

void *xmalloc(size_t n_bytes) { return alloc_checked(malloc(n_bytes ? n_bytes : 1), n_bytes); }

void *xcalloc(size_t n, size_t size)
{
    size_t n_bytes;

    if (__builtin_mul_overflow(n, size, &n_bytes))
        n_bytes = SIZE_MAX;
    return alloc_checked(calloc(n ? n : 1, size ? size : 1), n_bytes);
}

void *xrealloc(void *p, size_t n_bytes)
{
    return alloc_checked(realloc(p, n_bytes ? n_bytes : 1), n_bytes);
}

char *xstrdup(const char *s)
{
    size_t n = strlen(s) + 1;

    return memcpy(xmalloc(n), s, n);
}

char *xasprintf(const char *fmt, ...)
{
    va_list ap;
    char *s;

    va_start(ap, fmt);
    s = xvasprintf(fmt, ap);
    va_end(ap);
    return s;
}

char *xvasprintf(const char *fmt, va_list ap)
{
    char *s;

    return alloc_checked(vasprintf(&s, fmt, ap) < 0 ? NULL : s, 1);
}

/* Exactly one caller sees 1, and none takes the count below 0. */
static int must_fail(void)
{
    uint_fast64_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);

    while (left > 0 &&
           !atomic_compare_exchange_weak_explicit(&fail_countdown, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    return left == 1;
}

/* Make a large block zero.  Its pages go back to the system, which hands out zeroed ones as they
 * are used, in the threads that use them, and none for what is never used. */
static void clear_pages(char *p, size_t n_bytes)
{
    const size_t whole = n_bytes / HUGE_PAGE * HUGE_PAGE;
    const int are_given_back = madvise(p, whole, MADV_DONTNEED) == 0; /* locked pages are not */

    madvise(p, n_bytes, MADV_HUGEPAGE); /* only advice: failing costs speed, nothing else */
    if (are_given_back)
        memset(p + whole, 0, n_bytes - whole);
    else
        memset(p, 0, n_bytes);
}

void alloc_clear(void *p, size_t n_bytes)
{
    const size_t gap = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE,
                 before = gap < n_bytes ? gap : n_bytes;

    memset(p, 0, before);
    clear_pages((char *)p + before, n_bytes - before);
}

int try_alloc(void **out, size_t n_bytes, const char *what, struct err *err)
{
    size_t align = n_bytes >= 2 * (size_t)HUGE_PAGE ? HUGE_PAGE : ALIGN;
    void *p = NULL;

    if (n_bytes > SIZE_MAX / 2 || must_fail() || posix_memalign(&p, align, n_bytes ? n_bytes : 1))
        return err_set(err, ERR_NOMEM, "out of memory: %zu bytes wanted for %s", n_bytes, what);
    if (align == HUGE_PAGE)
        clear_pages(p, n_bytes);
    else
        memset(p, 0, n_bytes);
    atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed);
    *out = p;
    return 0;
}

int try_realloc(void **p, size_t n_bytes, const char *what, struct err *err)
{
    void *moved = n_bytes > SIZE_MAX / 2 || must_fail() ? NULL : realloc(*p, n_bytes ? n_bytes : 1);

    if (!moved)
        return err_set(err, ERR_NOMEM, "out of memory: %zu bytes wanted for %s", n_bytes, what);
    atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed);
    *p = moved;
    return 0;
}

uint64_t alloc_count(void) { return atomic_load_explicit(&n_allocs, memory_order_relaxed); }

uint64_t alloc_fail_at(uint64_t n)
{
    return atomic_exchange_explicit(&fail_countdown, n, memory_order_relaxed);
}
