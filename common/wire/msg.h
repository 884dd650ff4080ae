/* msg - the messages of the control plane: packed into frames, unpacked and checked.
 *
 * A message is protobuf-c's struct Wire__Control of proto/control.proto.  A message from
 * msg_unpack has been checked field by field against wire/fields.h: ranges, enum values, lengths
 * of texts, hashes and lists.  Every text is valid UTF-8 without control characters, so it may
 * be shown on a terminal.  A receiver checks only what needs knowledge of the job.
 *
 * Sending: fill structs on the stack (WIRE__HELLO__INIT ...), borrow everything, msg_frame().
 * Texts that come from a library or a file (errors, host names) pass through msg_text first.
 *
 * Threads: any; no state. */
#ifndef WIRE_MSG_H
#define WIRE_MSG_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/hash.h"
#include "control.pb-c.h"
#include "wire/frame.h"

enum {
    /* Hello.protocol of this program.  A driver takes only followers of its own version and
     * protocol, so fields may be added and given meaning without raising it between versions. */
    MSG_PROTOCOL = 5,
    MSG_MAX_RANKS = 131072,
    MSG_MAX_TENSORS = 1 << 20,
    MSG_MAX_NAME = 512,         /* names of tensors, hosts, devices */
    MSG_MAX_LAUNCH = 128,       /* a launcher's name of a job */
    MSG_MAX_TEXT = 4096,        /* texts for people */
    MSG_MAX_SOURCE = 32,        /* the word for the source of a notice (session/notice.h) */
    MSG_MAX_ENDPOINT = 1 << 20, /* one rank's endpoint */
    MSG_ID = 128,               /* bytes of one of NCCL's ids, which serves so many ranks, */
    MSG_RANKS_PER_ID = 128,     /* or more, as there are never more ids than */
    MSG_MAX_IDS = 32,           /* this: each rank is sent all of them */
    MSG_HASH = 16,
    MSG_MAX_COLLECTIVES = 256, /* of one rank */
    MSG_MAX_SPANS = 4096,      /* of one piece of a record */
    MSG_MAX_SPAN_NAMES = 8192, /* of one record */
};

/* Unpack and check one body.  *out is freed with msg_free.  Memory is bounded by a small multiple
 * of `len`.  Fails with ERR_PROTO, naming message, field, value seen and wanted, or ERR_NOMEM. */
int msg_unpack(const uint8_t *body, size_t len, Wire__Control **out, struct err *err);
void msg_free(Wire__Control *m);

/* The checks alone, on any message.  0 or ERR_PROTO. */
int msg_check(const Wire__Control *m, struct err *err);

/* `m` packed into a frame.  A message of ours that its peer's msg_check would refuse is a bug and
 * asserted, except its size: NULL and *err (ERR_ARG) when it is larger than FRAME_MAX. */
struct frame *msg_frame(const Wire__Control *m, struct err *err);

int msg_n_ids(int n_ranks); /* NCCL's, for a job of so many ranks */

/* "Hello", or "an empty message". */
const char *msg_name(const Wire__Control *m);

/* `s` made fit for a field: at most `max` bytes, control characters and broken UTF-8 replaced by
 * '?' (new lines and tabs by a space).  NULL gives "". */
char *msg_text(struct arena *a, const char *s, size_t max);

/* Make *m a refusal, whose parts lie in *r and `a`.  run: the run's name; NULL: none yet. */
void msg_refuse(Wire__Control *m, Wire__Refused *r, struct arena *a, Wire__Reason reason,
                const char *text, const char *run);

/* 16 bytes, little endian words lo, hi. */
void msg_hash_put(struct hash128 h, uint8_t out[MSG_HASH]);
struct hash128 msg_hash_get(ProtobufCBinaryData b); /* a checked field */

#endif
