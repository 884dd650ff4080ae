/* fixture - a loop with a deadline, and a check at the end that no handle is left open. */
#ifndef TESTS_NET_FIXTURE_H
#define TESTS_NET_FIXTURE_H

#include <uv.h>

#include "net/listener.h"

/* A test waits at most DEADLINE_MS; a timer that must not fire during a test has NEVER_MS. */
enum { DEADLINE_MS = 120000, NEVER_MS = 3600000 };

int loop_setup(void **state);    /* *state: uv_loop_t */
int loop_teardown(void **state); /* runs what is left and asserts that uv_loop_close gives 0 */

/* Run until *flag; fails the test after DEADLINE_MS. */
void run_until(uv_loop_t *loop, const int *flag);

/* A connection's life as a test sees it. */
struct side {
    struct conn *conn; /* NULL once closed */
    int n_frames;
    size_t n_bytes; /* of bodies */
    int has_frame, is_closed;
    int is_plain; /* the peer just closed it: no why */
    struct err why;
    struct frame *answer; /* sent back upon the first frame; NULL: none */
    int close_on_frame;
};

extern const struct conn_events side_events;

struct frame *frame_of(size_t n, char fill);

/* A listener on 127.0.0.1, port 0, whose connections become `side[]` in turn. */
struct server {
    struct listener *listener;
    struct side side[16];
    int n_accepted;
    int n_to_welcome; /* this many are welcomed as they come */
    int has_one;      /* at least one was accepted */
};

/* Without making room: a stranger keeps its place although others wait. */
void server_open(uv_loop_t *loop, struct server *s, int max_strangers, int stranger_ms);

/* `like`: its other options. */
void server_open_like(uv_loop_t *loop, struct server *s, const struct listener_options *like);

void server_accepted(void *server, struct conn *c); /* its listener's callback */

/* A port of 127.0.0.1 that refuses connections, until the socket is closed that is returned; a
 * server may take it meanwhile, nobody else. */
int hold_port(int *port);

/* A raw, blocking socket connected to the server. */
int raw_connect(const struct server *s);

#endif
