/* Greetings and headers of pieces, as bytes.
 * Every length is checked here, before anything is read or kept by it. */
#include "net/piece.h"

#include <string.h>

#include "base/util.h"

enum { VERSION = 2, AT_VERSION = 4, AT_SIDE, AT_TLS, AT_ZERO };

const uint8_t piece_magic[PIECE_MAGIC] = {'D', 'P', 'T', 'R'};

void piece_greet(const struct piece_greeting *own, uint8_t out[PIECE_GREETING])
{
    memset(out, 0, PIECE_GREETING);
    memcpy(out, piece_magic, PIECE_MAGIC);
    out[AT_VERSION] = VERSION;
    out[AT_SIDE] = (uint8_t)own->side;
    out[AT_TLS] = own->has_tls != 0;
}

int piece_check_greeting(const uint8_t in[PIECE_GREETING], const struct piece_greeting *own,
                         struct err *err)
{
    const int other = own->side == PIECE_CONNECTS ? PIECE_ACCEPTS : PIECE_CONNECTS;
    const int is_whole = in[AT_TLS] <= 1 && !in[AT_ZERO];

    if (memcmp(in, piece_magic, PIECE_MAGIC) != 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "it is no dpdriver that takes relays: it starts with %02x %02x %02x %02x, "
                       "want \"DPTR\"",
                       in[0], in[1], in[2], in[3]);
    if (in[AT_VERSION] != VERSION)
        return err_set(err, ERR_UNSUPPORTED,
                       "it speaks version %d of the relays' protocol and this side %d: install the "
                       "same version of dptrain on all machines",
                       in[AT_VERSION], VERSION);
    if (in[AT_SIDE] == own->side && is_whole)
        return err_set(err, ERR_PEER,
                       "nothing listens there: the system has connected the socket "
                       "with itself");
    if (in[AT_SIDE] != other || !is_whole)
        return err_set(err, ERR_PROTO,
                       "its greeting ends with %02x %02x %02x, want %02x, 00 or 01, and 00",
                       in[AT_SIDE], in[AT_TLS], in[AT_ZERO], other);
    if (in[AT_TLS] != (own->has_tls != 0))
        return err_set(err, ERR_REFUSED,
                       "it has %s, and this side has %s: give both sides --secret-file with copies "
                       "of one file, or both --insecure",
                       in[AT_TLS] ? "a secret" : "no secret", own->has_tls ? "one" : "none");
    return 0;
}

void piece_put_number(uint32_t n, uint8_t out[4])
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(n >> (24 - 8 * i));
}

uint32_t piece_get_number(const uint8_t in[4])
{
    return (uint32_t)in[0] << 24 | (uint32_t)in[1] << 16 | (uint32_t)in[2] << 8 | in[3];
}

void piece_put(const struct piece *p, uint8_t out[PIECE_HEADER])
{
    piece_put_number(p->channel, out);
    piece_put_number((uint32_t)p->kind << 24 | p->len, out + 4);
}

static const struct {
    const char *name;
    uint32_t least, most; /* its length */
} kinds[] = {
    [PIECE_OPEN] = {"open", 0, 0},
    [PIECE_DATA] = {"data", 1, PIECE_MAX},
    [PIECE_CREDIT] = {"credit", PIECE_CREDIT_LEN, PIECE_CREDIT_LEN},
    [PIECE_END] = {"end", 0, 0},
    [PIECE_BREAK] = {"break", 0, 0},
};

int piece_get(const uint8_t in[PIECE_HEADER], struct piece *out, struct err *err)
{
    const uint32_t channel = piece_get_number(in), kind = in[4];
    const uint32_t len = piece_get_number(in + 4) & 0xffffff;

    if (kind < PIECE_OPEN || kind >= ARRAY_LEN(kinds))
        return err_set(err, ERR_PROTO, "a piece of kind %u, want %d to %d", kind, PIECE_OPEN,
                       PIECE_BREAK);
    if (channel == 0)
        return err_set(err, ERR_PROTO, "a piece (%s) of channel 0, want 1 or more",
                       kinds[kind].name);
    if (len < kinds[kind].least || len > kinds[kind].most)
        return err_set(err, ERR_PROTO, "a piece (%s) of %u bytes, want %u to %u", kinds[kind].name,
                       len, kinds[kind].least, kinds[kind].most);
    *out = (struct piece){channel, (enum piece_kind)kind, len};
    return 0;
}
