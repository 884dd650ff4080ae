/* route - what a request gets, decided by its method, its path and what the gate thinks of it.
 *
 * Threads: any; pure. */
#ifndef NET_HTTP_ROUTE_H
#define NET_HTTP_ROUTE_H

#include "net/http.h"

enum http_route_kind {
    ROUTE_METHOD,     /* refused: neither GET nor HEAD */
    ROUTE_TWO_HOSTS,  /* refused: not a request */
    ROUTE_OTHER_HOST, /* refused */
    ROUTE_NO_TOKEN,   /* refused */
    ROUTE_NOTHING,    /* there is nothing at this path */
    ROUTE_KEEP_TOKEN, /* the link was opened: the browser keeps the token as a cookie */
    ROUTE_STREAM,
    ROUTE_DOCUMENT,
    ROUTE_FILE,
    ROUTE_FOLDER,
};

struct http_route {
    enum http_route_kind kind;
    int i;            /* of a document, a file or a folder: its number in the options */
    const char *name; /* in the folder: the rest of the path, or "" */
};

/* target is a path, or "http://HOST/path".  It and method are foreign texts; so are those of r. */
struct http_route http_route_of(const struct http_options *o, const struct gate *g,
                                const char *method, const char *target,
                                const struct gate_request *r);

int http_is_method(const char *method); /* 1: GET or HEAD */

#endif
