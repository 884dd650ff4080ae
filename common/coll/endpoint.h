/* coll/endpoint - the address where a rank listens, and its form on the wire.  The driver passes
 * these blobs on to all ranks (coll/tcp.h).
 *
 * Blob, big-endian:  0 "dpE3"   4 rank u16   6 size u16   8 window u32
 *                   12 family u8 (4 or 6), a zero   14 port u16   16 ip[16] (IPv4: 4, then zeros)
 *                   32 random[32]
 * A rank that offers a fabric (coll/fabric/fabric.h) appends:
 *                   64 provider[48], ends in zeros   112 half[32]
 *                  144 for each channel: length u16, address
 *
 * Threads: any; nothing is kept. */
#ifndef COLL_ENDPOINT_H
#define COLL_ENDPOINT_H

#include <sys/socket.h>

#include "base/buf.h"
#include "coll/fabric/port.h"
#include "coll/fabric/seal.h"
#include "coll/tcp.h"

enum {
    ENDPOINT_BYTES = 64,
    ENDPOINT_RANDOM = 32,
    ENDPOINT_TEXT = COLL_IP_LEN + 8, /* "[::1]:12345" */
};

/* An IP address and a port.  Tables of thousands of peers hold these, so it is small. */
struct endpoint_addr {
    uint8_t ip[16]; /* IPv4: the first 4 */
    uint16_t port;  /* in host order; 0: none */
    uint8_t family; /* 4 or 6 */
};

/* The names by which a rank is reached over a fabric. */
struct endpoint_fabric {
    char name[FABRIC_NAME];    /* the provider's; "": the rank offers no fabric */
    uint8_t half[SEAL_PUBLIC]; /* the public half of its secrets */
    size_t len[COLL_CHANNELS];
    uint8_t address[COLL_CHANNELS][FABRIC_ADDRESS];
};

struct endpoint {
    int rank, size;
    uint32_t window; /* bytes that a link surely holds unread: see coll/mesh.h */
    struct endpoint_addr addr;
    uint8_t random[ENDPOINT_RANDOM]; /* this rank's part of the formation's key */
    struct endpoint_fabric fabric;
};

void endpoint_pack(const struct endpoint *e, struct buf *out);

/* Every field is checked.  Fails with ERR_PROTO. */
int endpoint_parse(const void *blob, size_t len, struct endpoint *out, struct err *err);

/* Numeric IPv4 or IPv6 text into *out, port 0.  Fails with ERR_ARG. */
int endpoint_addr_from_text(const char *ip, struct endpoint_addr *out, struct err *err);

/* The address of a network interface, IPv4 if it has one, and no link-local one; port 0.  Fails
 * with ERR_IO. */
int endpoint_addr_of_iface(const char *iface, struct endpoint_addr *out, struct err *err);

/* To and from the form of the socket calls. */
socklen_t endpoint_to_socket(const struct endpoint_addr *a, struct sockaddr_storage *out);
void endpoint_from_socket(const struct sockaddr_storage *from, struct endpoint_addr *out);

int endpoint_is_any(const struct endpoint_addr *a);      /* 0.0.0.0 or :: */
int endpoint_is_loopback(const struct endpoint_addr *a); /* 127.0.0.0/8 or ::1 */

/* 1: both addresses count as one source of connections.  A source is an IPv4 address (also one that
 * is written as an IPv6 address), or the first half of any other IPv6 address.  One owner of a
 * network can have any number of addresses with the same first half. */
int endpoint_is_same_source(const struct endpoint_addr *a, const struct endpoint_addr *b);

void endpoint_ip_text(const struct endpoint_addr *a, char out[COLL_IP_LEN]);
void endpoint_text(const struct endpoint_addr *a, char out[ENDPOINT_TEXT]); /* with port */

#endif
