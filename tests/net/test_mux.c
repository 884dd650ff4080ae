/* Tests of two muxes that talk: windows hold up no other channel, channels end in every order, and
 * a connection's end is the end of each. */
#include "mux_party.h"

#include "base/clock.h"
#include "tls_pair.h"

/* NULL: without TLS. */
static struct tls_context *of_relay, *of_driver;

struct couple {
    struct party relay, driver;
    uv_tcp_t listening;
    uv_loop_t *loop;
    int accepted; /* the driver's socket */
};

static void on_couple_connection(uv_stream_t *s, int status)
{
    struct couple *c = s->data;
    uv_tcp_t *tcp = calloc(1, sizeof *tcp);
    uv_os_fd_t fd;

    assert_int_equal(status, 0);
    uv_tcp_init(c->loop, tcp);
    assert_int_equal(uv_accept(s, (uv_stream_t *)tcp), 0);
    assert_int_equal(uv_fileno((uv_handle_t *)tcp, &fd), 0);
    c->accepted = dup(fd);
    uv_close((uv_handle_t *)tcp, (uv_close_cb)free);
}

static void couple_open(struct couple *c, uv_loop_t *loop)
{
    struct sockaddr_storage sa;
    uint8_t magic[PIECE_MAGIC];
    int len = sizeof sa;
    struct err err;

    memset(c, 0, sizeof *c);
    c->loop = loop;
    c->accepted = -1;
    uv_tcp_init(loop, &c->listening);
    c->listening.data = c;
    uv_ip4_addr("127.0.0.1", 0, (struct sockaddr_in *)&sa);
    assert_int_equal(uv_tcp_bind(&c->listening, (struct sockaddr *)&sa, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&c->listening, 1, on_couple_connection), 0);
    assert_int_equal(uv_tcp_getsockname(&c->listening, (struct sockaddr *)&sa, &len), 0);
    assert_int_equal(mux_connect(loop, (struct sockaddr *)&sa, of_relay,
                                 &(struct mux_user){&party_events, &c->relay}, &c->relay.mux, &err),
                     0);
    while (c->accepted < 0 || read(c->accepted, magic, sizeof magic) < 0)
        uv_run(loop, UV_RUN_NOWAIT);
    assert_int_equal(mux_accept(loop, c->accepted, of_driver,
                                &(struct mux_user){&party_events, &c->driver}, &c->driver.mux,
                                &err),
                     0);
    run_until(loop, &c->relay.is_ready);
}

static void couple_close(struct couple *c)
{
    if (c->relay.mux)
        mux_close(c->relay.mux);
    if (c->driver.mux)
        mux_close(c->driver.mux);
    uv_close((uv_handle_t *)&c->listening, NULL);
}

static void until_bytes(struct couple *c, const struct line *l, size_t n)
{
    const int64_t start = clock_mono_ns();

    while (l->n_bytes < n) {
        uv_run(c->loop, UV_RUN_NOWAIT);
        assert_true(clock_since_s(start) < 1e-3 * DEADLINE_MS);
    }
    assert_int_equal(l->n_bytes, n);
}

static struct line *couple_line(struct couple *c, struct line **other)
{
    struct line *l = party_open(&c->relay);
    const int n = c->driver.n_lines;

    while (c->driver.n_lines == n)
        uv_run(c->loop, UV_RUN_NOWAIT);
    *other = &c->driver.line[n];
    return l;
}

/* One channel's user takes nothing; the other channels go on, in both directions. */
static void test_lazy_reader(void **state)
{
    struct line *a[2], *b[2];
    static struct couple c;
    size_t sent[3] = {0};
    int n_done = 0;

    couple_open(&c, *state);
    for (int i = 0; i < 2; i++)
        a[i] = couple_line(&c, &b[i]);
    b[0]->is_lazy = 1;
    for (int i = 0; i < 16; i++) {
        line_send(a[0], &sent[0], MUX_WINDOW, &n_done);
        line_send(a[1], &sent[1], MUX_WINDOW, &n_done);
        line_send(b[1], &sent[2], MUX_WINDOW, &n_done);
    }
    until_bytes(&c, b[1], 16 * MUX_WINDOW);
    until_bytes(&c, a[1], 16 * MUX_WINDOW);
    until_bytes(&c, b[0], MUX_WINDOW);
    mux_turn(*state, 20);
    assert_int_equal(b[0]->n_bytes, MUX_WINDOW);
    assert_int_equal(mux_n_unsent(&a[0]->ch), 15 * MUX_WINDOW);
    b[0]->is_lazy = 0;
    mux_took(&b[0]->ch, MUX_WINDOW);
    until_bytes(&c, b[0], 16 * MUX_WINDOW);
    mux_turn(*state, 5);
    assert_int_equal(n_done, 48);
    couple_close(&c);
    mux_drop(&a[0]->ch);
    mux_drop(&a[1]->ch);
    mux_turn(*state, 20);
    assert_true(b[0]->is_broken && b[1]->is_broken);
}

/* Bytes that wait for a channel which the other side has not taken come once it is taken. */
static void test_waits(void **state)
{
    static struct couple c;
    struct line *l;
    size_t sent = 0;
    int n_done = 0;

    couple_open(&c, *state);
    c.driver.is_shy = 1;
    l = party_open(&c.relay);
    line_send(l, &sent, 1000, &n_done);
    mux_end(&l->ch);
    mux_turn(*state, 20);
    assert_int_equal(c.driver.n_offered, 1);
    assert_int_equal(mux_n_unsent(&l->ch), 1000);
    party_open(&c.driver);
    until_bytes(&c, &c.driver.line[0], 1000);
    run_until(*state, &c.driver.line[0].n_ends);
    mux_end(&c.driver.line[0].ch);
    run_until(*state, &l->is_over);
    run_until(*state, &c.driver.line[0].is_over);
    couple_close(&c);
}

/* Both sides end, drop, or one of each, in each order; nothing is heard after a drop. */
static void test_closing(void **state)
{
    for (int how = 0; how < 8; how++) {
        const int drops_a = how & 1, drops_b = how & 2, is_at_once = how & 4;
        static struct couple c;
        struct line *a, *b;
        size_t sent = 0;
        int n_done = 0;

        couple_open(&c, *state);
        a = couple_line(&c, &b);
        line_send(a, &sent, 5000, &n_done);
        if (drops_a)
            mux_drop(&a->ch);
        else
            mux_end(&a->ch);
        assert_int_equal(n_done, drops_a != 0);
        if (!is_at_once)
            mux_turn(*state, 20);
        if (!is_at_once && !drops_a)
            assert_true(b->n_ends == 1 && b->n_bytes == 5000);
        if (!is_at_once && drops_a)
            assert_true(b->is_broken && strstr(b->why.msg, "has broken channel 1 off"));
        if (drops_b)
            mux_drop(&b->ch);
        else
            mux_end(&b->ch);
        mux_turn(*state, 20);
        assert_int_equal(a->is_over, !drops_a && (!drops_b || !is_at_once));
        assert_int_equal(a->is_broken, !drops_a && drops_b && is_at_once);
        assert_int_equal(b->is_over, !drops_a && !drops_b);
        assert_int_equal(n_channels_of(c.relay.mux), 0);
        assert_int_equal(n_channels_of(c.driver.mux), 0);
        assert_int_equal(n_done, 1);
        couple_close(&c);
        mux_turn(*state, 20);
        assert_false(c.relay.is_ended || c.driver.is_ended);
    }
}

/* Channels that come and go leave nothing behind, also if they never left this side. */
static void test_again(void **state)
{
    struct mux_channel never = {0};
    static struct couple c;
    struct err err;

    couple_open(&c, *state);
    for (int i = 0; i < 3 * MUX_MAX_CHANNELS; i++) {
        struct line *a, *b;

        assert_int_equal(mux_open(c.relay.mux, &never, &line_events, &never, &err), 0);
        mux_drop(&never);
        c.relay.n_lines = c.driver.n_lines = 0;
        memset(c.relay.line, 0, sizeof c.relay.line);
        memset(c.driver.line, 0, sizeof c.driver.line);
        a = couple_line(&c, &b);
        mux_drop(i % 2 ? &a->ch : &b->ch);
        mux_turn(*state, 3);
        assert_true(i % 2 ? b->is_broken : a->is_broken);
    }
    assert_int_equal(c.driver.n_offered, 3 * MUX_MAX_CHANNELS);
    assert_int_equal(n_channels_of(c.driver.mux), 0);
    couple_close(&c);
}

static void test_most_channels(void **state)
{
    static struct mux_channel many[MUX_MAX_CHANNELS + 1];
    static struct couple c;
    struct err err;

    couple_open(&c, *state);
    c.driver.is_shy = 1;
    for (int i = 0; i < MUX_MAX_CHANNELS; i++)
        assert_int_equal(mux_open(c.relay.mux, &many[i], &line_events, &many[i], &err), 0);
    assert_int_equal(mux_open(c.relay.mux, &many[MUX_MAX_CHANNELS], &line_events, NULL, &err),
                     ERR_PEER);
    assert_non_null(strstr(err.msg, "carries 1024 ranks"));
    mux_turn(*state, 20);
    assert_int_equal(mux_n_waiting(c.driver.mux), MUX_MAX_CHANNELS);
    for (int i = 0; i < MUX_MAX_CHANNELS; i++)
        mux_drop(&many[i]);
    mux_turn(*state, 20);
    assert_int_equal(n_channels_of(c.driver.mux), 0);
    couple_close(&c);
}

/* The relay is lost: each channel hears it, with its name, and then the mux's user. */
static void test_lost(void **state)
{
    static struct couple c;
    struct line *b[2];

    couple_open(&c, *state);
    for (int i = 0; i < 2; i++)
        couple_line(&c, &b[i]);
    mux_abort(c.relay.mux);
    c.relay.mux = NULL;
    run_until(*state, &c.driver.is_ended);
    for (int i = 0; i < 2; i++) {
        assert_true(b[i]->is_broken);
        assert_int_equal(b[i]->why.code, ERR_PEER);
        assert_non_null(strstr(b[i]->why.msg, "the relay at 127.0.0.1:"));
    }
    couple_close(&c);
}

/* mux_close waits for the channels that are there. */
static void test_close(void **state)
{
    static struct couple c;
    struct line *a, *b;
    size_t sent = 0;
    int n_done = 0;

    couple_open(&c, *state);
    a = couple_line(&c, &b);
    mux_close(c.driver.mux);
    c.driver.mux = NULL;
    line_send(b, &sent, 2 * MUX_WINDOW, &n_done);
    mux_end(&b->ch);
    until_bytes(&c, a, 2 * MUX_WINDOW);
    assert_false(c.relay.is_ended);
    mux_end(&a->ch);
    run_until(*state, &b->is_over);
    run_until(*state, &c.relay.is_ended);
    assert_int_equal(c.relay.status, UV_EOF);
    assert_true(c.relay.is_unused && a->is_over);
    couple_close(&c);
}

/* A socket takes a block in parts: what waits behind it goes on when the last part has left. */
static void test_small_socket(void **state)
{
    static struct couple c;
    struct line *a, *b;
    size_t sent = 0;
    int n_done = 0, few = 4096;
    uv_os_fd_t fd;

    couple_open(&c, *state);
    a = couple_line(&c, &b);
    assert_int_equal(uv_fileno((uv_handle_t *)mux_socket(c.relay.mux), &fd), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &few, sizeof few), 0);
    line_send(a, &sent, 2 * MUX_WINDOW, &n_done);
    until_bytes(&c, b, 2 * MUX_WINDOW);
    assert_int_equal(n_done, 1);
    mux_end(&a->ch);
    mux_end(&b->ch);
    run_until(*state, &a->is_over);
    couple_close(&c);
}

/* TLS encrypts nothing more, as where memory ends: the users hear of it from the loop, and none
 * within its call. */
static void test_no_encryption(void **state)
{
    static struct couple c;
    struct line *a, *b;
    size_t sent = 0;
    int n_done = 0;

    if (!of_relay)
        return;
    couple_open(&c, *state);
    a = couple_line(&c, &b);
    while (!a->ch.n_may_send)
        uv_run(*state, UV_RUN_ONCE);
    SSL_shutdown(c.relay.mux->tls.ssl);
    line_send(a, &sent, MUX_WINDOW, &n_done);
    assert_false(a->is_broken || c.relay.is_ended);
    run_until(*state, &c.relay.is_ended);
    assert_true(a->is_broken && n_done == 1);
    assert_non_null(strstr(c.relay.why.msg, "TLS: "));
    run_until(*state, &c.driver.is_ended);
    assert_true(b->is_broken);
    couple_close(&c);
}

/* ---- connecting ---- */

static void expect_no_driver(void **state, struct party *p, int port, int status, const char *says)
{
    struct sockaddr_in sa;
    struct err err;

    memset(p, 0, sizeof *p);
    uv_ip4_addr("127.0.0.1", port, &sa);
    assert_int_equal(mux_connect(*state, (struct sockaddr *)&sa, of_relay,
                                 &(struct mux_user){&party_events, p}, &p->mux, &err),
                     0);
    party_open(p);
    run_until(*state, &p->is_ended);
    assert_int_equal(p->status, status);
    assert_true(p->line[0].is_broken && !p->is_ready);
    if (!strstr(p->why.msg, says))
        fail_msg("\"%s\" is not in: %s", says, p->why.msg);
}

static void answer_none(uv_stream_t *s, int status)
{
    uv_tcp_t *tcp = calloc(1, sizeof *tcp);
    const char *text = s->data;
    uv_buf_t buf = uv_buf_init((char *)text, (unsigned)strlen(text));

    assert_int_equal(status, 0);
    uv_tcp_init(s->loop, tcp);
    assert_int_equal(uv_accept(s, (uv_stream_t *)tcp), 0);
    if (*text)
        uv_try_write((uv_stream_t *)tcp, &buf, 1);
    uv_close((uv_handle_t *)tcp, (uv_close_cb)free);
}

static void test_no_driver(void **state)
{
    static const char *const answers[] = {"", "HTTP/1.1 400 no\r\n\r\n"};
    static const char *const says[] = {"without an answer", "it starts with 48 54 54 50"};
    struct party p;
    int port, fd = hold_port(&port);

    expect_no_driver(state, &p, port, UV_ECONNREFUSED, "the driver at 127.0.0.1:");
    close(fd);
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        struct sockaddr_storage sa;
        int len = sizeof sa;
        uv_tcp_t tcp;

        uv_tcp_init(*state, &tcp);
        tcp.data = (char *)answers[i];
        uv_ip4_addr("127.0.0.1", 0, (struct sockaddr_in *)&sa);
        assert_int_equal(uv_tcp_bind(&tcp, (struct sockaddr *)&sa, 0), 0);
        assert_int_equal(uv_listen((uv_stream_t *)&tcp, 1, answer_none), 0);
        assert_int_equal(uv_tcp_getsockname(&tcp, (struct sockaddr *)&sa, &len), 0);
        expect_no_driver(state, &p, addr_port((struct sockaddr *)&sa), UV_EPROTONOSUPPORT, says[i]);
        uv_close((uv_handle_t *)&tcp, NULL);
        uv_run(*state, UV_RUN_NOWAIT);
    }
}

int main(void)
{
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
    const struct CMUnitTest tests[] = {
        LOOP_TEST(test_lazy_reader), LOOP_TEST(test_waits),         LOOP_TEST(test_closing),
        LOOP_TEST(test_again),       LOOP_TEST(test_most_channels), LOOP_TEST(test_lost),
        LOOP_TEST(test_close),       LOOP_TEST(test_no_encryption), LOOP_TEST(test_small_socket),
        LOOP_TEST(test_no_driver),
    };

    int n_failed;

    signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    pattern_init();
    n_failed = cmocka_run_group_tests_name("without TLS", tests, NULL, NULL);
    of_relay = context(1, TLS_FOLLOWER);
    of_driver = context(1, TLS_DRIVER);
    n_failed += cmocka_run_group_tests_name("with TLS", tests, NULL, NULL);
    tls_context_free(of_relay);
    tls_context_free(of_driver);
    return n_failed;
}
