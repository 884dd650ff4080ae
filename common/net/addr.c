/* Parsing, printing and resolving addresses.
 * An IPv4 address in IPv6 form is always shown as IPv4, since users know only that form. */
#include "net/addr.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/text.h"

static int parse_port(const char *text, const char *whole, int *port, struct err *err)
{
    char *end;
    long v = strtol(text, &end, 10);

    if (text[0] < '0' || text[0] > '9' || *end || v < 1 || v > 65535)
        return err_set(err, ERR_ARG, "address \"%s\": port is \"%s\", want 1 to 65535", whole,
                       text);
    *port = (int)v;
    return 0;
}

/* 1: the text, whose zone does not count, is an IPv6 address. */
static int parse_ipv6(const char *text, size_t len, struct in6_addr *out)
{
    char copy[INET6_ADDRSTRLEN];

    if (memchr(text, '%', len))
        len = strcspn(text, "%");
    snprintf(copy, sizeof copy, "%.*s", (int)(len < sizeof copy ? len : 0), text);
    return inet_pton(AF_INET6, copy, out) == 1;
}

static int is_ipv6(const char *text, size_t len)
{
    struct in6_addr any;

    return parse_ipv6(text, len, &any);
}

int addr_split(const char *text, char host[ADDR_MAX_HOST], int *port, struct err *err)
{
    const char *colon = strrchr(text, ':'), *from = text, *end = colon;

    if (!colon || colon == text)
        return err_set(err, ERR_ARG, "address \"%s\": want HOST:PORT, such as 10.0.0.1:7000", text);
    if (text[0] == '[') {
        from = text + 1;
        end = colon - 1;
        if (*end != ']')
            return err_set(err, ERR_ARG, "address \"%s\": want [IPV6]:PORT", text);
    } else if (memchr(text, ':', (size_t)(colon - text))) {
        return err_set(err, ERR_ARG,
                       is_ipv6(text, (size_t)(colon - text)) || is_ipv6(text, strlen(text))
                           ? "address \"%s\": an IPv6 address needs brackets: [IPV6]:PORT"
                           : "address \"%s\": want HOST:PORT, such as 10.0.0.1:7000",
                       text);
    }
    if (end - from < 1 || end - from >= ADDR_MAX_HOST)
        return err_set(err, ERR_ARG, "address \"%s\": the host has %td characters, want 1 to %d",
                       text, end - from, ADDR_MAX_HOST - 1);
    memcpy(host, from, (size_t)(end - from));
    host[end - from] = '\0';
    return parse_port(colon + 1, text, port, err);
}

/* On a socket that serves both, an IPv4 peer has the address ::ffff:a.b.c.d. */
static const struct in_addr *as_ipv4(const struct sockaddr *sa)
{
    const struct sockaddr_in6 *six = (const void *)sa;

    if (sa->sa_family == AF_INET)
        return &((const struct sockaddr_in *)(const void *)sa)->sin_addr;
    if (sa->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
        return (const void *)&six->sin6_addr.s6_addr[12];
    return NULL;
}

void addr_number(const struct sockaddr *sa, char out[ADDR_TEXT])
{
    const struct in_addr *four = as_ipv4(sa);
    char scope[IF_NAMESIZE];
    const struct sockaddr_in6 *six = (const void *)sa;

    snprintf(out, ADDR_TEXT, "?");
    if (four) {
        inet_ntop(AF_INET, four, out, ADDR_TEXT);
    } else if (sa->sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &six->sin6_addr, out, ADDR_TEXT);
        if (six->sin6_scope_id && if_indextoname(six->sin6_scope_id, scope)) {
            size_t len = strlen(out);

            snprintf(out + len, ADDR_TEXT - len, "%%%s", scope);
        }
    }
}

int addr_port(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)(const void *)sa)->sin_port);
    if (sa->sa_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)(const void *)sa)->sin6_port);
    return 0;
}

int addr_is_number(const char *host)
{
    struct in_addr four;

    return inet_pton(AF_INET, host, &four) == 1 || is_ipv6(host, strlen(host));
}

int addr_is_link_local(const struct sockaddr *sa)
{
    const struct sockaddr_in6 *six = (const void *)sa;

    return sa->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
}

int addr_check_link(const char *host, struct err *err)
{
    if (!is_ipv6(host, strlen(host)) || !text_is_link_local(host))
        return 0;
    return err_set(err, ERR_ARG,
                   "%s is a link-local IPv6 address: it needs the name of an interface, which "
                   "differs from machine to machine, so ranks cannot tell it to each other; give "
                   "another address of that machine (\"ip address\" lists them there, and \"ip "
                   "address add 10.0.0.1/24 dev IF\" adds one)",
                   host);
}

void addr_set_port(struct sockaddr *sa, int port)
{
    if (sa->sa_family == AF_INET)
        ((struct sockaddr_in *)(void *)sa)->sin_port = htons((uint16_t)port);
    if (sa->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)sa)->sin6_port = htons((uint16_t)port);
}

void addr_text(const struct sockaddr *sa, char out[ADDR_TEXT])
{
    char number[ADDR_TEXT];
    int brackets;

    addr_number(sa, number);
    brackets = strchr(number, ':') != NULL;
    snprintf(out, ADDR_TEXT, "%s%.70s%s:%d", brackets ? "[" : "", number, brackets ? "]" : "",
             addr_port(sa));
}

int addr_is_loopback(const struct sockaddr *sa)
{
    const struct in_addr *four = as_ipv4(sa);
    const struct sockaddr_in6 *six = (const void *)sa;

    if (four)
        return ntohl(four->s_addr) >> 24 == IN_LOOPBACKNET;
    return sa->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

int addr_number_is_loopback(const char *number)
{
    struct sockaddr_storage sa = {0};

    sa.ss_family = strchr(number, ':') ? AF_INET6 : AF_INET;
    if (sa.ss_family == AF_INET6)
        return inet_pton(AF_INET6, number, &((struct sockaddr_in6 *)&sa)->sin6_addr) == 1 &&
               addr_is_loopback((struct sockaddr *)&sa);
    return inet_pton(AF_INET, number, &((struct sockaddr_in *)&sa)->sin_addr) == 1 &&
           addr_is_loopback((struct sockaddr *)&sa);
}

/* 2: IPv4, 1: IPv6 that others can reach, 0: of no use */
static int addr_usefulness(const struct sockaddr *sa)
{
    if (!sa)
        return 0;
    if (sa->sa_family == AF_INET)
        return 2;
    return sa->sa_family == AF_INET6 && !addr_is_link_local(sa);
}

static int no_interface(const char *name, const struct ifaddrs *all, struct err *err)
{
    struct buf known = {0};
    int rc;

    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        char number[ADDR_TEXT];

        if (!addr_usefulness(i->ifa_addr))
            continue;
        addr_number(i->ifa_addr, number);
        buf_printf(&known, "%s%s (%s)", known.len ? ", " : "", i->ifa_name, number);
    }
    rc = err_set(
        err, ERR_ARG,
        "interface \"%s\" has no address here, other than link-local ones; this host has %s", name,
        known.len ? buf_cstr(&known) : "none");
    buf_fini(&known);
    return rc;
}

int addr_of_interface(const char *name, char out[ADDR_TEXT], struct err *err)
{
    const struct sockaddr *best = NULL;
    struct ifaddrs *all;
    int rc = 0;

    if (getifaddrs(&all) < 0)
        return err_set(err, ERR_IO, "interface \"%s\": the system lists no interfaces", name);
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        if (!strcmp(i->ifa_name, name) &&
            addr_usefulness(i->ifa_addr) > (best ? addr_usefulness(best) : 0))
            best = i->ifa_addr;
    if (best)
        addr_number(best, out);
    else
        rc = no_interface(name, all, err);
    freeifaddrs(all);
    return rc;
}

int addr_resolve(const char *host, int port, struct sockaddr_storage *out, struct err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    char service[16], bare[ADDR_MAX_HOST] = ""; /* [::1] without brackets */
    int rc;

    snprintf(service, sizeof service, "%d", port);
    if (host[0] == '[' && host[strlen(host) - 1] == ']' && strlen(host) < sizeof bare)
        snprintf(bare, sizeof bare, "%.*s", (int)strlen(host) - 2, host + 1);
    rc = getaddrinfo(*bare ? bare : host, service, &hints, &found);
    if (rc != 0)
        return err_set(err, ERR_ARG, "address \"%s\" cannot be resolved: %s", host,
                       gai_strerror(rc));
    memcpy(out, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return 0;
}

const char *addr_all(void)
{
    struct sockaddr_in6 sa = {.sin6_family = AF_INET6};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int has_ipv6 = fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof sa) == 0;

    if (fd >= 0)
        close(fd);
    return has_ipv6 ? "::" : "0.0.0.0";
}
