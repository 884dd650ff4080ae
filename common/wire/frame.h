/* frame - one message on the byte stream between two daemons.
 *
 *   4 bytes  "DPT1"   what this is; a peer that sends anything else is named ("an HTTP request")
 *   4 bytes  length of the body, big endian, 1 .. the reader's limit
 *   body     one wire.Control (wire/msg.h)
 *
 * The limit is checked before anything of that size is kept, and memory grows with what has
 * arrived, not with what was announced.
 *
 * Threads: one at a time for each object. */
#ifndef WIRE_FRAME_H
#define WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    FRAME_HEADER = 8,
    FRAME_MAX_STRANGER = 64 << 10, /* a driver's limit for a peer it has not welcomed */
    FRAME_MAX = 64 << 20,          /* between a driver and its ranks */
};

/* A whole frame, ready to be sent, possibly to many: counted references, so that a table for 256
 * ranks exists once.  Never changed after it was made. */
struct frame {
    int refs;
    size_t len;     /* header included */
    uint8_t data[]; /* [len] */
};

struct frame *frame_new(
    size_t body_len); /* header filled in, body left to the caller; 1 reference */
struct frame *frame_ref(struct frame *f); /* returns f */
void frame_unref(struct frame *f);        /* NULL is fine */

/* Frames out of a stream that arrives in any pieces.
 *
 * Life:  zeroed + frame_reader_init -> (frame_reader_add, frame_reader_next until 0) ... ->
 *        frame_reader_fini. */
struct frame_reader {
    struct buf in;
    size_t taken; /* bytes of `in` already handed out */
    size_t limit; /* largest body accepted; may be raised at any time */
};

void frame_reader_init(struct frame_reader *r, size_t limit);
void frame_reader_fini(struct frame_reader *r);

/* Append what arrived.  Invalidates bodies handed out before.  ERR_NOMEM: the stream is lost. */
int frame_reader_add(struct frame_reader *r, const void *data, size_t len, struct err *err);

/* The next whole body: 1 and *body, *len (borrowed until the next add), 0 when more must arrive
 * first, or ERR_PROTO: bad magic, empty, over the limit.  After an error the stream is lost: the
 * same error comes again. */
int frame_reader_next(struct frame_reader *r, const uint8_t **body, size_t *len, struct err *err);

/* No body that was handed out is used any more.  If nothing else has come, this frees all memory:
 * most of many streams are quiet. */
void frame_reader_rest(struct frame_reader *r);

/* The kind of peer whose stream begins with these 4 bytes: "an HTTP request"; NULL: unknown. */
const char *frame_looks_like(const uint8_t *p);

/* The refused stream begins as TLS does. */
int frame_reader_is_tls(const struct frame_reader *r);

/* Bytes that arrived and belong to a frame not yet whole. */
size_t frame_reader_pending(const struct frame_reader *r);

#endif
