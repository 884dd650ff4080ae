/* A sorted array of numbers and pointers with gaps.  The gaps at both ends are left out at once, so
 * that taking all pointers, from either end on, finds each of them without a search for it. */
#include "base/numbered.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"

enum { NUMBERED_LEAST = 16 /* gaps that are not worth closing */ };

/* The first row whose number is not below `number`. */
static size_t numbered_bound(const struct numbered *n, int64_t number)
{
    size_t lo = n->first, hi = n->end;

    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;

        if (n->row[mid].number < number)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void close_gaps(struct numbered *n)
{
    size_t to = 0;

    for (size_t i = n->first; i < n->end; i++)
        if (n->row[i].p)
            n->row[to++] = n->row[i];
    n->first = 0;
    n->end = to;
    ASSERT(n->end == n->n);
}

void numbered_add(struct numbered *n, int64_t number, void *p)
{
    ASSERT(p && (n->first == n->end || n->row[n->end - 1].number < number));
    if (n->end == n->room && n->n < n->room / 2) {
        close_gaps(n);
    } else if (n->end == n->room) {
        n->room = n->room ? 2 * n->room : NUMBERED_LEAST;
        n->row = xrealloc(n->row, n->room * sizeof *n->row);
    }
    n->row[n->end++] = (struct numbered_row){number, p};
    n->n++;
}

void *numbered_find(const struct numbered *n, int64_t number)
{
    const size_t i = numbered_bound(n, number);

    return i < n->end && n->row[i].number == number ? n->row[i].p : NULL;
}

void *numbered_take(struct numbered *n, int64_t number)
{
    const size_t i = numbered_bound(n, number);
    void *p = i < n->end && n->row[i].number == number ? n->row[i].p : NULL;

    if (!p)
        return NULL;
    n->row[i].p = NULL;
    n->n--;
    while (n->first < n->end && !n->row[n->first].p)
        n->first++;
    while (n->first < n->end && !n->row[n->end - 1].p)
        n->end--;
    if (n->end - n->first > 2 * n->n + NUMBERED_LEAST)
        close_gaps(n);
    return p;
}

void *numbered_first(const struct numbered *n)
{
    return n->first < n->end ? n->row[n->first].p : NULL;
}

void *numbered_up(const struct numbered *n, size_t *at)
{
    size_t i = *at > n->first ? *at : n->first;

    while (i < n->end && !n->row[i].p)
        i++;
    *at = i + 1;
    return i < n->end ? n->row[i].p : NULL;
}

/* Gaps are closed towards the front: the rows below *at stay below it. */
void *numbered_down(const struct numbered *n, size_t *at)
{
    size_t i = *at < n->end ? *at : n->end;

    while (i > n->first && !n->row[i - 1].p)
        i--;
    if (i <= n->first)
        return NULL;
    *at = i - 1;
    return n->row[i - 1].p;
}

void numbered_fini(struct numbered *n)
{
    free(n->row);
    *n = (struct numbered){0};
}
