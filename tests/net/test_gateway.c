/* Tests of gateway and lane: dialers of several processes reach a server through one connection,
 * with the errors of a connect of their own; one that does not read holds up no other. */
#include "../test.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "gateway_process.h"
#include "net/mux.h"
#include "net/piece.h"

/* Bytes go both ways, the server sees one peer, and ends pass in order in both directions. */
static void test_one_connection(void **state)
{
    struct gateway *g = gateway_new(*state, NULL);
    struct process p[3];
    struct server s;
    char text[3][ADDR_TEXT];

    open_for_relays(*state, &s, NULL, 0);
    for (int i = 0; i < 3; i++) {
        struct side *side = connect_one(*state, g, &p[i], &s);

        assert_string_equal(p[i].peer, listener_text(s.listener));
        assert_string_equal(conn_local_number(p[i].side.conn), "127.0.0.1");
        snprintf(text[i], sizeof text[i], "%s", conn_peer(side->conn));
        assert_non_null(strchr(text[i], ' ')); /* the relay's address, and the channel */
        *strchr(text[i], ' ') = '\0';
        assert_string_equal(text[i], text[0]);
        conn_send(p[i].side.conn, frame_of(40000, 'd'));
        side->answer = frame_of(3 << 20, 'e');
        run_until(*state, &p[i].side.has_frame);
        assert_int_equal(side->n_bytes, 40000);
        assert_int_equal(p[i].side.n_bytes, 3 << 20);
    }
    conn_close(s.side[0].conn);
    run_until(*state, &p[0].side.is_closed);
    assert_true(p[0].side.is_plain);
    conn_close(p[1].side.conn);
    p[1].side.conn = NULL;
    run_until(*state, &s.side[1].is_closed);
    assert_true(s.side[1].is_plain);
    assert_false(p[2].side.is_closed || s.side[2].is_closed);
    for (int i = 0; i < 3; i++)
        process_end(&p[i]);
    run_until(*state, &s.side[2].is_closed);
    gateway_close(g);
    listener_close(s.listener);
}

/* The bytes that a process has sent before it ends still leave, and the server's last words come.
 */
static void test_last_words(void **state)
{
    struct gateway *g = gateway_new(*state, NULL);
    struct process p;
    struct server s;
    struct side *side;

    open_for_relays(*state, &s, NULL, 0);
    side = connect_one(*state, g, &p, &s);
    conn_send(p.side.conn, frame_of(60000, 'x'));
    side->answer = frame_of(60000, 'y');
    side->close_on_frame = 1;
    run_until(*state, &p.side.is_closed);
    assert_true(p.side.is_plain);
    assert_int_equal(p.side.n_bytes, 60000);
    process_end(&p);
    connect_one(*state, g, &p, &s);
    conn_send(p.side.conn, frame_of(60000, 'x'));
    conn_close(p.side.conn);
    p.side.conn = NULL;
    process_end(&p);
    gateway_close(g);
    run_until(*state, &s.side[1].is_closed);
    assert_true(s.side[1].is_plain);
    assert_int_equal(s.side[1].n_bytes, 60000);
    listener_close(s.listener);
}

static void test_nobody_listens(void **state)
{
    struct gateway *g = gateway_new(*state, NULL);
    struct process p;
    int port, fd = hold_port(&port);

    process_dial(*state, g, &p, port, 300);
    run_until(*state, &p.has_given_up);
    assert_non_null(strstr(p.why.msg, "connection refused (ECONNREFUSED); "));
    process_end(&p);
    gateway_close(g);
    close(fd);
}

/* The driver comes later, and a process is there again after its connection was lost. */
static void test_comes_later(void **state)
{
    struct gateway *g = gateway_new(*state, NULL);
    struct process p;
    struct server s;
    int port, fd = hold_port(&port);

    process_dial(*state, g, &p, port, -1);
    for (int i = 0; i < 20; i++)
        uv_run(*state, UV_RUN_ONCE);
    assert_false(p.is_connected);
    open_for_relays(*state, &s, NULL, port);
    for (int i = 0; i < 3; i++) {
        run_until(*state, &p.is_connected);
        while (s.n_accepted == i)
            uv_run(*state, UV_RUN_ONCE);
        conn_abort(s.side[i].conn);
        run_until(*state, &p.side.is_closed);
        p.is_connected = p.side.is_closed = 0;
        if (i < 2)
            dialer_start(p.dialer, 1);
    }
    process_end(&p);
    gateway_close(g);
    listener_close(s.listener);
    close(fd);
}

/* ---- a driver that takes no relays ---- */

struct older {
    uv_tcp_t tcp, peer;
    const char *answer; /* "": it only closes the connection */
};

static void older_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    static char bytes[64];

    (void)h;
    (void)suggested;
    *buf = uv_buf_init(bytes, sizeof bytes);
}

static void older_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    const struct older *o = s->data;
    uv_buf_t answer = uv_buf_init((char *)o->answer, (unsigned)strlen(o->answer));

    (void)buf;
    if (n > 0 && answer.len)
        uv_try_write(s, &answer, 1);
    if (!uv_is_closing((uv_handle_t *)s))
        uv_close((uv_handle_t *)s, NULL);
}

static void older_accept(uv_stream_t *s, int status)
{
    struct older *o = s->data;

    assert_int_equal(status, 0);
    uv_tcp_init(s->loop, &o->peer);
    o->peer.data = o;
    assert_int_equal(uv_accept(s, (uv_stream_t *)&o->peer), 0);
    uv_read_start((uv_stream_t *)&o->peer, older_alloc, older_read);
}

static int older_open(uv_loop_t *loop, struct older *o, const char *answer)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int len = sizeof sa;

    *o = (struct older){.answer = answer};
    uv_tcp_init(loop, &o->tcp);
    o->tcp.data = o;
    assert_int_equal(uv_tcp_bind(&o->tcp, (struct sockaddr *)&sa, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&o->tcp, 8, older_accept), 0);
    assert_int_equal(uv_tcp_getsockname(&o->tcp, (struct sockaddr *)&sa, &len), 0);
    return ntohs(sa.sin_port);
}

static void test_no_relays_there(void **state)
{
    static const char *const answers[] = {"", "DPT1\0\0\0\5", "\x15\x03\x03\x02\x02(any)"};

    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct gateway *g = gateway_new(*state, NULL);
        struct process p;
        struct older o;
        int port = older_open(*state, &o, answers[i]);

        process_dial(*state, g, &p, port, 0);
        run_until(*state, &p.has_given_up);
        assert_non_null(strstr(p.why.msg, "takes no relays"));
        assert_non_null(strstr(p.why.msg, "leave --relay out"));
        process_end(&p);
        gateway_close(g);
        uv_close((uv_handle_t *)&o.tcp, NULL);
        uv_run(*state, UV_RUN_DEFAULT);
    }
}

/* ---- one that does not read ---- */

static void await_answer(uv_loop_t *loop, int fd)
{
    struct lane_answer a;
    ssize_t n;

    while ((n = read(fd, &a, sizeof a)) < 0)
        uv_run(loop, UV_RUN_NOWAIT);
    assert_int_equal(n, sizeof a);
    assert_int_equal(a.status, 0);
}

/* The stream of a connection that a process asked for; it has got the answer. */
static int raw_ask(uv_loop_t *loop, int lane, const struct server *s)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)listener_port(s->listener)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd;

    assert_int_equal(lane_ask(lane, (struct sockaddr *)&to, &fd), 0);
    await_answer(loop, fd);
    return fd;
}

/* The server's connection with a process that does not read fails as one without a relay does: the
 * relay has not taken the bytes.  Meanwhile another process of the same relay gets its own. */
static void test_one_does_not_read(void **state)
{
    enum { FRAME = 1 << 20, N_FRAMES = CONN_QUEUE_LIMIT / FRAME - 1 };
    struct gateway *g = gateway_new(*state, NULL);
    struct process p;
    struct server s;
    struct err err;
    int lane, fd;

    open_for_relays(*state, &s, NULL, 0);
    assert_int_equal(gateway_add(g, &lane, &err), 0);
    fd = raw_ask(*state, lane, &s);
    assert_int_equal(write(fd, "DPT1\0\0\0\1x", 9), 9);
    while (!s.n_accepted || !s.side[0].has_frame)
        uv_run(*state, UV_RUN_ONCE);
    for (int i = 0; i < N_FRAMES; i++)
        conn_send(s.side[0].conn, frame_of(FRAME, 'a'));
    s.n_accepted = 1;
    connect_one(*state, g, &p, &s);
    conn_send(s.side[1].conn, frame_of(FRAME, 'b'));
    run_until(*state, &p.side.has_frame);
    assert_false(s.side[0].is_closed);
    conn_send(s.side[0].conn, frame_of(FRAME, 'a'));
    conn_send(s.side[0].conn, frame_of(FRAME, 'a'));
    run_until(*state, &s.side[0].is_closed);
    assert_non_null(strstr(s.side[0].why.msg, "does not read"));
    close(fd);
    close(lane);
    process_end(&p);
    gateway_close(g);
    run_until(*state, &s.side[1].is_closed);
    listener_close(s.listener);
}

/* The server has closed its connection: the process learns it at once, and may still send. */
static void test_half_closed(void **state)
{
    struct gateway *g = gateway_new(*state, NULL);
    struct server s;
    struct err err;
    int lane, fd;
    char byte;

    open_for_relays(*state, &s, NULL, 0);
    assert_int_equal(gateway_add(g, &lane, &err), 0);
    fd = raw_ask(*state, lane, &s);
    s.side[0].close_on_frame = 1;
    assert_int_equal(write(fd, "DPT1\0\0\0\1x", 9), 9);
    while (read(fd, &byte, 1) < 0)
        uv_run(*state, UV_RUN_NOWAIT);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    close(lane);
    gateway_close(g);
    listener_close(s.listener);
}

/* The server has closed its connection, and so has the process, before it has read what came: it
 * still gets all of that. */
static void test_last_words_wait(void **state)
{
    enum { FRAME = MUX_WINDOW - 1000 }; /* more than the process's socket takes */
    struct gateway *g = gateway_new(*state, NULL);
    struct server s;
    struct err err;
    size_t n_bytes = 0;
    char bytes[4096];
    int lane, fd;
    ssize_t n;

    open_for_relays(*state, &s, NULL, 0);
    assert_int_equal(gateway_add(g, &lane, &err), 0);
    fd = raw_ask(*state, lane, &s);
    s.side[0].answer = frame_of(FRAME, 'a');
    s.side[0].close_on_frame = 1;
    assert_int_equal(write(fd, "DPT1\0\0\0\1x", 9), 9);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    for (int i = 0; i < 50 || !s.side[0].has_frame; i++)
        uv_run(*state, UV_RUN_NOWAIT);
    while ((n = read(fd, bytes, sizeof bytes)) != 0) {
        assert_true(n > 0 || errno == EAGAIN);
        n_bytes += n > 0 ? (size_t)n : 0;
        uv_run(*state, UV_RUN_NOWAIT);
    }
    assert_int_equal(n_bytes, FRAME_HEADER + FRAME);
    close(fd);
    close(lane);
    gateway_close(g);
    listener_close(s.listener);
}

/* ---- a driver that stands still ---- */

enum { STREAMS = 32 }; /* their windows are more than a socket's buffers take */

static int frozen_listen(struct sockaddr_in *to)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), few = 4096;
    socklen_t len = sizeof *to;

    *to = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &few, sizeof few), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)to, sizeof *to), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)to, &len), 0);
    return fd;
}

/* Its answer to the relay. */
static int frozen_accept(int listening)
{
    uint8_t greeting[PIECE_GREETING];
    int fd = accept(listening, NULL, NULL);

    assert_true(fd >= 0);
    piece_greet(&(struct piece_greeting){.side = PIECE_ACCEPTS}, greeting);
    assert_int_equal(write(fd, greeting, sizeof greeting), sizeof greeting);
    return fd;
}

static void frozen_grant(int fd, uint32_t channel)
{
    uint8_t credit[PIECE_HEADER + PIECE_CREDIT_LEN];

    piece_put(&(struct piece){channel, PIECE_CREDIT, PIECE_CREDIT_LEN}, credit);
    piece_put_number(MUX_WINDOW, credit + PIECE_HEADER);
    assert_int_equal(write(fd, credit, sizeof credit), sizeof credit);
}

/* The relay takes what the process writes, until its own socket is full. */
static size_t write_much(uv_loop_t *loop, int fd)
{
    static const char bytes[16 << 10];
    size_t n_bytes = 0;

    for (int n_idle = 0; n_idle < 20; n_idle++) {
        const ssize_t n = write(fd, bytes, sizeof bytes);

        assert_true(n > 0 || errno == EAGAIN);
        n_idle = n > 0 ? 0 : n_idle;
        n_bytes += n > 0 ? (size_t)n : 0;
        uv_run(loop, UV_RUN_NOWAIT);
    }
    return n_bytes;
}

/* A driver that is stopped and no longer reads does not hold up the relay's end. */
static void test_frozen_driver(void **state)
{
    struct gateway *g = gateway_new(*state, NULL);
    struct sockaddr_in to;
    int listening = frozen_listen(&to), driver = -1, lane, fd[STREAMS], has_ended;
    const int64_t start = clock_mono_ns();
    size_t n_bytes = 0;
    struct err err;

    assert_int_equal(gateway_add(g, &lane, &err), 0);
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(lane_ask(lane, (struct sockaddr *)&to, &fd[i]), 0);
        uv_run(*state, UV_RUN_NOWAIT);
    }
    driver = frozen_accept(listening);
    for (int i = 0; i < STREAMS; i++)
        await_answer(*state, fd[i]);
    for (int i = 0; i < 5; i++)
        uv_run(*state, UV_RUN_NOWAIT);
    for (int i = 0; i < STREAMS; i++)
        frozen_grant(driver, 1 + (uint32_t)i);
    for (int i = 0; i < STREAMS; i++)
        n_bytes = write_much(*state, fd[i]);
    /* The last one's are in its own socket, whose buffer is smaller than a window. */
    assert_true(n_bytes < MUX_WINDOW + MUX_WINDOW / 2);
    gateway_close(g);
    while (uv_loop_alive(*state) && clock_since_s(start) < 30) {
        uv_run(*state, UV_RUN_NOWAIT);
        usleep(1000);
    }
    has_ended = !uv_loop_alive(*state);
    for (int i = 0; i < STREAMS; i++)
        close(fd[i]);
    close(driver);
    close(listening);
    close(lane);
    assert_true(has_ended);
}

/* ---- processes that end, and requests that are none ---- */

/* A process that is killed ends its connections at once. */
static void test_a_process_is_killed(void **state)
{
    struct gateway *g = gateway_new(*state, NULL);
    struct server s;
    struct err err;
    int lane, fd;

    open_for_relays(*state, &s, NULL, 0);
    assert_int_equal(gateway_add(g, &lane, &err), 0);
    fd = raw_ask(*state, lane, &s);
    assert_int_equal(write(fd, "DPT1\0\0\0\1x", 9), 9);
    while (!s.n_accepted || !s.side[0].has_frame)
        uv_run(*state, UV_RUN_ONCE);
    close(fd);
    close(lane);
    run_until(*state, &s.side[0].is_closed);
    gateway_close(g);
    listener_close(s.listener);
}

/* Packets that are no requests are dropped, and the next request is heard. */
static void test_no_requests(void **state)
{
    struct sockaddr_un no_address = {.sun_family = AF_UNIX};
    struct gateway *g = gateway_new(*state, NULL);
    struct server s;
    struct err err;
    int lane, fd;
    char byte;

    open_for_relays(*state, &s, NULL, 0);
    assert_int_equal(gateway_add(g, &lane, &err), 0);
    assert_int_equal(send(lane, "x", 1, 0), 1);
    assert_int_equal(send(lane, &(struct sockaddr_storage){.ss_family = AF_INET},
                          sizeof(struct sockaddr_storage), 0),
                     sizeof(struct sockaddr_storage)); /* no stream came with it */
    assert_int_equal(lane_ask(lane, (struct sockaddr *)&no_address, &fd), 0);
    while (read(fd, &byte, 1) < 0)
        uv_run(*state, UV_RUN_NOWAIT);
    close(fd);
    close(raw_ask(*state, lane, &s));
    close(lane);
    gateway_close(g);
    listener_close(s.listener);
}

/* The relay is gone: the dialer says so, as of any driver that is not there. */
static void test_no_relay(void **state)
{
    struct gateway *g = gateway_new(*state, NULL);
    struct process p;
    struct err err;
    int lane;

    assert_int_equal(gateway_add(g, &lane, &err), 0);
    close(lane);
    process_dial(*state, g, &p, 1, 0);
    gateway_close(g);
    run_until(*state, &p.has_given_up);
    process_end(&p);
}

/* A dialer can be closed, and the relay with it, at any moment. */
static void test_close_any_time(void **state)
{
    struct server s;

    open_for_relays(*state, &s, NULL, 0);
    for (int turns = 0; turns < 12; turns++) {
        struct gateway *g = gateway_new(*state, NULL);
        struct process p;

        process_dial(*state, g, &p, listener_port(s.listener), -1);
        for (int i = 0; i < turns && !p.is_connected; i++)
            uv_run(*state, UV_RUN_ONCE);
        process_end(&p);
        if (turns % 2)
            for (int i = 0; i < turns; i++)
                uv_run(*state, UV_RUN_NOWAIT);
        gateway_close(g);
    }
    for (int i = 0; i < s.n_accepted; i++)
        if (!s.side[i].is_closed)
            run_until(*state, &s.side[i].is_closed);
    listener_close(s.listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
        LOOP_TEST(test_one_connection),  LOOP_TEST(test_last_words),
        LOOP_TEST(test_nobody_listens),  LOOP_TEST(test_comes_later),
        LOOP_TEST(test_no_relays_there), LOOP_TEST(test_one_does_not_read),
        LOOP_TEST(test_half_closed),     LOOP_TEST(test_last_words_wait),
        LOOP_TEST(test_frozen_driver),   LOOP_TEST(test_a_process_is_killed),
        LOOP_TEST(test_no_requests),     LOOP_TEST(test_no_relay),
        LOOP_TEST(test_close_any_time),
    };

    signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
