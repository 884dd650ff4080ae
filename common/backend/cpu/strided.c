/* strided - the copies go row by row: a row is a run along the last dimension of the map.  The
 * twins are in cuda/strided.cuh. */
#include "backend/cpu/strided.h"

#include <string.h>

#include "base/util.h"

/* n elements of `size` bytes; the steps are in elements. */
static inline void copy_elements(char *to, int64_t to_step, const char *from, int64_t from_step,
                                 int64_t n, size_t size)
{
    const int64_t a = to_step * (int64_t)size, b = from_step * (int64_t)size;

    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * a, from + i * b, size);
}

/* n times the same 4 bytes, which are read once: so the loop needs no more than stores. */
static void cpu_strided_fill_row(char *to, const char *from, int64_t n)
{
    uint32_t x;

    memcpy(&x, from, sizeof x);
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * (int64_t)sizeof x, &x, sizeof x);
}

/* A constant size lets the compiler move an element in a register. */
static void copy_row(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n,
                     size_t size)
{
    if (to_step == 1 && from_step == 1)
        memcpy(to, from, (size_t)n * size);
    else if (to_step == 1 && from_step == 0 && size == 4)
        cpu_strided_fill_row(to, from, n);
    else if (size == 4)
        copy_elements(to, to_step, from, from_step, n, 4);
    else if (size == 2)
        copy_elements(to, to_step, from, from_step, n, 2);
    else
        copy_elements(to, to_step, from, from_step, n, size);
}

/* The run of elements of s that begins with element i: its place, step and length up to `most`. */
struct run {
    int64_t at, step, n;
};

static struct run run_at(const struct strided *s, int64_t i, int64_t most)
{
    const int last = s->n - 1;

    return (struct run){strided_at(s, i), s->step[last],
                        min_i64(most, s->dim[last] - i % s->dim[last])};
}

void strided_gather(const struct strided *s, const void *x, size_t size, int64_t from, int64_t n,
                    void *to)
{
    struct run r;

    for (int64_t i = 0; i < n; i += r.n) {
        r = run_at(s, from + i, n - i);
        copy_row((char *)to + (size_t)i * size, 1, (const char *)x + (size_t)r.at * size, r.step,
                 r.n, size);
    }
}

void strided_scatter(const struct strided *s, void *y, size_t size, int64_t from, int64_t n,
                     const void *x)
{
    struct run r;

    for (int64_t i = 0; i < n; i += r.n) {
        r = run_at(s, from + i, n - i);
        copy_row((char *)y + (size_t)r.at * size, r.step, (const char *)x + (size_t)i * size, 1,
                 r.n, size);
    }
}
