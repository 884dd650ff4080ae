/* coll/endpoint - where a rank listens, and its form on the wire.
 *
 * Blob, big-endian:  0 "dpG2"   4 rank u16   6 size u16   8 window u32   12 nonce[8]
 *                   20 family u8 (4 or 6), 3 zeros   24 ip[16] (IPv4: 4, then zeros)
 *                   40 ports of the bulk channel, a u16 for each rank (0: does not connect here)
 *                   .. ports of the urgent channel, in the same form */
#ifndef COLL_ENDPOINT_H
#define COLL_ENDPOINT_H

#include <stdbool.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "coll/gloo.h"

enum {
    ENDPOINT_NONCE = 8,
    ENDPOINT_TEXT = COLL_IP_LEN + 8, /* "[::1]:12345" */
};

struct endpoint {
    int rank, size;
    uint32_t window;               /* bytes that a link surely holds unread: see coll/mesh.h */
    uint8_t nonce[ENDPOINT_NONCE]; /* random; a rank that connects shows it to prove that it means
                                      this one */
    struct sockaddr_storage addr;  /* without port */
    uint16_t ports[COLL_CHANNELS][COLL_GLOO_MAX_RANKS];
};

void endpoint_pack(const struct endpoint *e, struct buf *out);

/* Every field is checked.  Fails with ERR_PROTO. */
int endpoint_parse(const void *blob, size_t len, struct endpoint *out, struct err *err);

/* The address with rank's port on a channel. */
struct sockaddr_storage endpoint_for(const struct endpoint *e, enum coll_channel ch, int rank);

/* Numeric IPv4 or IPv6 text into *out, port 0.  Fails with ERR_ARG. */
int endpoint_addr_from_text(const char *ip, struct sockaddr_storage *out, struct err *err);

/* The address of a network interface, IPv4 if it has one.  Fails with ERR_IO. */
int endpoint_addr_of_iface(const char *iface, struct sockaddr_storage *out, struct err *err);

bool endpoint_is_any(const struct sockaddr_storage *a); /* 0.0.0.0 or :: */
socklen_t endpoint_addr_len(const struct sockaddr_storage *a);
void endpoint_ip_text(const struct sockaddr_storage *a, char out[COLL_IP_LEN]);
void endpoint_text(const struct sockaddr_storage *a, char out[ENDPOINT_TEXT]); /* with port */

#endif
