/* Tests of conn over real sockets: frames of all sizes arrive or are refused, the last frames leave
 * although the connection closes, and a peer can make us keep only a bounded number of bytes. */
#include "../test.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "fixture.h"
#include "net/stream.h"

static void write_all(int fd, const void *data, size_t n)
{
    assert_int_equal(write(fd, data, n), n);
}

static void write_frame(int fd, size_t n, char fill)
{
    struct frame *f = frame_of(n, fill);

    write_all(fd, f->data, f->len);
    frame_unref(f);
}

/* Count the bytes until the peer closes; the loop runs meanwhile. */
static size_t read_to_end(uv_loop_t *loop, int fd, int *is_reset)
{
    char block[4096];
    size_t total = 0;
    ssize_t n;

    *is_reset = 0;
    for (;;) {
        uv_run(loop, UV_RUN_NOWAIT);
        n = recv(fd, block, sizeof block, MSG_DONTWAIT);
        if (n == 0)
            return total;
        if (n < 0 && errno != EAGAIN) {
            *is_reset = 1;
            return total;
        }
        total += n > 0 ? (size_t)n : 0;
    }
}

static void finish(struct server *s, int fd)
{
    for (size_t i = 0; i < ARRAY_LEN(s->side); i++)
        if (s->side[i].conn)
            conn_close(s->side[i].conn);
    listener_close(s->listener);
    if (fd >= 0)
        close(fd);
}

static void test_pieces(void **state)
{
    struct server s;
    struct frame *f = frame_of(5, 'p');
    int fd;

    server_open(*state, &s, 4, NEVER_MS);
    fd = raw_connect(&s);
    for (size_t i = 0; i < f->len; i++) {
        write_all(fd, f->data + i, 1);
        uv_run(*state, UV_RUN_NOWAIT);
    }
    write_frame(fd, 7, 'q');
    while (s.side[0].n_frames < 2)
        uv_run(*state, UV_RUN_ONCE);
    assert_int_equal(s.side[0].n_bytes, 12);
    assert_string_equal(conn_peer_number(s.side[0].conn), "127.0.0.1");
    assert_string_equal(conn_local_number(s.side[0].conn), "127.0.0.1");
    frame_unref(f);
    finish(&s, fd);
}

static void test_limit(void **state)
{
    struct server s;
    int fd, fd2;

    server_open(*state, &s, 4, NEVER_MS);
    fd = raw_connect(&s);
    run_until(*state, &s.has_one);
    conn_welcome(s.side[0].conn);
    write_frame(fd, FRAME_MAX_STRANGER + 1, 'w'); /* allowed after a welcome */
    run_until(*state, &s.side[0].has_frame);
    assert_int_equal(s.side[0].n_bytes, FRAME_MAX_STRANGER + 1);

    fd2 = raw_connect(&s);
    write_frame(fd2, 20, 'a');
    write_all(fd2, "DPT1\x00\x01\x00\x01", 8); /* 65537: over a stranger's limit */
    run_until(*state, &s.side[1].is_closed);
    assert_int_equal(s.side[1].n_frames, 1);
    assert_int_equal(s.side[1].why.code, ERR_PROTO);
    assert_non_null(strstr(s.side[1].why.msg, "127.0.0.1:"));
    close(fd2);
    finish(&s, fd);
}

static void test_not_ours(void **state)
{
    struct server s;
    int fd;

    server_open(*state, &s, 4, NEVER_MS);
    fd = raw_connect(&s);
    write_all(fd, "GET / HTTP/1.1\r\n\r\n", 18);
    run_until(*state, &s.side[0].is_closed);
    assert_int_equal(s.side[0].why.code, ERR_PROTO);
    finish(&s, fd);
}

/* If there is no memory for a peer's message, its connection ends with that error, and another
 * connection goes on. */
static void test_no_memory(void **state)
{
    struct server s;
    int fd, fd2;

    server_open(*state, &s, 4, NEVER_MS);
    fd = raw_connect(&s);
    run_until(*state, &s.has_one);
    alloc_fail_at(1);
    write_frame(fd, 20, 'a');
    run_until(*state, &s.side[0].is_closed);
    assert_int_equal(s.side[0].why.code, ERR_NOMEM);
    assert_non_null(strstr(s.side[0].why.msg, "from 127.0.0.1:"));
    fd2 = raw_connect(&s);
    write_frame(fd2, 20, 'a');
    run_until(*state, &s.side[1].has_frame);
    close(fd2);
    finish(&s, fd);
}

/* The last frame arrives although the peer's own bytes were never read: the close sends no RST. */
static void test_last_words(void **state)
{
    struct server s;
    int fd, is_reset;

    server_open(*state, &s, 4, NEVER_MS);
    s.side[0].answer = frame_of(3000, 'r');
    s.side[0].close_on_frame = 1;
    fd = raw_connect(&s);
    write_frame(fd, 10, 'x');
    for (int i = 0; i < 20; i++)
        write_frame(fd, 30000, 'y');
    shutdown(fd, SHUT_WR);
    assert_int_equal(read_to_end(*state, fd, &is_reset), 3000 + FRAME_HEADER);
    assert_false(is_reset);
    assert_int_equal(s.side[0].n_frames, 1);
    assert_false(s.side[0].is_closed); /* we closed it: no callback */
    finish(&s, fd);
}

/* Many bytes wait when we close the connection, and the peer reads them slowly: it gets all, for
 * longer than a silent peer gets. */
static void test_slow_reader(void **state)
{
    enum { N = 60 << 20, AT_ONCE = 4 << 20, PAUSE_MS = 300 };
    struct server s;
    uint8_t *block = xmalloc(AT_ONCE);
    const int64_t start = clock_mono_ns();
    size_t total = 0;
    ssize_t n = 1;
    int fd;

    server_open(*state, &s, 4, NEVER_MS);
    fd = raw_connect(&s);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){256 << 10}, sizeof(int)); /* or it takes it all */
    run_until(*state, &s.has_one);
    conn_send(s.side[0].conn, frame_of(N, 's'));
    conn_close(s.side[0].conn);
    s.side[0].conn = NULL;
    for (size_t next = AT_ONCE; n != 0; next += AT_ONCE, uv_sleep(PAUSE_MS))
        while (n != 0 && total < next) {
            uv_run(*state, UV_RUN_NOWAIT);
            n = recv(fd, block, AT_ONCE, MSG_DONTWAIT);
            assert_true(n >= 0 || errno == EAGAIN);
            if (n > 0)
                total += (size_t)n;
        }
    assert_int_equal(total, N + FRAME_HEADER);
    assert_true(clock_since_s(start) > 1e-3 * CONN_LINGER_MS);
    free(block);
    finish(&s, fd);
}

/* A peer that reads nothing gets less time. */
static void test_no_reader(void **state)
{
    struct server s;
    int64_t start;
    int fd;

    server_open(*state, &s, 4, NEVER_MS);
    fd = raw_connect(&s);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){256 << 10}, sizeof(int)); /* or it takes it all */
    run_until(*state, &s.has_one);
    conn_send(s.side[0].conn, frame_of(60 << 20, 'n'));
    start = clock_mono_ns();
    finish(&s, -1);
    uv_run(*state, UV_RUN_DEFAULT);
    assert_true(clock_since_s(start) < 1e-3 * CONN_LINGER_MS * STREAM_PATIENCE);
    close(fd);
}

/* A peer that shuts only its sending half counts as gone; our queued frames still leave. */
static void test_half_open(void **state)
{
    struct server s;
    int fd, is_reset;

    server_open(*state, &s, 4, NEVER_MS);
    s.side[0].answer = frame_of(2000, 'h');
    fd = raw_connect(&s);
    write_frame(fd, 10, 'x');
    shutdown(fd, SHUT_WR);
    assert_int_equal(read_to_end(*state, fd, &is_reset), 2000 + FRAME_HEADER);
    assert_true(s.side[0].is_closed);
    assert_true(s.side[0].is_plain);
    finish(&s, fd);
}

static void on_unpack_frame(void *arg, struct conn *c, const uint8_t *body, size_t len)
{
    Wire__Control *m = conn_unpack(c, body, len);

    if (m)
        *(int *)arg = m->body_case == WIRE__CONTROL__BODY_GOODBYE ? 1 : 2;
    msg_free(m);
}

static void on_unpack_closed(void *arg, struct conn *c, const struct err *why)
{
    (void)c;
    assert_int_equal(why->code, ERR_PROTO);
    *(int *)arg = 3;
}

/* A frame whose bytes are no message ends its connection. */
static void test_unpack(void **state)
{
    static const struct conn_events events = {on_unpack_frame, on_unpack_closed};
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Goodbye bye = WIRE__GOODBYE__INIT;
    struct server s;
    struct frame *f;
    struct err err;
    int fd, got = 0;

    m.body_case = WIRE__CONTROL__BODY_GOODBYE;
    m.goodbye = &bye;
    f = msg_frame(&m, &err);
    server_open(*state, &s, 4, NEVER_MS);
    fd = raw_connect(&s);
    run_until(*state, &s.has_one);
    conn_listen(s.side[0].conn, &events, &got);
    write_all(fd, f->data, f->len);
    run_until(*state, &got);
    assert_int_equal(got, 1);
    got = 0;
    write_frame(fd, 5, '\xff');
    run_until(*state, &got);
    assert_int_equal(got, 3);
    s.side[0].conn = NULL;
    frame_unref(f);
    finish(&s, fd);
}

static void test_reset(void **state)
{
    struct server s;
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    int fd;

    server_open(*state, &s, 4, NEVER_MS);
    fd = raw_connect(&s);
    run_until(*state, &s.has_one);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd);
    run_until(*state, &s.side[0].is_closed);
    assert_int_equal(s.side[0].why.code, ERR_PEER);
    assert_non_null(strstr(s.side[0].why.msg, "ECONNRESET"));
    finish(&s, -1);
}

/* A peer that does not read cannot make us keep more than CONN_QUEUE_LIMIT bytes. */
static void test_queue_limit(void **state)
{
    struct server s;
    struct frame *f;
    int fd, n = 0;

    server_open(*state, &s, 4, NEVER_MS);
    fd = raw_connect(&s);
    run_until(*state, &s.has_one);
    f = frame_of(8 << 20, 'q');
    for (; n < 16; n++)
        conn_send(s.side[0].conn, frame_ref(f));
    assert_false(s.side[0].is_closed); /* conn_send never calls back */
    run_until(*state, &s.side[0].is_closed);
    assert_int_equal(s.side[0].why.code, ERR_PEER);
    assert_non_null(strstr(s.side[0].why.msg, "does not read"));
    assert_true(f->refs < n); /* refused frames were let go */
    finish(&s, fd);
    uv_run(*state, UV_RUN_DEFAULT);
    assert_int_equal(f->refs, 1);
    frame_unref(f);
}

static int tcp_option(struct conn *c, int name)
{
    int value = 0;
    socklen_t len = sizeof value;
    uv_os_fd_t fd;

    assert_int_equal(uv_fileno((uv_handle_t *)conn_socket(c), &fd), 0);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, name, &value, &len), 0);
    return value;
}

/* A dead machine is noticed within 46 s.  Sockets that fall silent together probe apart. */
static void test_keepalive(void **state)
{
    enum { MANY = 16 };
    int fd[MANY], is_taken[16] = {0};
    struct server s;

    server_open(*state, &s, MANY, NEVER_MS);
    for (int i = 0; i < MANY; i++)
        fd[i] = raw_connect(&s);
    while (s.n_accepted < MANY)
        uv_run(*state, UV_RUN_ONCE);
    for (int i = 0; i < MANY; i++) {
        const int idle_s = tcp_option(s.side[i].conn, TCP_KEEPIDLE);

        assert_in_range(idle_s, 15, 30);
        assert_false(is_taken[idle_s - 15]++);
        assert_in_range(idle_s + tcp_option(s.side[i].conn, TCP_KEEPINTVL) *
                                     tcp_option(s.side[i].conn, TCP_KEEPCNT),
                        16, 46);
    }
    for (int i = 1; i < MANY; i++)
        close(fd[i]);
    for (int i = 1; i < MANY; i++)
        run_until(*state, &s.side[i].is_closed);
    finish(&s, fd[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
        LOOP_TEST(test_pieces),      LOOP_TEST(test_limit),       LOOP_TEST(test_no_memory),
        LOOP_TEST(test_not_ours),    LOOP_TEST(test_last_words),  LOOP_TEST(test_half_open),
        LOOP_TEST(test_reset),       LOOP_TEST(test_queue_limit), LOOP_TEST(test_unpack),
        LOOP_TEST(test_slow_reader), LOOP_TEST(test_no_reader),   LOOP_TEST(test_keepalive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
