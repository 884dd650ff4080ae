/* Tests of TLS connections with something between the two sides: an impostor in the driver's place,
 * or a network that cuts or changes the bytes. */
#include "../test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/tls_library.h"
#include "tls_pair.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
        LOOP_TEST(test_byte_by_byte),
        LOOP_TEST(test_truncated),
        LOOP_TEST(test_cut_and_flipped),
        LOOP_TEST(test_impostor),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
