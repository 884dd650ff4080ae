/* guarded - a backend's memory with a pattern before and behind it, to catch a kernel that writes
 * outside.  One that reads there gets 8e37 as a float, and under ASan a report. */
#ifndef TESTS_OP_GUARDED_H
#define TESTS_OP_GUARDED_H

#include <stddef.h>

#include "backend/backend.h"

struct guarded {
    struct backend *b;
    unsigned char *block; /* the backend's */
    void *at;             /* n_bytes of it, at `shift` bytes behind what scratch is aligned to */
    size_t n_bytes, offset, total;
    unsigned char *image; /* the host's, so that nothing is allocated between runs */
};

/* Content: 0xff. */
void guarded_init(struct guarded *m, struct backend *b, size_t n_bytes, size_t shift);
void guarded_fini(struct guarded *m);                        /* zeroed is fine */
void guarded_set(const struct guarded *m, const void *from); /* NULL: 0xff */
void guarded_get(const struct guarded *m, void *to);
int guarded_intact(const struct guarded *m); /* after it, reading outside is no longer noticed */

#endif
