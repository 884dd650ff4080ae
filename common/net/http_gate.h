/* gate - whether a request to the page (net/http.h) may be answered: the checks of what a browser,
 * or somebody who pretends to be one, has sent.
 *
 * A page of another site must not look, although its name may resolve to this server's address (DNS
 * rebinding).  So where no token is wanted the Host header must be something that no foreigner can
 * have resolved: a number, "localhost", this host's own name, or the name that --http has.  A
 * server of loopback takes the numbers of loopback alone.  With a token the name does not matter,
 * because a browser sends the cookie to the name alone that the link had.
 *
 * Everybody on this machine may look at a server of loopback.  Beyond it a token is wanted, if
 * there is a secret to make it from; the secret cannot be found from it.  It comes as ?token=...,
 * as a cookie, or as "Authorization: Bearer ...".
 *
 * Threads: any; pure, but for gate_own_name, which asks the system. */
#ifndef NET_HTTP_GATE_H
#define NET_HTTP_GATE_H

#include "net/addr.h"
#include "net/secret.h"

enum { GATE_TOKEN = 33 }; /* 32 hex digits and a NUL */

struct gate {
    int is_loopback;        /* 1: the server listens on this machine alone */
    char token[GATE_TOKEN]; /* "": none is wanted */
    char given[ADDR_MAX_HOST],
        own[ADDR_MAX_HOST]; /* names: that of --http, this host's; "": none */
};

/* The parts of a request that count; NULL: it has none. */
struct gate_request {
    const char *host;          /* the first Host header */
    int n_hosts;               /* how many there are */
    const char *authorization; /* the header of this name */
    const char *query;         /* ?token=... */
    const char *cookie;        /* the cookie's value */
};

/* The name of this host, or "". */
void gate_own_name(char out[ADDR_MAX_HOST]);

enum gate_verdict { GATE_OPEN, GATE_TWO_HOSTS, GATE_OTHER_HOST, GATE_NO_TOKEN };

/* The first 32 digits of HMAC-SHA256(secret, a fixed text).  Returns 0, or -1: OpenSSL cannot. */
int gate_token(const struct secret *s, char out[GATE_TOKEN]);

enum gate_verdict gate_check(const struct gate *g, const struct gate_request *r);

/* 1: the text is the gate's token.  The time does not depend on how much of it is right. */
int gate_is_token(const struct gate *g, const char *text);

#endif
