/* buf - a growing array of bytes.
 *
 * Life:    zeroed or buf_init -> append ... -> buf_fini.
 * Threads: one at a time. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct buf {
    uint8_t *data; /* NULL while cap is 0 */
    size_t len;    /* bytes in use */
    size_t cap;    /* bytes allocated */
};

void buf_init(struct buf *b);
void buf_fini(struct buf *b);
void buf_clear(struct buf *b); /* len = 0, keeps the memory */

/* Room for `n` more bytes; returns where they go.  Does not change len. */
uint8_t *buf_reserve(struct buf *b, size_t n);
void buf_append(struct buf *b, const void *src, size_t n);
/* The same for bytes whose number a peer or a file decides.  Fails with ERR_NOMEM, which names
 * `what`; b is then as it was. */
int buf_try_append(struct buf *b, const void *src, size_t n, const char *what, struct err *err);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Drop the first `n` bytes (n <= len) and move the rest to the front. */
void buf_consume(struct buf *b, size_t n);

/* The content as a C string; the terminating NUL is not counted in len. */
const char *buf_cstr(struct buf *b);

#endif
