/* Frames: making and counting them, and cutting a stream into them.
 * A stream that is not ours is named by its first bytes. */
#include "wire/frame.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

static const uint8_t magic[4] = {'D', 'P', 'T', '1'};

struct frame *frame_new(size_t body_len)
{
    ASSERT(body_len > 0 && body_len <= FRAME_MAX);
    struct frame *f = xmalloc(sizeof *f + FRAME_HEADER + body_len);
    f->refs = 1;
    f->len = FRAME_HEADER + body_len;
    memcpy(f->data, magic, sizeof magic);
    for (int i = 0; i < 4; i++)
        f->data[4 + i] = (uint8_t)(body_len >> (24 - 8 * i));
    return f;
}

struct frame *frame_ref(struct frame *f)
{
    f->refs++;
    return f;
}

void frame_unref(struct frame *f)
{
    if (f && --f->refs == 0)
        free(f);
}

void frame_reader_init(struct frame_reader *r, size_t limit)
{
    buf_init(&r->in);
    r->taken = 0;
    r->limit = limit;
}

void frame_reader_fini(struct frame_reader *r)
{
    buf_fini(&r->in);
    r->taken = 0;
}

int frame_reader_add(struct frame_reader *r, const void *data, size_t len, struct err *err)
{
    if (r->taken) {
        buf_consume(&r->in, r->taken);
        r->taken = 0;
    }
    return buf_try_append(&r->in, data, len, "a message under way", err);
}

void frame_reader_rest(struct frame_reader *r)
{
    if (frame_reader_pending(r) == 0)
        frame_reader_fini(r);
}

size_t frame_reader_pending(const struct frame_reader *r) { return r->in.len - r->taken; }

/* First bytes of streams that are not ours. */
static const struct {
    const char *start;
    size_t len;
    const char *what;
} strangers[] = {
    {"GET ", 4, "an HTTP request"},      {"POST", 4, "an HTTP request"},
    {"HEAD", 4, "an HTTP request"},      {"PUT ", 4, "an HTTP request"},
    {"OPTI", 4, "an HTTP request"},      {"CONN", 4, "an HTTP proxy request"},
    {"PRI ", 4, "an HTTP/2 connection"}, {"HTTP", 4, "an HTTP server"},
    {"SSH-", 4, "an SSH connection"},    {"\x16\x03", 2, "a TLS connection"},
    {"\x15\x03", 2, "a TLS alert"},      {"DPT", 3, "another version of dptrain's protocol"},
};

const char *frame_looks_like(const uint8_t *p)
{
    for (size_t i = 0; i < ARRAY_LEN(strangers); i++)
        if (!memcmp(p, strangers[i].start, strangers[i].len))
            return strangers[i].what;
    return NULL;
}

int frame_reader_is_tls(const struct frame_reader *r)
{
    const uint8_t *p = r->in.data + r->taken;

    return frame_reader_pending(r) >= 2 && (p[0] == 0x16 || p[0] == 0x15) && p[1] == 3;
}

static int bad_magic(const struct frame_reader *r, const uint8_t *p, struct err *err)
{
    const char *like = frame_looks_like(p);

    if (!memcmp(p, magic, sizeof magic - 1))
        return err_set(err, ERR_PROTO,
                       "it speaks %s: install the same version of dptrain on all machines", like);
    if (frame_reader_is_tls(r))
        return err_set(err, ERR_PROTO,
                       "it has a secret and this side has none: give both the same --secret-file, "
                       "or run both as one user with the same XDG_RUNTIME_DIR (it looks like %s)",
                       like);
    if (like)
        return err_set(err, ERR_PROTO,
                       "not a dptrain peer: looks like %s (starts with %02x %02x %02x %02x)", like,
                       p[0], p[1], p[2], p[3]);
    return err_set(err, ERR_PROTO,
                   "not a dptrain peer: starts with %02x %02x %02x %02x, want \"DPT1\"", p[0], p[1],
                   p[2], p[3]);
}

int frame_reader_next(struct frame_reader *r, const uint8_t **body, size_t *len, struct err *err)
{
    const uint8_t *p = r->in.data + r->taken;
    size_t have = frame_reader_pending(r);
    if (have < sizeof magic)
        return 0;
    if (memcmp(p, magic, sizeof magic) != 0)
        return bad_magic(r, p, err);
    if (have < FRAME_HEADER)
        return 0;
    size_t n = (size_t)p[4] << 24 | (size_t)p[5] << 16 | (size_t)p[6] << 8 | p[7];
    if (n == 0 || n > r->limit)
        return err_set(err, ERR_PROTO, "a message of %zu bytes, want 1 to %zu", n, r->limit);
    if (have < FRAME_HEADER + n)
        return 0;
    *body = p + FRAME_HEADER;
    *len = n;
    r->taken += FRAME_HEADER + n;
    return 1;
}
