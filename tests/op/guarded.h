/* guarded - a backend's memory between two guards with a pattern, to catch a kernel that writes
 * outside.  A kernel that reads a guard gets 8e37 as a float, and under ASan a report. */
#ifndef TESTS_OP_GUARDED_H
#define TESTS_OP_GUARDED_H

#include <stddef.h>

#include "backend/backend.h"

struct guarded {
    struct backend *b;
    unsigned char *block; /* backend memory, guards included */
    void *at; /* n_bytes of the block, `shift` bytes after an address aligned as scratch */
    size_t n_bytes, offset, total;
    unsigned char *image; /* host memory for a copy, so that nothing is allocated between runs */
};

/* The content is 0xff at first. */
void guarded_init(struct guarded *m, struct backend *b, size_t n_bytes, size_t shift);
void guarded_fini(struct guarded *m);                        /* a zeroed struct is fine */
void guarded_set(const struct guarded *m, const void *from); /* from NULL: all bytes 0xff */
void guarded_get(const struct guarded *m, void *to);

/* Returns 1 if both guards are as they were.  After the call, ASan no longer notices a read of a
 * guard. */
int guarded_intact(const struct guarded *m);

#endif
