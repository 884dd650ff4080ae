/* coll/endpoint - finds the addresses of this machine's interfaces, and writes and reads the blob
 * that carries one rank's address, port and random bytes to the others. */
#include "coll/endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum {
    AT_RANK = 4,
    AT_SIZE = 6,
    AT_WINDOW = 8,
    AT_FAMILY = 12,
    AT_PORT = 14,
    AT_IP = 16,
    AT_RANDOM = 32,
    AT_NAME = ENDPOINT_BYTES,
    AT_HALF = AT_NAME + FABRIC_NAME,
    AT_ADDRESSES = AT_HALF + SEAL_PUBLIC,
    WINDOW_MIN = 4 << 10, /* with less, no link could hold MESH_WINDOW useful pieces */
};

static const char magic[4] = {'d', 'p', 'E', '3'};

/* ---- addresses ---- */

socklen_t endpoint_to_socket(const struct endpoint_addr *a, struct sockaddr_storage *out)
{
    *out = (struct sockaddr_storage){0};
    if (a->family == 6) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)out;

        six->sin6_family = AF_INET6;
        six->sin6_port = htons(a->port);
        memcpy(&six->sin6_addr, a->ip, 16);
        return sizeof *six;
    }
    struct sockaddr_in *four = (struct sockaddr_in *)(void *)out;

    four->sin_family = AF_INET;
    four->sin_port = htons(a->port);
    memcpy(&four->sin_addr, a->ip, 4);
    return sizeof *four;
}

void endpoint_from_socket(const struct sockaddr_storage *from, struct endpoint_addr *out)
{
    *out = (struct endpoint_addr){0};
    if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)from;

        out->family = 6;
        out->port = ntohs(six->sin6_port);
        memcpy(out->ip, &six->sin6_addr, 16);
        return;
    }
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)from;

    out->family = 4;
    out->port = ntohs(four->sin_port);
    memcpy(out->ip, &four->sin_addr, 4);
}

int endpoint_is_any(const struct endpoint_addr *a)
{
    static const uint8_t zeros[16];

    return !memcmp(a->ip, zeros, sizeof zeros);
}

int endpoint_is_loopback(const struct endpoint_addr *a)
{
    static const uint8_t one[16] = {[15] = 1};

    return a->family == 6 ? !memcmp(a->ip, one, sizeof one) : a->ip[0] == 127;
}

/* The number of leading bytes of the address that identify its source. */
static size_t source_bytes(const struct endpoint_addr *a)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* ::ffff:1.2.3.4 */

    return a->family == 6 && memcmp(a->ip, mapped, sizeof mapped) != 0 ? 8 : sizeof a->ip;
}

int endpoint_is_same_source(const struct endpoint_addr *a, const struct endpoint_addr *b)
{
    const size_t n = source_bytes(a);

    return a->family == b->family && n == source_bytes(b) && !memcmp(a->ip, b->ip, n);
}

void endpoint_ip_text(const struct endpoint_addr *a, char out[COLL_IP_LEN])
{
    if (!inet_ntop(a->family == 6 ? AF_INET6 : AF_INET, a->ip, out, COLL_IP_LEN))
        snprintf(out, COLL_IP_LEN, "?");
}

void endpoint_text(const struct endpoint_addr *a, char out[ENDPOINT_TEXT])
{
    char ip[COLL_IP_LEN];

    endpoint_ip_text(a, ip);
    snprintf(out, ENDPOINT_TEXT, a->family == 6 ? "[%s]:%u" : "%s:%u", ip, (unsigned)a->port);
}

int endpoint_addr_from_text(const char *ip, struct endpoint_addr *out, struct err *err)
{
    *out = (struct endpoint_addr){0};
    if (inet_pton(AF_INET, ip, out->ip) == 1)
        out->family = 4;
    else if (inet_pton(AF_INET6, ip, out->ip) == 1)
        out->family = 6;
    else
        return err_set(err, ERR_ARG, "\"%.60s\" is not a numeric IPv4 or IPv6 address", ip);
    return 0;
}

/* A link-local address holds only together with an interface's name, which the blob has no place
 * for.
 */
static int endpoint_usable(const struct ifaddrs *i, const char *iface, sa_family_t family)
{
    const struct sockaddr_in6 *six = (const void *)i->ifa_addr;

    return six && i->ifa_addr->sa_family == family && !strcmp(i->ifa_name, iface) &&
           (family != AF_INET6 || !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr));
}

int endpoint_addr_of_iface(const char *iface, struct endpoint_addr *out, struct err *err)
{
    struct sockaddr_storage found = {.ss_family = AF_UNSPEC};
    struct ifaddrs *list;

    if (getifaddrs(&list) < 0)
        return err_sys(err, errno, "listing network interfaces");
    for (const struct ifaddrs *i = list; i && found.ss_family == AF_UNSPEC; i = i->ifa_next)
        if (endpoint_usable(i, iface, AF_INET))
            memcpy(&found, i->ifa_addr, sizeof(struct sockaddr_in));
    for (const struct ifaddrs *i = list; i && found.ss_family == AF_UNSPEC; i = i->ifa_next)
        if (endpoint_usable(i, iface, AF_INET6))
            memcpy(&found, i->ifa_addr, sizeof(struct sockaddr_in6));
    freeifaddrs(list);
    if (found.ss_family == AF_UNSPEC)
        return err_set(err, ERR_IO,
                       "network interface \"%.40s\" does not exist or has no address, other than "
                       "link-local ones",
                       iface);
    endpoint_from_socket(&found, out);
    out->port = 0;
    return 0;
}

/* ---- the blob ---- */

static void endpoint_put16(uint8_t *p, unsigned v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static unsigned endpoint_get16(const uint8_t *p) { return (unsigned)p[0] << 8 | p[1]; }

static void pack_fabric(const struct endpoint_fabric *f, struct buf *out)
{
    uint8_t len[2];

    buf_append(out, f->name, sizeof f->name);
    buf_append(out, f->half, sizeof f->half);
    for (int ch = 0; ch < COLL_CHANNELS; ch++) {
        endpoint_put16(len, (unsigned)f->len[ch]);
        buf_append(out, len, sizeof len);
        buf_append(out, f->address[ch], f->len[ch]);
    }
}

void endpoint_pack(const struct endpoint *e, struct buf *out)
{
    uint8_t *p = buf_reserve(out, ENDPOINT_BYTES);

    memset(p, 0, ENDPOINT_BYTES);
    memcpy(p, magic, sizeof magic);
    endpoint_put16(p + AT_RANK, (unsigned)e->rank);
    endpoint_put16(p + AT_SIZE, (unsigned)e->size);
    endpoint_put16(p + AT_WINDOW, e->window >> 16);
    endpoint_put16(p + AT_WINDOW + 2, e->window & 0xffff);
    p[AT_FAMILY] = e->addr.family;
    endpoint_put16(p + AT_PORT, e->addr.port);
    memcpy(p + AT_IP, e->addr.ip, sizeof e->addr.ip);
    memcpy(p + AT_RANDOM, e->random, ENDPOINT_RANDOM);
    out->len += ENDPOINT_BYTES;
    if (e->fabric.name[0])
        pack_fabric(&e->fabric, out);
}

static int endpoint_check(const uint8_t *p, size_t len, struct err *err)
{
    if (len != ENDPOINT_BYTES && len < AT_ADDRESSES)
        return err_set(err, ERR_PROTO, "endpoint of %zu bytes, want %d, or more than %d", len,
                       ENDPOINT_BYTES, AT_ADDRESSES);
    if (memcmp(p, magic, sizeof magic) != 0)
        return err_set(err, ERR_PROTO, "endpoint begins with %02x%02x%02x%02x, want \"%.4s\"", p[0],
                       p[1], p[2], p[3], magic);
    unsigned rank = endpoint_get16(p + AT_RANK), size = endpoint_get16(p + AT_SIZE);
    if (size < 1 || size > COLL_TCP_MAX_RANKS || rank >= size)
        return err_set(err, ERR_PROTO, "endpoint of rank %u of %u, want at most %d ranks", rank,
                       size, COLL_TCP_MAX_RANKS);
    if (p[AT_FAMILY] != 4 && p[AT_FAMILY] != 6)
        return err_set(err, ERR_PROTO, "endpoint with address family %u, want 4 or 6",
                       p[AT_FAMILY]);
    return 0;
}

/* Read what follows the first part; nothing may follow that. */
static int parse_fabric(const uint8_t *p, size_t len, struct endpoint_fabric *out, struct err *err)
{
    size_t at = AT_ADDRESSES;

    memcpy(out->name, p + AT_NAME, sizeof out->name);
    memcpy(out->half, p + AT_HALF, sizeof out->half);
    if (!out->name[0] || out->name[FABRIC_NAME - 1])
        return err_set(err, ERR_PROTO, "endpoint with a fabric whose name has no text or no end");
    for (int ch = 0; ch < COLL_CHANNELS; ch++) {
        const size_t n = len - at < 2 ? 0 : endpoint_get16(p + at);

        if (n < 1 || n > FABRIC_ADDRESS || n > len - at - 2)
            return err_set(err, ERR_PROTO,
                           "endpoint with a fabric address of %zu bytes, want 1 to %d", n,
                           FABRIC_ADDRESS);
        out->len[ch] = n;
        memcpy(out->address[ch], p + at + 2, n);
        at += 2 + n;
    }
    if (at != len)
        return err_set(err, ERR_PROTO, "endpoint of %zu bytes, want %zu", len, at);
    return 0;
}

int endpoint_parse(const void *blob, size_t len, struct endpoint *out, struct err *err)
{
    const uint8_t *p = blob;
    int rc = endpoint_check(p, len, err);

    if (rc < 0)
        return rc;
    *out = (struct endpoint){0};
    out->rank = (int)endpoint_get16(p + AT_RANK);
    out->size = (int)endpoint_get16(p + AT_SIZE);
    out->window = (uint32_t)endpoint_get16(p + AT_WINDOW) << 16 | endpoint_get16(p + AT_WINDOW + 2);
    if (out->window < WINDOW_MIN)
        return err_set(err, ERR_PROTO, "endpoint with a window of %u bytes, want at least %d",
                       out->window, WINDOW_MIN);
    out->addr.family = p[AT_FAMILY];
    out->addr.port = (uint16_t)endpoint_get16(p + AT_PORT);
    memcpy(out->addr.ip, p + AT_IP, out->addr.family == 6 ? 16 : 4);
    memcpy(out->random, p + AT_RANDOM, ENDPOINT_RANDOM);
    return len > ENDPOINT_BYTES ? parse_fabric(p, len, &out->fabric, err) : 0;
}
