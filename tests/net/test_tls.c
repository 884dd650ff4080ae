/* Tests of TLS connections over real sockets on one loop: a listener, and dialers or raw sockets
 * that play strangers, or followers that misbehave. */
#include "../test.h"

#include <fcntl.h>
#include <malloc.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/tls_library.h"
#include "tls_pair.h"

/* ---- the clock that OpenSSL reads: libssl finds these two instead of libc's ---- */

static time_t leap; /* seconds by which it is ahead */

__attribute__((visibility("default"))) time_t time(time_t *out)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec + leap;
    return now.tv_sec + leap;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval *restrict out,
                                                        void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){.tv_sec = now.tv_sec + leap, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

/* ---- friends ---- */

static void test_exchange(void **state)
{
    struct pair p;

    pair_open(&p, *state, 1, 1);
    p.server.side[0].answer = frame_of(3000, 'a');
    pair_dial(&p);
    conn_send(p.client.conn, frame_of(100, 'h')); /* waits for the handshake */
    run_until(*state, &p.client.has_frame);
    assert_int_equal(p.server.side[0].n_bytes, 100);
    assert_int_equal(p.client.n_bytes, 3000);
    assert_true(conn_is_open(p.client.conn) && conn_is_open(p.server.side[0].conn));
    conn_close(p.client.conn);
    p.client.conn = NULL;
    run_until(*state, &p.server.side[0].is_closed);
    assert_true(p.server.side[0].is_plain); /* the peer said that it closes */
    pair_close(&p);
}

/* A follower that comes a year after the driver was started is let in, too. */
static void test_late(void **state)
{
    struct pair p;

    pair_open(&p, *state, 1, 1);
    leap = 366 * 24 * 3600;
    pair_dial(&p);
    conn_send(p.client.conn, frame_of(100, 'h'));
    run_until(*state, &p.server.side[0].has_frame);
    assert_int_equal(p.server.side[0].n_bytes, 100);
    leap = 0;
    pair_close(&p);
}

/* The largest frames go both ways at once, then more; all leave although both sides close. */
static void test_large(void **state)
{
    struct pair p;

    pair_open(&p, *state, 1, 1);
    p.server.side[0].answer = frame_of(FRAME_MAX, 'l');
    pair_dial(&p);
    conn_send(p.client.conn, frame_of(10, 's'));
    run_until(*state, &p.server.has_one);
    conn_welcome(p.server.side[0].conn);
    conn_send(p.client.conn, frame_of(FRAME_MAX, 'L'));
    while (p.client.n_frames < 1 || p.server.side[0].n_frames < 2)
        uv_run(*state, UV_RUN_ONCE);
    assert_int_equal(p.client.n_bytes, FRAME_MAX);
    assert_int_equal(p.server.side[0].n_bytes, FRAME_MAX + 10);
    conn_send(p.server.side[0].conn, frame_of(30 << 20, 'z'));
    conn_close(p.server.side[0].conn);
    p.server.side[0].conn = NULL;
    run_until(*state, &p.client.is_closed);
    assert_int_equal(p.client.n_bytes, FRAME_MAX + (30 << 20));
    assert_true(p.client.is_plain);
    pair_close(&p);
}

/* A peer stops reading: the bytes that wait are bounded, and only a few of them are encrypted. */
static void test_queue_limit(void **state)
{
    struct pair p;
    struct frame *f;
    struct side *s = &p.server.side[0];
    int n = 0;

    pair_open(&p, *state, 1, 1);
    pair_dial(&p);
    conn_send(p.client.conn, frame_of(10, 's'));
    run_until(*state, &p.server.has_one);
    f = frame_of(8 << 20, 'q');
    for (; n < 16; n++) /* the loop does not run, so the peer does not read */
        conn_send(s->conn, frame_ref(f));
    assert_true((int64_t)(f->refs - 1) * (8 << 20) <=
                CONN_QUEUE_LIMIT); /* the others were let go */
    assert_false(s->is_closed);
    run_until(*state, &s->is_closed);
    assert_says(&s->why, ERR_PEER, "does not read");
    assert_true(f->refs < n);
    pair_close(&p);
    assert_int_equal(f->refs, 1);
    frame_unref(f);
}

/* ---- strangers ---- */

static void test_refusals(void **state)
{
    static const struct {
        int driver_key, follower_key, code;
        const char *has;
    } cases[] = {
        {1, 2, ERR_REFUSED, "the secrets differ"},
        {0, 1, ERR_REFUSED, "speaks without TLS"},
        {1, 0, ERR_PROTO, "it has a secret and this side has none"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct pair p;

        pair_open(&p, *state, cases[i].driver_key, cases[i].follower_key);
        pair_dial(&p);
        conn_send(p.client.conn, frame_of(100, 'h'));
        run_until(*state, &p.client.is_closed);
        assert_says(&p.client.why, cases[i].code, cases[i].has);
        assert_int_equal(p.server.side[0].n_frames, 0);
        if (cases[i].driver_key) /* the listener's user heard nothing of the connection */
            assert_int_equal(p.server.n_accepted, 0);
        else
            assert_says(&p.server.side[0].why, ERR_PROTO, "give both the same --secret-file");
        pair_close(&p);
    }
}

/* Strangers send garbage: each connection ends, and the listener's user does not hear of it. */
static void test_garbage(void **state)
{
    static const struct {
        const char *text;
        size_t len;
        int ends; /* 1: the connection ends by itself; 0: it waits for more */
    } cases[] = {
        {"", 0, 0},
        {"\x16", 1, 0},
        {"\x16\x03\x01\x00\x50\x01", 6, 0},
        {"GET / HTTP/1.1\r\n\r\n", 18, 1},
        {"SSH-2.0-x\r\n", 11, 1},
        {"DPT1\0\0\0\5hello", 13, 1},
        {"\0\0\0\0\0\0\0\0", 8, 1},
        {"\x16\x03\x01\xff\xff\x01\0\0", 8, 1},
        {"\x16\x03\x01\x00\x04\x02\0\0\0", 9, 1},
        {"\x16\x03\x01\x00\x04\x01\0\0\0", 9, 1},
        {"\x16\x03\x01\x00\x08\x01\xff\xff\xff\1\2\3\4", 13, 1},
        {"\x15\x03\x03\x00\x02\x02\x28", 7, 1},
        {"\x17\x03\x03\x00\x10xxxxxxxxxxxxxxxx", 21, 1},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct pair p;
        char byte;
        ssize_t n;
        int fd;

        pair_open(&p, *state, 1, 0);
        fd = raw_connect(&p.server);
        assert_int_equal(write(fd, cases[i].text, cases[i].len), cases[i].len);
        if (cases[i].ends) {
            int64_t start = clock_mono_ns();

            do {
                uv_run(*state, UV_RUN_NOWAIT);
                n = recv(fd, &byte, 1, MSG_DONTWAIT);
            } while ((n > 0 || errno == EAGAIN) && n != 0 && !is_late(start));
            assert_true(n == 0 || errno == ECONNRESET);
        } else {
            for (int k = 0; k < 5; k++)
                uv_run(*state, UV_RUN_NOWAIT);
            assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
        }
        assert_int_equal(p.server.n_accepted, 0);
        close(fd);
        pair_close(&p);
    }
}

/* ---- a follower that knows the secret and misbehaves: OpenSSL on a blocking socket ---- */

static int use_key(SSL *ssl, const EVP_MD *md, const unsigned char **name, size_t *len,
                   SSL_SESSION **out)
{
    static struct tls_key key;
    static uint8_t text[TLS_NAME];
    struct secret s;

    (void)md;
    memset(&s, 1, sizeof s);
    if (!key.session)
        assert_int_equal(tls_key_init(&key, SSL_get_SSL_CTX(ssl), &s, TLS_FOLLOWER), 0);
    assert_int_equal(tls_key_name(&key, text), 0);
    *name = text;
    *len = sizeof text;
    *out = key.session;
    return SSL_SESSION_up_ref(key.session);
}

/* Do the handshake with the server on p's loop. */
static SSL *raw_tls(struct pair *p, SSL_CTX *ctx, int fd)
{
    SSL *ssl = SSL_new(ctx);
    int64_t start = clock_mono_ns();

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    SSL_set_fd(ssl, fd);
    while (SSL_connect(ssl) != 1 && !is_late(start))
        uv_run(p->loop, UV_RUN_NOWAIT);
    assert_true(SSL_is_init_finished(ssl));
    return ssl;
}

static void test_key_updates(void **state)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    struct pair p;
    int64_t start = clock_mono_ns();
    SSL *ssl;
    int fd;

    SSL_CTX_set_psk_use_session_callback(ctx, use_key);
    pair_open(&p, *state, 1, 0);
    fd = raw_connect(&p.server);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    ssl = raw_tls(&p, ctx, fd);
    run_until(*state, &p.server.has_one);
    while (!p.server.side[0].is_closed && !is_late(start)) {
        struct frame *f = frame_of(20, 'k');

        SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
        SSL_write(ssl, f->data, (int)f->len);
        frame_unref(f);
        uv_run(*state, UV_RUN_NOWAIT);
    }
    assert_in_range(p.server.side[0].n_frames, 10, 30); /* a few new keys are allowed */
    assert_says(&p.server.side[0].why, ERR_PROTO, "changes keys again and again");
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    close(fd);
    pair_close(&p);
}

static int use_old_key(SSL *ssl, const EVP_MD *md, const unsigned char **name, size_t *len,
                       SSL_SESSION **out)
{
    static uint8_t old[TLS_NAME];
    const int rc = use_key(ssl, md, name, len, out);

    memcpy(old, *name, sizeof old);
    old[strlen("dptrain-")] = '2';
    *name = old;
    return rc;
}

/* A follower of another version names its key in another way: the driver says so. */
static void test_other_version(void **state)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    int64_t start = clock_mono_ns();
    struct pair p;
    int fd;

    SSL_set_psk_use_session_callback(ssl, use_old_key);
    pair_open(&p, *state, 1, 0);
    fd = raw_connect(&p.server);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    SSL_set_fd(ssl, fd);
    while (!p.is_refused && !is_late(start)) {
        assert_int_not_equal(SSL_connect(ssl), 1);
        uv_run(*state, UV_RUN_NOWAIT);
    }
    assert_non_null(strstr(p.refused, "is of another version of dptrain"));
    assert_int_equal(p.server.n_accepted, 0);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    close(fd);
    pair_close(&p);
}

/* ---- the cost of a connection ---- */

static size_t heap_used(void) { return mallinfo2().uordblks; }

static void test_cost(void **state)
{
    enum { N = 8 };
    struct pair p;
    int fd[N];
    size_t before;
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl[N];
    int64_t start;

    SSL_CTX_set_psk_use_session_callback(ctx, use_key);
    pair_open(&p, *state, 1, 0);
    before = heap_used();
    for (int i = 0; i < N; i++)
        fd[i] = raw_connect(&p.server);
    for (int k = 0; k < 50; k++)
        uv_run(*state, UV_RUN_NOWAIT);
    print_message("silent connection: %zu bytes of heap\n", (heap_used() - before) / N);
    start = clock_mono_ns();
    before = heap_used();
    for (int i = 0; i < N; i++) {
        struct frame *f = frame_of(20, 'k');

        assert_int_equal(fcntl(fd[i], F_SETFL, O_NONBLOCK), 0);
        ssl[i] = raw_tls(&p, ctx, fd[i]);
        assert_true(SSL_write(ssl[i], f->data, (int)f->len) > 0);
        frame_unref(f);
        while (!p.server.side[i].has_frame)
            uv_run(*state, UV_RUN_NOWAIT);
        conn_welcome(p.server.side[i].conn);
    }
    print_message("handshake, both sides: %.3f ms\n", 1e3 * clock_since_s(start) / N);
    print_message("open connections: %zu bytes of heap both sides\n", (heap_used() - before) / N);
    before = heap_used();
    for (int i = 0; i < N; i++)
        SSL_free(ssl[i]);
    print_message("... of them the other side's: %zu\n", (before - heap_used()) / N);
    SSL_CTX_free(ctx);
    for (int i = 0; i < N; i++)
        close(fd[i]);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
        LOOP_TEST(test_exchange),    LOOP_TEST(test_late),     LOOP_TEST(test_large),
        LOOP_TEST(test_queue_limit), LOOP_TEST(test_refusals), LOOP_TEST(test_garbage),
        LOOP_TEST(test_key_updates), LOOP_TEST(test_cost),     LOOP_TEST(test_other_version),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
