/* gateway_process - a process behind a gateway, and a server that takes relays. */
#ifndef TESTS_NET_GATEWAY_PROCESS_H
#define TESTS_NET_GATEWAY_PROCESS_H

#include "../test.h"

#include <unistd.h>

#include "fixture.h"
#include "net/dialer.h"
#include "net/gateway.h"
#include "net/lane.h"

/* A process: its end of the lane, its dialer, and its connection. */
struct process {
    struct side side;
    struct dialer *dialer;
    int lane, is_connected, has_given_up;
    int n_hello; /* bytes that it sends as soon as it is connected */
    char peer[64];
    struct err why;
};

static inline void process_on_connected(void *arg, struct conn *c)
{
    struct process *p = arg;

    p->side.conn = c;
    p->is_connected = 1;
    snprintf(p->peer, sizeof p->peer, "%s", conn_peer(c));
    conn_listen(c, &side_events, &p->side);
    if (p->n_hello)
        conn_send(c, frame_of((size_t)p->n_hello, 'h'));
}

static inline void process_on_gave_up(void *arg, const struct err *why)
{
    struct process *p = arg;

    p->why = *why;
    p->has_given_up = 1;
}

static inline void process_dial(uv_loop_t *loop, struct gateway *g, struct process *p, int port,
                                int wait)
{
    struct dialer_options o = {.host = "127.0.0.1",
                               .port = port,
                               .wait_ms = wait,
                               .seed = 7,
                               .connected = process_on_connected,
                               .gave_up = process_on_gave_up,
                               .arg = p};
    struct err err;

    *p = (struct process){0};
    assert_int_equal(gateway_add(g, &p->lane, &err), 0);
    o.lane = p->lane;
    assert_int_equal(dialer_new(loop, &o, &p->dialer, &err), 0);
    dialer_start(p->dialer, 0);
}

static inline void process_end(struct process *p)
{
    if (p->side.conn)
        conn_abort(p->side.conn);
    dialer_close(p->dialer);
    close(p->lane);
}

static inline void open_for_relays(uv_loop_t *loop, struct server *s, const struct tls_context *tls,
                                   int port)
{
    server_open_like(loop, s,
                     &(struct listener_options){.port = port,
                                                .tls = tls,
                                                .max_strangers = 16,
                                                .takes_relays = 1,
                                                .stranger_ms = NEVER_MS,
                                                .room_after_ms = NEVER_MS});
}

/* A process and its connection as the server sees it. */
static inline struct side *connect_one(uv_loop_t *loop, struct gateway *g, struct process *p,
                                       struct server *s)
{
    const int before = s->n_accepted;

    process_dial(loop, g, p, listener_port(s->listener), -1);
    run_until(loop, &p->is_connected);
    while (s->n_accepted == before)
        uv_run(loop, UV_RUN_ONCE);
    return &s->side[before];
}

#endif
