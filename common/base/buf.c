/* buf - a buffer grows by doubling, from 256 bytes on.
 *
 * Content whose size a peer decides goes through buf_try_append, which does not abort. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

void buf_init(struct buf *b) { *b = (struct buf){0}; }

void buf_fini(struct buf *b)
{
    free(b->data);
    buf_init(b);
}

void buf_clear(struct buf *b) { b->len = 0; }

static size_t room_for(const struct buf *b, size_t n)
{
    size_t cap = b->cap ? b->cap : 256;

    ASSERT(n < SIZE_MAX / 4);
    while (cap - b->len < n || cap < b->len)
        cap *= 2;
    return cap;
}

uint8_t *buf_reserve(struct buf *b, size_t n)
{
    size_t cap = room_for(b, n);

    if (cap != b->cap) {
        b->data = xrealloc(b->data, cap);
        b->cap = cap;
    }
    return b->data + b->len;
}

int buf_try_append(struct buf *b, const void *src, size_t n, const char *what, struct err *err)
{
    size_t cap = room_for(b, n);

    if (cap != b->cap) {
        if (try_realloc((void **)&b->data, cap, what, err) < 0)
            return err->code;
        b->cap = cap;
    }
    buf_append(b, src, n);
    return 0;
}

void buf_append(struct buf *b, const void *src, size_t n)
{
    uint8_t *to = buf_reserve(b, n);

    if (n)
        memcpy(to, src, n);
    b->len += n;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    const size_t room = b->cap - b->len;
    va_list ap;
    int len;

    va_start(ap, fmt);
    len = vsnprintf(room ? (char *)b->data + b->len : NULL, room, fmt, ap);
    va_end(ap);
    ASSERT(len >= 0);
    if ((size_t)len >= room) {
        buf_reserve(b, (size_t)len + 1);
        va_start(ap, fmt);
        vsnprintf((char *)b->data + b->len, (size_t)len + 1, fmt, ap);
        va_end(ap);
    }
    b->len += (size_t)len;
}

void buf_consume(struct buf *b, size_t n)
{
    ASSERT(n <= b->len);
    b->len -= n;
    if (b->len)
        memmove(b->data, b->data + n, b->len);
}

const char *buf_cstr(struct buf *b)
{
    *buf_reserve(b, 1) = 0;
    return (const char *)b->data;
}
