/* tls_pair - a driver's listener and a follower's dialer on one loop, with TLS between them. */
#ifndef TESTS_NET_TLS_PAIR_H
#define TESTS_NET_TLS_PAIR_H

#include "../test.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "fixture.h"
#include "net/dialer.h"
#include "net/tls_library.h"

static const struct tls_texts texts = {"no copy of the other", "give both a secret"};

static inline struct tls_context *context(int key, enum tls_role role)
{
    struct tls_context *c;
    struct secret s;
    struct err err;

    memset(&s, key, sizeof s);
    assert_int_equal(tls_context_new(&s, 1, role, &texts, &c, &err), 0);
    secret_wipe(&s); /* the context has its own copy */
    return c;
}

/* A driver with TLS or without, and a follower that dials it. */
struct pair {
    uv_loop_t *loop;
    struct server server;
    struct side client;
    struct dialer *dialer;
    struct tls_context *of_driver, *of_follower;
    int is_connected;
    char refused[256]; /* why the listener did not let a stranger in, the last time */
    int is_refused;
};

static inline void on_connected(void *arg, struct conn *c)
{
    struct pair *p = arg;

    p->client.conn = c;
    p->is_connected = 1;
    conn_listen(c, &side_events, &p->client);
}

static inline void on_refused(void *server, const char *why)
{
    struct pair *p = container_of((struct server *)server, struct pair, server);

    snprintf(p->refused, sizeof p->refused, "%s", why);
    p->is_refused = 1;
}

/* A key of 0: no TLS. */
static inline void pair_open(struct pair *p, uv_loop_t *loop, int driver_key, int follower_key)
{
    struct listener_options l = {.host = "127.0.0.1",
                                 .max_strangers = 8,
                                 .stranger_ms = NEVER_MS,
                                 .accepted = server_accepted,
                                 .refused = on_refused,
                                 .arg = &p->server};
    struct err err;

    memset(p, 0, sizeof *p);
    p->loop = loop;
    p->of_driver = driver_key ? context(driver_key, TLS_DRIVER) : NULL;
    p->of_follower = follower_key ? context(follower_key, TLS_FOLLOWER) : NULL;
    l.tls = p->of_driver;
    assert_int_equal(listener_new(loop, &l, &p->server.listener, &err), 0);
}

static inline void pair_dial_at(struct pair *p, int port)
{
    struct dialer_options d = {.host = "127.0.0.1",
                               .port = port,
                               .wait_ms = -1,
                               .tls = p->of_follower,
                               .connected = on_connected,
                               .arg = p};
    struct err err;

    assert_int_equal(dialer_new(p->loop, &d, &p->dialer, &err), 0);
    dialer_start(p->dialer, 0);
    run_until(p->loop, &p->is_connected);
}

static inline void pair_dial(struct pair *p) { pair_dial_at(p, listener_port(p->server.listener)); }

/* The contexts are freed after the last connection. */
static inline void pair_close(struct pair *p)
{
    for (size_t i = 0; i < ARRAY_LEN(p->server.side); i++)
        if (p->server.side[i].conn)
            conn_close(p->server.side[i].conn);
    if (p->client.conn)
        conn_close(p->client.conn);
    listener_close(p->server.listener);
    dialer_close(p->dialer);
    alarm(DEADLINE_MS / 1000);
    uv_run(p->loop, UV_RUN_DEFAULT);
    alarm(0);
    tls_context_free(p->of_driver);
    tls_context_free(p->of_follower);
}

static inline int is_late(int64_t start_ns) { return clock_since_s(start_ns) > 1e-3 * DEADLINE_MS; }

static inline void assert_says(const struct err *e, int code, const char *has)
{
    assert_int_equal(e->code, code);
    if (!strstr(e->msg, has))
        fail_msg("\"%s\" is not in: %s", has, e->msg);
}

#endif
