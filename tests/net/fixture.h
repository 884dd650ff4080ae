/* fixture - a loop for a test of net/: waiting on it has a deadline, and at the end the fixture
 * asserts that no handle is left open. */
#ifndef TESTS_NET_FIXTURE_H
#define TESTS_NET_FIXTURE_H

#include <uv.h>

#include "net/listener.h"

/* A test waits at most DEADLINE_MS; a timer that must not fire during a test has NEVER_MS. */
enum { DEADLINE_MS = 120000, NEVER_MS = 3600000 };

int loop_setup(void **state);    /* *state: uv_loop_t */
int loop_teardown(void **state); /* runs the loop to its end; asserts that it closes with 0 */

/* Run until *flag; fails the test after DEADLINE_MS. */
void run_until(uv_loop_t *loop, const int *flag);

/* A connection's life as a test sees it. */
struct side {
    struct conn *conn; /* NULL after it was closed */
    int n_frames;
    size_t n_bytes; /* of all frames' bodies */
    int has_frame, is_closed;
    int is_plain; /* the peer closed it in order: `why` is not set */
    struct err why;
    struct frame *answer; /* sent back on the first frame; NULL: none */
    int close_on_frame;
};

extern const struct conn_events side_events;

struct frame *frame_of(size_t n, char fill);

/* A listener on 127.0.0.1, port 0, whose connections become `side[]` in turn. */
struct server {
    struct listener *listener;
    struct side side[128];
    int n_accepted;
    int n_to_welcome; /* so many connections are welcomed as they come */
    int has_one;      /* at least one connection was accepted */
};

/* Open a server that never makes room: a stranger keeps its place although others wait. */
void server_open(uv_loop_t *loop, struct server *s, int max_strangers, int stranger_ms);

/* The same with the options `like`; only host, callback and its argument are the fixture's. */
void server_open_like(uv_loop_t *loop, struct server *s, const struct listener_options *like);

void server_accepted(void *server, struct conn *c); /* the listener's callback */

/* Hold a port of 127.0.0.1 that refuses connections until the returned socket is closed.  Meanwhile
 * a server of ours may take the port, but no other process. */
int hold_port(int *port);

/* A raw, blocking socket connected to the server. */
int raw_connect(const struct server *s);
int raw_connect_from(const struct server *s, const char *number); /* ... from this address */

#endif
