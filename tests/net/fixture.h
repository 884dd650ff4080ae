/* fixture - a loop with a deadline, and the proof at the end that nothing is left open. */
#ifndef TESTS_NET_FIXTURE_H
#define TESTS_NET_FIXTURE_H

#include <uv.h>

#include "net/listener.h"

enum { DEADLINE_MS = 20000 };

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

/* A listener on 127.0.0.1, port 0, whose connections become `accepted[]` in turn. */
struct server {
    struct listener *listener;
    struct side side[16];
    int n_accepted;
    int has_one; /* at least one was accepted */
};

void server_open(uv_loop_t *loop, struct server *s, int max_strangers, int stranger_ms);

void server_open_at(uv_loop_t *loop, struct server *s, int port, int max_strangers,
                    int stranger_ms);

void server_accepted(void *server, struct conn *c); /* its listener's callback */

/* A raw, blocking socket connected to the server. */
int raw_connect(const struct server *s);

#endif
