/* piece - what goes over a mux's connection (net/mux.h): a greeting, then pieces.
 *
 *   greeting   8 bytes from each side: "DPTR", version, side, 1 if TLS follows, a zero
 *   piece      channel (4 bytes), kind (1), length (3), big endian; then so many bytes
 *
 * The greeting's first 4 bytes tell a relay from TLS and from frames (wire/frame.h).  The greeting
 * itself is never encrypted: so two sides of which one has no secret can both say what is wrong.
 *
 * Threads: any; there is no state.
 * Errors:  ERR_PROTO, ERR_UNSUPPORTED, ERR_REFUSED. */
#ifndef NET_PIECE_H
#define NET_PIECE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    PIECE_MAGIC = 4, /* bytes of the greeting that are the same in all versions */
    PIECE_GREETING = 8,
    PIECE_HEADER = 8,
    PIECE_CREDIT_LEN = 4,
    PIECE_MAX = 16 << 10, /* data of one piece */
};

extern const uint8_t piece_magic[PIECE_MAGIC];

enum piece_side { PIECE_CONNECTS = 1, PIECE_ACCEPTS = 2 };

enum piece_kind {
    PIECE_OPEN = 1, /* length 0: a new channel; only the side that connected opens */
    PIECE_DATA,     /* length 1 .. PIECE_MAX */
    PIECE_CREDIT,   /* length 4, a number: so many more bytes may be sent */
    PIECE_END,      /* length 0: no more data comes */
    PIECE_BREAK,    /* length 0: the channel is over in both directions */
};

struct piece {
    uint32_t channel; /* from 1 */
    enum piece_kind kind;
    uint32_t len; /* of what follows the header */
};

/* A side's greeting says this. */
struct piece_greeting {
    enum piece_side side;
    int has_tls;
};

void piece_greet(const struct piece_greeting *own, uint8_t out[PIECE_GREETING]);

/* Check the other side's greeting.  ERR_UNSUPPORTED: it is none, or one of another version;
 * ERR_PEER: the socket is connected with itself; ERR_REFUSED: one side has TLS; ERR_PROTO. */
int piece_check_greeting(const uint8_t in[PIECE_GREETING], const struct piece_greeting *own,
                         struct err *err);

void piece_put(const struct piece *p, uint8_t out[PIECE_HEADER]);
int piece_get(const uint8_t in[PIECE_HEADER], struct piece *out, struct err *err);

void piece_put_number(uint32_t n, uint8_t out[4]);
uint32_t piece_get_number(const uint8_t in[4]);

#endif
