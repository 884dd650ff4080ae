/* gate - whether a request to the page (net/http.h) may be answered: the checks of what a browser,
 * or somebody who pretends to be one, has sent.
 *
 * On loopback everybody on this machine may look.  A page of another site must not: its name may
 * resolve to 127.0.0.1 (DNS rebinding), so the Host header must be a name of loopback.  Beyond
 * loopback a token is wanted.  It is made from the job's secret, and the secret cannot be found
 * from it.  It comes as ?token=..., as a cookie, or as "Authorization: Bearer ...".
 *
 * Threads: any; pure. */
#ifndef NET_HTTP_GATE_H
#define NET_HTTP_GATE_H

#include "net/secret.h"

enum { GATE_TOKEN = 33 }; /* 32 hex digits and a NUL */

struct gate {
    int is_loopback;        /* 1: the server listens on this machine alone */
    char token[GATE_TOKEN]; /* "": none is wanted */
};

/* The parts of a request that count; NULL: it has none. */
struct gate_request {
    const char *host;          /* the Host header */
    const char *authorization; /* the header of this name */
    const char *query;         /* ?token=... */
    const char *cookie;        /* the cookie's value */
};

enum gate_verdict { GATE_OPEN, GATE_OTHER_HOST, GATE_NO_TOKEN };

/* The first 32 digits of HMAC-SHA256(secret, a fixed text).  Returns 0, or -1: OpenSSL cannot. */
int gate_token(const struct secret *s, char out[GATE_TOKEN]);

enum gate_verdict gate_check(const struct gate *g, const struct gate_request *r);

/* 1: the text is the gate's token.  The time does not depend on how much of it is right. */
int gate_is_token(const struct gate *g, const char *text);

#endif
