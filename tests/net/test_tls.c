/* Tests of TLS connections over real sockets on one loop: a listener, and dialers or raw sockets
 * that play strangers, impostors and broken networks. */
#include "../test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <signal.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "fixture.h"
#include "net/dialer.h"
#include "net/tls_library.h"

static const struct tls_texts texts = {"no copy of the other", "give both a secret"};

static struct tls_context *context(int key, enum tls_role role)
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
};

static void on_connected(void *arg, struct conn *c)
{
    struct pair *p = arg;

    p->client.conn = c;
    p->is_connected = 1;
    conn_listen(c, &side_events, &p->client);
}

/* A key of 0: no TLS. */
static void pair_open(struct pair *p, uv_loop_t *loop, int driver_key, int follower_key)
{
    struct listener_options l = {.host = "127.0.0.1",
                                 .max_strangers = 8,
                                 .stranger_ms = NEVER_MS,
                                 .accepted = server_accepted,
                                 .arg = &p->server};
    struct err err;

    memset(p, 0, sizeof *p);
    p->loop = loop;
    p->of_driver = driver_key ? context(driver_key, TLS_DRIVER) : NULL;
    p->of_follower = follower_key ? context(follower_key, TLS_FOLLOWER) : NULL;
    l.tls = p->of_driver;
    assert_int_equal(listener_new(loop, &l, &p->server.listener, &err), 0);
}

static void pair_dial_at(struct pair *p, int port)
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

static void pair_dial(struct pair *p) { pair_dial_at(p, listener_port(p->server.listener)); }

/* The contexts are freed after the last connection. */
static void pair_close(struct pair *p)
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

static int is_late(int64_t start_ns) { return clock_since_s(start_ns) > 1e-3 * DEADLINE_MS; }

static void assert_says(const struct err *e, int code, const char *has)
{
    assert_int_equal(e->code, code);
    if (!strstr(e->msg, has))
        fail_msg("\"%s\" is not in: %s", has, e->msg);
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

static int listen_somewhere(int *port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof sa;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
    *port = ntohs(sa.sin_port);
    return fd;
}

/* ---- an impostor: a TLS server with a certificate of its own, but without the key ---- */

struct impostor {
    SSL_CTX *context;
    SSL *ssl;
    int listener, port, fd;
    int n_heard; /* how many bytes it could decrypt */
};

static void impostor_open(struct impostor *m)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();

    *m = (struct impostor){.context = SSL_CTX_new(TLS_server_method())};
    m->listener = listen_somewhere(&m->port);
    assert_non_null(X509_gmtime_adj(X509_getm_notBefore(cert), 0));
    assert_non_null(X509_gmtime_adj(X509_getm_notAfter(cert), 3600));
    assert_true(X509_set_pubkey(cert, key) && X509_sign(cert, key, EVP_sha256()) > 0);
    assert_true(SSL_CTX_use_certificate(m->context, cert) == 1 &&
                SSL_CTX_use_PrivateKey(m->context, key) == 1);
    X509_free(cert);
    EVP_PKEY_free(key);
}

static void impostor_accept(struct impostor *m)
{
    m->fd = accept(m->listener, NULL, NULL);
    assert_true(m->fd >= 0);
    assert_int_equal(fcntl(m->fd, F_SETFL, O_NONBLOCK), 0);
    m->ssl = SSL_new(m->context);
    assert_int_equal(SSL_set_fd(m->ssl, m->fd), 1);
    SSL_set_accept_state(m->ssl);
}

static void impostor_step(struct impostor *m)
{
    char block[1024];
    int n = SSL_read(m->ssl, block, sizeof block); /* does the handshake, too */

    if (n > 0)
        m->n_heard += n;
}

static void impostor_close(struct impostor *m)
{
    SSL_free(m->ssl);
    SSL_CTX_free(m->context);
    close(m->fd);
    close(m->listener);
}

/* The follower must refuse the impostor before it sends a byte; the reason contains `has`. */
static void face_impostor(uv_loop_t *loop, int is_verified, const char *has)
{
    int64_t start = clock_mono_ns();
    struct impostor m;
    struct pair p;

    pair_open(&p, loop, 0, 1);
    if (!is_verified)
        SSL_CTX_set_verify(p.of_follower->ssl, SSL_VERIFY_NONE, NULL);
    impostor_open(&m);
    pair_dial_at(&p, m.port);
    impostor_accept(&m);
    conn_send(p.client.conn, frame_of(100, 'h'));
    while (!p.client.is_closed && m.n_heard == 0 && !is_late(start)) {
        uv_run(loop, UV_RUN_NOWAIT);
        impostor_step(&m);
    }
    impostor_step(&m);
    assert_int_equal(m.n_heard, 0);
    assert_true(p.client.is_closed);
    assert_says(&p.client.why, ERR_REFUSED, has);
    impostor_close(&m);
    pair_close(&p);
}

/* Two layers keep an impostor out; each of them must suffice alone. */
static void test_impostor(void **state)
{
    face_impostor(*state, 1, "shows a certificate instead of knowing the secret");
    face_impostor(*state, 0, "did not use the secret");
}

/* ---- a network that cuts or changes the bytes between the two sides ---- */

struct middle { /* passes bytes on, from one raw socket to another */
    int listener, port, to_driver, to_follower;
    size_t step;     /* bytes at a time; 0: as many as there are */
    size_t cut_at;   /* after so many bytes to the driver nothing passes; 0: never */
    size_t flip_at;  /* the byte to the driver that is changed; 0: none */
    size_t n_passed; /* bytes to the driver */
    int is_cut;
};

static void middle_open(struct middle *m, const struct pair *p)
{
    *m = (struct middle){.to_follower = -1};
    m->listener = listen_somewhere(&m->port);
    m->to_driver = raw_connect(&p->server);
}

static size_t take(int from, uint8_t *block, size_t n)
{
    ssize_t got = recv(from, block, n, MSG_DONTWAIT);

    return got > 0 ? (size_t)got : 0;
}

/* A side that is gone, perhaps because it waited too long, gets no more bytes. */
static void give(int to, const uint8_t *block, size_t n)
{
    if (n && write(to, block, n) != (ssize_t)n)
        assert_true(errno == EPIPE || errno == ECONNRESET);
}

static void middle_step(struct middle *m)
{
    uint8_t block[4096];
    size_t n = take(m->to_follower, block, m->step ? m->step : sizeof block);

    for (size_t i = 0; i < n; i++)
        if (m->flip_at && m->n_passed + i == m->flip_at)
            block[i] ^= 1;
    if (m->cut_at && m->n_passed + n > m->cut_at)
        n = m->cut_at - m->n_passed;
    give(m->to_driver, block, n);
    m->n_passed += n;
    if (m->cut_at && m->n_passed >= m->cut_at && !m->is_cut) {
        m->is_cut = 1;
        shutdown(m->to_driver, SHUT_WR);
    }
    n = take(m->to_driver, block, m->step ? m->step : sizeof block);
    give(m->to_follower, block, n);
}

/* Run both sides, with their bytes through m, until *flag. */
static void run_through(uv_loop_t *loop, struct middle *m, const int *flag)
{
    int64_t start = clock_mono_ns();

    while (!*flag && !is_late(start)) {
        uv_run(loop, UV_RUN_NOWAIT);
        middle_step(m);
    }
    assert_true(*flag);
}

static void middle_pair(struct pair *p, struct middle *m, uv_loop_t *loop)
{
    pair_open(p, loop, 1, 1);
    middle_open(m, p);
    pair_dial_at(p, m->port);
    m->to_follower = accept(m->listener, NULL, NULL);
    assert_true(m->to_follower >= 0);
}

static void middle_close(struct pair *p, struct middle *m)
{
    close(m->listener);
    close(m->to_driver);
    close(m->to_follower);
    pair_close(p);
}

static void test_byte_by_byte(void **state)
{
    struct pair p;
    struct middle m;

    middle_pair(&p, &m, *state);
    m.step = 1;
    p.server.side[0].answer = frame_of(300, 'b');
    conn_send(p.client.conn, frame_of(100, 'h'));
    run_through(*state, &m, &p.client.has_frame);
    assert_int_equal(p.server.side[0].n_bytes, 100);
    assert_int_equal(p.client.n_bytes, 300);
    middle_close(&p, &m);
}

/* The stream is cut at any byte: no partial frame is delivered, and the cut is never taken for an
 * end in order. */
static void test_cut_and_flipped(void **state)
{
    size_t total;
    struct pair p;
    struct middle m;

    middle_pair(&p, &m, *state);
    conn_send(p.client.conn, frame_of(50, 'h'));
    run_through(*state, &m, &p.server.side[0].has_frame);
    total = m.n_passed;
    middle_close(&p, &m);
    for (size_t at = 1; at < total; at += at < 8 || at > total - 8 ? 1 : 13) {
        for (int flip = 0; flip < 2; flip++) {
            middle_pair(&p, &m, *state);
            *(flip ? &m.flip_at : &m.cut_at) = at;
            conn_send(p.client.conn, frame_of(50, 'h'));
            if (!flip)
                run_through(*state, &m, &m.is_cut);
            for (int k = 0; k < 12; k++) {
                uv_run(*state, UV_RUN_NOWAIT);
                middle_step(&m);
            }
            if (!flip || at > 5) /* TLS does not protect the version in a record's header */
                assert_true(p.server.side[0].n_frames == 0 || at < 12);
            if (p.server.side[0].is_closed)
                assert_false(p.server.side[0].is_plain);
            middle_close(&p, &m);
        }
    }
}

/* The network dies while the connection is open: that is no end in order. */
static void test_truncated(void **state)
{
    struct pair p;
    struct middle m;

    middle_pair(&p, &m, *state);
    conn_send(p.client.conn, frame_of(50, 'h'));
    run_through(*state, &m, &p.server.side[0].has_frame);
    shutdown(m.to_driver, SHUT_WR);
    run_until(*state, &p.server.side[0].is_closed);
    assert_says(&p.server.side[0].why, ERR_PEER, "without saying so");
    middle_close(&p, &m);
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
        LOOP_TEST(test_exchange),  LOOP_TEST(test_large),           LOOP_TEST(test_queue_limit),
        LOOP_TEST(test_refusals),  LOOP_TEST(test_garbage),         LOOP_TEST(test_byte_by_byte),
        LOOP_TEST(test_truncated), LOOP_TEST(test_cut_and_flipped), LOOP_TEST(test_key_updates),
        LOOP_TEST(test_cost),      LOOP_TEST(test_impostor),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
