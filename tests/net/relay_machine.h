/* relay_machine - a relay's machine, whose ranks are conns over one mux, and a listener that takes
 * relays. */
#ifndef TESTS_NET_RELAY_MACHINE_H
#define TESTS_NET_RELAY_MACHINE_H

#include "mux_party.h"

#include "base/clock.h"
#include "tls_pair.h"

enum { RANKS = 8 };

/* A relay's machine: ranks are conns over one mux. */
struct machine {
    struct party party; /* its mux, without channels of the party's own */
    struct side rank[RANKS];
    int n_ranks;
};

static inline void machine_open_with(uv_loop_t *loop, struct machine *m, const struct server *s,
                                     const struct tls_context *tls)
{
    struct sockaddr_in sa;
    struct err err;

    memset(m, 0, sizeof *m);
    uv_ip4_addr("127.0.0.1", listener_port(s->listener), &sa);
    assert_int_equal(mux_connect(loop, (struct sockaddr *)&sa, tls,
                                 &(struct mux_user){&party_events, &m->party}, &m->party.mux, &err),
                     0);
}

static inline void machine_open(uv_loop_t *loop, struct machine *m, const struct server *s)
{
    machine_open_with(loop, m, s, NULL);
}

static inline struct side *machine_rank(uv_loop_t *loop, struct machine *m)
{
    struct side *side = &m->rank[m->n_ranks++];
    struct err err;

    assert_true(m->n_ranks <= RANKS);
    assert_int_equal(conn_new(loop, FRAME_MAX, NULL, &side->conn, &err), 0);
    conn_listen(side->conn, &side_events, side);
    assert_int_equal(conn_start_over(side->conn, m->party.mux, &err), 0);
    return side;
}

static inline void machine_close(struct machine *m)
{
    for (int i = 0; i < m->n_ranks; i++)
        if (m->rank[i].conn)
            conn_close(m->rank[i].conn);
    if (m->party.mux)
        mux_close(m->party.mux);
}

static inline void relays_open(uv_loop_t *loop, struct server *s, struct listener_options o)
{
    o.takes_relays = 1;
    o.max_strangers = o.max_strangers ? o.max_strangers : 16;
    o.stranger_ms = o.stranger_ms ? o.stranger_ms : NEVER_MS;
    o.room_after_ms = o.room_after_ms ? o.room_after_ms : NEVER_MS;
    server_open_like(loop, s, &o);
}

static inline void until_accepted(uv_loop_t *loop, const struct server *s, int n)
{
    const int64_t start = clock_mono_ns();

    while (s->n_accepted < n) {
        uv_run(loop, UV_RUN_NOWAIT);
        assert_false(is_late(start));
    }
}

#endif
