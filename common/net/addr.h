/* addr - network addresses as text, and the addresses of this host.
 *
 * Threads: any. */
#ifndef NET_ADDR_H
#define NET_ADDR_H

#include <stddef.h>
#include <sys/socket.h>

#include "base/err.h"

enum {
    ADDR_MAX_HOST = 256, /* a name or number, with its NUL */
    ADDR_TEXT = 80,      /* "[fe80::1%eth0]:7000", with its NUL */
};

/* "HOST:PORT", "[::1]:7000".  Fails with ERR_ARG: no port, not a number, out of 1..65535. */
int addr_split(const char *text, char host[ADDR_MAX_HOST], int *port, struct err *err);

/* "10.0.0.1:7000", "[::1]:7000"; an IPv4 address in IPv6 form as IPv4. */
void addr_text(const struct sockaddr *sa, char out[ADDR_TEXT]);

/* The address without its port, as CMD_PREPARE's address and inet_pton take it: "10.0.0.1", "::1".
 */
void addr_number(const struct sockaddr *sa, char out[ADDR_TEXT]);

/* 1: the text is an IPv4 or IPv6 address, not a name. */
int addr_is_number(const char *host);

/* fe80::/10.  Such an address holds only together with a zone, an interface's name on one machine.
 * Ranks could not tell it to each other, so it is refused wherever an address is given. */
int addr_is_link_local(const struct sockaddr *sa);
/* Refuse a number that is a link-local address, with or without its zone; names pass.  ERR_ARG. */
int addr_check_link(const char *host, struct err *err);

/* Change the port of an IPv4 or IPv6 address. */
void addr_set_port(struct sockaddr *sa, int port);

int addr_port(const struct sockaddr *sa);

/* 127.0.0.0/8, ::1 and ::ffff:127.0.0.0/104 */
int addr_is_loopback(const struct sockaddr *sa);
int addr_number_is_loopback(const char *number);

/* The number of interface `name`: its first IPv4 address, or else its first IPv6 one that is not
 * link-local.  Fails with ERR_ARG and lists the interfaces there are. */
int addr_of_interface(const char *name, char out[ADDR_TEXT], struct err *err);

/* The address that stands for all addresses of this host: "::", which takes IPv4, too, or "0.0.0.0"
 * if this host has no IPv6. */
const char *addr_all(void);

/* Resolve `host` and port for a socket to listen on; the first answer.  Blocks. */
int addr_resolve(const char *host, int port, struct sockaddr_storage *out, struct err *err);

#endif
