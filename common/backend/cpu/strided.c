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

/* The way of a map through its elements, a run after the other.  A step to the next run is an
 * addition in most cases: strided_at divides for each dimension. */
struct walk {
    int64_t at, n;                 /* the run: its place, and its elements */
    int64_t index[SHAPE_MAX_DIMS]; /* of its first element */
};

static void walk_measure(const struct strided *s, struct walk *w, int64_t most)
{
    w->n = min_i64(most, s->dim[s->n - 1] - w->index[s->n - 1]);
}

/* The run that begins with element i, of at most this many elements. */
static struct walk walk_begin(const struct strided *s, int64_t i, int64_t most)
{
    struct walk w = {.at = strided_at(s, i)};

    for (int d = s->n - 1; d > 0; d--) {
        w.index[d] = i % s->dim[d];
        i /= s->dim[d];
    }
    w.index[0] = i;
    walk_measure(s, &w, most);
    return w;
}

static void walk_next(const struct strided *s, struct walk *w, int64_t most)
{
    int d = s->n - 1;

    w->at += w->n * s->step[d];
    w->index[d] += w->n;
    for (; d > 0 && w->index[d] == s->dim[d]; d--) {
        w->at += s->step[d - 1] - s->dim[d] * s->step[d];
        w->index[d] = 0;
        w->index[d - 1]++;
    }
    walk_measure(s, w, most);
}

void strided_gather(const struct strided *s, const void *x, size_t size, int64_t from, int64_t n,
                    void *to)
{
    const int64_t step = s->step[s->n - 1];
    struct walk w;

    if (n <= 0)
        return;
    w = walk_begin(s, from, n);
    for (int64_t i = 0; i < n; walk_next(s, &w, n - i)) {
        copy_row((char *)to + (size_t)i * size, 1, (const char *)x + (size_t)w.at * size, step, w.n,
                 size);
        i += w.n;
    }
}

void strided_scatter(const struct strided *s, void *y, size_t size, int64_t from, int64_t n,
                     const void *x)
{
    const int64_t step = s->step[s->n - 1];
    struct walk w;

    if (n <= 0)
        return;
    w = walk_begin(s, from, n);
    for (int64_t i = 0; i < n; walk_next(s, &w, n - i)) {
        copy_row((char *)y + (size_t)w.at * size, step, (const char *)x + (size_t)i * size, 1, w.n,
                 size);
        i += w.n;
    }
}
