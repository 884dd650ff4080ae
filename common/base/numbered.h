/* numbered - pointers by numbers that only grow, such as a driver's connections.
 *
 * A pointer is found by a binary search.  Taking one out leaves a gap, and the gaps are closed when
 * they are more than the pointers: so n pointers cost time in n log n, in whatever order they go.
 * A hundred thousand of them may go at once.
 *
 * Life:    zeroed -> numbered_add, numbered_take ... -> numbered_fini.  The pointers are borrowed.
 * Threads: one at a time. */
#ifndef BASE_NUMBERED_H
#define BASE_NUMBERED_H

#include <stddef.h>
#include <stdint.h>

struct numbered_row {
    int64_t number;
    void *p; /* NULL: a gap */
};

struct numbered {
    struct numbered_row *row; /* those from `first` to `end` count; neither end is a gap */
    size_t first, end, room;
    size_t n; /* pointers */
};

void numbered_add(struct numbered *n, int64_t number, void *p); /* beyond all numbers before it */
void *numbered_find(const struct numbered *n, int64_t number);  /* NULL: not here */
void *numbered_take(struct numbered *n, int64_t number);        /* out of it; NULL: not here */

void *numbered_first(const struct numbered *n); /* that of the lowest number; NULL: none is here */

/* The next pointer on the way up; *at is 0 at first.  Nothing may be taken out on the way.  NULL:
 * there are no more. */
void *numbered_up(const struct numbered *n, size_t *at);
/* The same on the way down; *at is SIZE_MAX at first.  If pointers are taken out on the way, some
 * of those that stay may come twice. */
void *numbered_down(const struct numbered *n, size_t *at);

void numbered_fini(struct numbered *n);

#endif
