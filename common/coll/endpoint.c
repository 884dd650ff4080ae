/* coll/endpoint - finds the addresses of this machine's interfaces, and writes and reads the blob
 * that carries one rank's address and ports to the others. */
#include "coll/endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

enum {
    AT_RANK = 4,
    AT_SIZE = 6,
    AT_WINDOW = 8,
    AT_NONCE = 12,
    AT_FAMILY = 20,
    AT_IP = 24,
    AT_PORTS = 40,
    WINDOW_MIN = 4 << 10, /* with less, no link could hold MESH_WINDOW useful pieces */
};

static const char magic[4] = {'d', 'p', 'G', '2'};

/* ---- addresses ---- */

static uint8_t *ip_bytes(struct sockaddr_storage *a, size_t *len)
{
    *len = a->ss_family == AF_INET6 ? 16 : 4;
    return a->ss_family == AF_INET6
               ? ((struct sockaddr_in6 *)(void *)a)->sin6_addr.s6_addr
               : (uint8_t *)&((struct sockaddr_in *)(void *)a)->sin_addr.s_addr;
}

static void addr_set(struct sockaddr_storage *a, sa_family_t family, const uint8_t *ip)
{
    size_t len;
    memset(a, 0, sizeof *a);
    a->ss_family = family;
    uint8_t *to = ip_bytes(a, &len);
    memcpy(to, ip, len);
}

static uint16_t *port_of(struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? &((struct sockaddr_in6 *)(void *)a)->sin6_port
                                    : &((struct sockaddr_in *)(void *)a)->sin_port;
}

struct sockaddr_storage endpoint_for(const struct endpoint *e, enum coll_channel ch, int rank)
{
    ASSERT(0 <= rank && rank < COLL_GLOO_MAX_RANKS);
    struct sockaddr_storage a = e->addr;
    *port_of(&a) = htons(e->ports[ch][rank]);
    return a;
}

socklen_t endpoint_addr_len(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

bool endpoint_is_any(const struct sockaddr_storage *a)
{
    static const uint8_t zeros[16];
    struct sockaddr_storage copy = *a;
    size_t len;
    const uint8_t *ip = ip_bytes(&copy, &len);
    return !memcmp(ip, zeros, len);
}

void endpoint_ip_text(const struct sockaddr_storage *a, char out[COLL_IP_LEN])
{
    struct sockaddr_storage copy = *a;
    size_t len;
    if (!inet_ntop(a->ss_family, ip_bytes(&copy, &len), out, COLL_IP_LEN))
        snprintf(out, COLL_IP_LEN, "?");
}

void endpoint_text(const struct sockaddr_storage *a, char out[ENDPOINT_TEXT])
{
    struct sockaddr_storage copy = *a;
    char ip[COLL_IP_LEN];
    endpoint_ip_text(a, ip);
    snprintf(out, ENDPOINT_TEXT, a->ss_family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip,
             (unsigned)ntohs(*port_of(&copy)));
}

int endpoint_addr_from_text(const char *ip, struct sockaddr_storage *out, struct err *err)
{
    uint8_t bytes[16];
    if (inet_pton(AF_INET, ip, bytes) == 1)
        addr_set(out, AF_INET, bytes);
    else if (inet_pton(AF_INET6, ip, bytes) == 1)
        addr_set(out, AF_INET6, bytes);
    else
        return err_set(err, ERR_ARG, "\"%.60s\" is not a numeric IPv4 or IPv6 address", ip);
    return 0;
}

static bool usable(const struct ifaddrs *i, const char *iface, sa_family_t family)
{
    return i->ifa_addr && i->ifa_addr->sa_family == family && !strcmp(i->ifa_name, iface);
}

int endpoint_addr_of_iface(const char *iface, struct sockaddr_storage *out, struct err *err)
{
    struct ifaddrs *list;
    if (getifaddrs(&list) < 0)
        return err_sys(err, errno, "listing network interfaces");
    const struct ifaddrs *found = NULL;
    for (const struct ifaddrs *i = list; i && !found; i = i->ifa_next)
        found = usable(i, iface, AF_INET) ? i : NULL;
    for (const struct ifaddrs *i = list; i && !found; i = i->ifa_next)
        found = usable(i, iface, AF_INET6) ? i : NULL;
    if (found) {
        memset(out, 0, sizeof *out);
        memcpy(out, found->ifa_addr,
               found->ifa_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                      : sizeof(struct sockaddr_in));
    }
    freeifaddrs(list);
    if (!found)
        return err_set(err, ERR_IO, "network interface \"%.40s\" does not exist or has no address",
                       iface);
    return 0;
}

/* ---- the blob ---- */

static void put16(uint8_t *p, unsigned v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static unsigned get16(const uint8_t *p) { return (unsigned)p[0] << 8 | p[1]; }

static void put_ip(uint8_t *blob, const struct sockaddr_storage *a)
{
    struct sockaddr_storage copy = *a;
    size_t len;
    const uint8_t *ip = ip_bytes(&copy, &len);
    blob[AT_FAMILY] = len == 16 ? 6 : 4;
    memset(blob + AT_IP, 0, 16);
    memcpy(blob + AT_IP, ip, len);
}

static size_t blob_len(int size) { return AT_PORTS + 2 * COLL_CHANNELS * (size_t)size; }

static size_t at_port(int size, int ch, int rank)
{
    return AT_PORTS + 2 * ((size_t)ch * (size_t)size + (size_t)rank);
}

void endpoint_pack(const struct endpoint *e, struct buf *out)
{
    size_t len = blob_len(e->size);
    uint8_t *p = buf_reserve(out, len);
    memset(p, 0, len);
    memcpy(p, magic, sizeof magic);
    put16(p + AT_RANK, (unsigned)e->rank);
    put16(p + AT_SIZE, (unsigned)e->size);
    put16(p + AT_WINDOW, e->window >> 16);
    put16(p + AT_WINDOW + 2, e->window & 0xffff);
    memcpy(p + AT_NONCE, e->nonce, ENDPOINT_NONCE);
    put_ip(p, &e->addr);
    for (int ch = 0; ch < COLL_CHANNELS; ch++)
        for (int r = 0; r < e->size; r++)
            put16(p + at_port(e->size, ch, r), e->ports[ch][r]);
    out->len += len;
}

static int check(const uint8_t *p, size_t len, struct err *err)
{
    if (len < AT_PORTS)
        return err_set(err, ERR_PROTO, "endpoint of %zu bytes, want at least %d", len, AT_PORTS);
    if (memcmp(p, magic, sizeof magic))
        return err_set(err, ERR_PROTO, "endpoint begins with %02x%02x%02x%02x, want \"dpG2\"", p[0],
                       p[1], p[2], p[3]);
    unsigned rank = get16(p + AT_RANK), size = get16(p + AT_SIZE);
    if (size < 1 || size > COLL_GLOO_MAX_RANKS || rank >= size)
        return err_set(err, ERR_PROTO, "endpoint of rank %u of %u, want at most %d ranks", rank,
                       size, COLL_GLOO_MAX_RANKS);
    if (len != blob_len((int)size))
        return err_set(err, ERR_PROTO, "endpoint of %zu bytes, want %zu for %u ranks", len,
                       blob_len((int)size), size);
    if (p[AT_FAMILY] != 4 && p[AT_FAMILY] != 6)
        return err_set(err, ERR_PROTO, "endpoint with address family %u, want 4 or 6",
                       p[AT_FAMILY]);
    return 0;
}

int endpoint_parse(const void *blob, size_t len, struct endpoint *out, struct err *err)
{
    const uint8_t *p = blob;
    int rc = check(p, len, err);
    if (rc < 0)
        return rc;
    memset(out, 0, sizeof *out);
    out->rank = (int)get16(p + AT_RANK);
    out->size = (int)get16(p + AT_SIZE);
    out->window = (uint32_t)get16(p + AT_WINDOW) << 16 | get16(p + AT_WINDOW + 2);
    if (out->window < WINDOW_MIN)
        return err_set(err, ERR_PROTO, "endpoint with a window of %u bytes, want at least %d",
                       out->window, WINDOW_MIN);
    memcpy(out->nonce, p + AT_NONCE, ENDPOINT_NONCE);
    addr_set(&out->addr, p[AT_FAMILY] == 6 ? AF_INET6 : AF_INET, p + AT_IP);
    for (int ch = 0; ch < COLL_CHANNELS; ch++)
        for (int r = 0; r < out->size; r++)
            out->ports[ch][r] = (uint16_t)get16(p + at_port(out->size, ch, r));
    return 0;
}
