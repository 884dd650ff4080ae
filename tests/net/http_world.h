/* http_world - a server over real sockets for tests of net/http, and a client, in one process and
 * one thread.
 *
 * The server has "/status", a count that grows with each reading; "/health", which says 503; the
 * stream "/events"; and the folder "/files", once has_root is set.
 *
 * Life:    open_at -> dial, say ... -> world_end.
 * Threads: one, and the pool's, which read the folder.
 * Errors:  the test fails. */
#ifndef TESTS_NET_HTTP_WORLD_H
#define TESTS_NET_HTTP_WORLD_H

#include <semaphore.h>

#include "base/buf.h"
#include "net/http.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

#define GET(path, headers) \
    "GET " path " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" headers "\r\n"

struct world {
    uv_loop_t loop;
    struct http *http;
    int port, n_made, has_root;
};

extern sem_t held; /* a reading of /files/hold waits for it */

void open_at(struct world *w, const char *host, const char *token);
void world_end(struct world *w);

int dial(const struct world *w); /* a socket connected to the server */
void say(int fd, const char *text);

/* Run the loop until the client has `wanted` in its bytes, or (NULL) the server has closed.
 * Returns 0 if that does not happen for a long time. */
int hear(struct world *w, int fd, const char *wanted, struct buf *out);

/* The whole answer to a request, whose connection then ends. */
void ask(struct world *w, const char *request, struct buf *out);

int begins(struct buf *b, const char *text); /* 1: with this text */

#endif
