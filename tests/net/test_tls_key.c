/* Tests of keys.  A key's name shows neither the key nor that it was used before.  A driver takes
 * any of its secrets, and a follower tries its own in turn.  A follower's keys make no driver. */
#include "../test.h"

#include <openssl/evp.h>

#include "fixture.h"
#include "net/dialer.h"
#include "net/tls_library.h"

static const struct tls_texts texts = {"no copy of the other", "give both a secret"};

/* Keys are digits: "12" is the secrets 1 and 2. */
static struct tls_context *context(const char *keys, enum tls_role role)
{
    struct secret s[TLS_MAX_SECRETS];
    const int n = (int)strlen(keys);
    struct tls_context *c;
    struct err err;

    for (int i = 0; i < n; i++)
        memset(&s[i], keys[i], sizeof s[i]);
    assert_int_equal(tls_context_new(s, n, role, &texts, &c, &err), 0);
    return c;
}

/* ---- names ---- */

static void test_names(void **state)
{
    struct tls_context *a = context("12", TLS_FOLLOWER), *b = context("1", TLS_DRIVER);
    uint8_t first[TLS_NAME], second[TLS_NAME];

    (void)state;
    assert_int_equal(tls_key_name(&a->key[0], first), 0);
    assert_int_equal(tls_key_name(&a->key[0], second), 0);
    for (size_t i = 10; i < TLS_NAME; i += 16) /* neither salt nor mac comes twice */
        assert_memory_not_equal(first + i, second + i, 16);
    assert_true(tls_key_is_name(first, sizeof first));
    assert_true(tls_key_is_named(&b->key[0], first));
    assert_true(tls_key_is_named(&b->key[0], second));
    assert_false(tls_key_is_named(&a->key[1], first));
    for (size_t i = 0; i < TLS_NAME; i++) {
        first[i] ^= 1;
        assert_false(tls_key_is_named(&b->key[0], first));
        first[i] ^= 1;
    }
    assert_false(tls_key_is_name(first, sizeof first - 1));
    assert_false(tls_key_is_name((const uint8_t *)"dptrain-secret-1", 16));
    assert_false(tls_key_is_of_other_version(first, sizeof first));
    assert_false(tls_key_is_of_other_version((const uint8_t *)"Client_identity", 15));
    assert_false(tls_key_is_of_other_version((const uint8_t *)"dptrain-", 8));
    assert_true(tls_key_is_of_other_version((const uint8_t *)"dptrain-2:", 10));
    tls_context_free(a);
    tls_context_free(b);
}

/* No two uses of a secret share a key, and none is the secret itself. */
static void test_uses_differ(void **state)
{
    struct tls_context *c = context("1", TLS_DRIVER);
    uint8_t handshake[TLS_KEY_BYTES], seed[TLS_KEY_BYTES], secret[TLS_KEY_BYTES];
    size_t n = sizeof seed;

    (void)state;
    memset(secret, '1', sizeof secret);
    assert_int_equal(SSL_SESSION_get_master_key(c->key[0].session, handshake, sizeof handshake),
                     sizeof handshake);
    assert_true(EVP_PKEY_get_raw_private_key(c->key[0].driver, seed, &n));
    assert_memory_not_equal(handshake, seed, n);
    assert_memory_not_equal(handshake, c->key[0].naming, n);
    assert_memory_not_equal(seed, c->key[0].naming, n);
    assert_memory_not_equal(handshake, secret, n);
    assert_memory_not_equal(seed, secret, n);
    assert_memory_not_equal(c->key[0].naming, secret, n);
    tls_context_free(c);
}

/* ---- connections ---- */

struct pair {
    struct server server;
    struct side client;
    struct tls_context *of_driver, *of_follower;
    struct dialer *dialer;
};

static void on_connected(void *arg, struct conn *c)
{
    struct pair *p = arg;

    p->client.conn = c;
    conn_listen(c, &side_events, &p->client);
    conn_send(c, frame_of(100, 'h'));
}

static void pair_open(struct pair *p, uv_loop_t *loop, const char *driver, const char *follower)
{
    struct dialer_options d = {
        .host = "127.0.0.1", .wait_ms = -1, .connected = on_connected, .arg = p};
    struct err err;

    memset(p, 0, sizeof *p);
    p->of_driver = context(driver, TLS_DRIVER);
    d.tls = p->of_follower = context(follower, TLS_FOLLOWER);
    server_open_like(loop, &p->server,
                     &(struct listener_options){
                         .max_strangers = 8, .stranger_ms = NEVER_MS, .tls = p->of_driver});
    d.port = listener_port(p->server.listener);
    assert_int_equal(dialer_new(loop, &d, &p->dialer, &err), 0);
}

/* Dial once: 1 if the driver took the secret, 0 if it refused it. */
static int dial(struct pair *p, uv_loop_t *loop)
{
    const int before = p->server.n_accepted;

    memset(&p->client, 0, sizeof p->client);
    dialer_start(p->dialer, 1);
    while (p->server.n_accepted == before && !p->client.is_closed)
        uv_run(loop, UV_RUN_ONCE);
    if (p->client.is_closed) {
        assert_int_equal(p->client.why.code, ERR_REFUSED);
        return 0;
    }
    run_until(loop, &p->server.side[before].has_frame);
    conn_close(p->client.conn);
    run_until(loop, &p->server.side[before].is_closed);
    return 1;
}

static void pair_close(struct pair *p, uv_loop_t *loop)
{
    listener_close(p->server.listener);
    dialer_close(p->dialer);
    uv_run(loop, UV_RUN_DEFAULT);
    tls_context_free(p->of_driver);
    tls_context_free(p->of_follower);
}

static void test_several_secrets(void **state)
{
    static const struct {
        const char *driver, *follower;
        int n_refused; /* dials before one succeeds; -1: none does */
    } cases[] = {
        {"12", "1", 0},  {"12", "2", 0},   {"1", "21", 1},   {"2", "12", 1},  {"12", "34", -1},
        {"12", "3", -1}, {"4", "1234", 3}, {"1234", "4", 0}, {"12", "32", 1},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const int n = (int)strlen(cases[i].follower);
        struct pair p;
        int k = 0;

        pair_open(&p, *state, cases[i].driver, cases[i].follower);
        while (k < n && !dial(&p, *state)) {
            k++;
            assert_int_equal(tls_context_next(p.of_follower), k < n);
        }
        assert_int_equal(k, cases[i].n_refused < 0 ? n : cases[i].n_refused);
        if (k <
            n) /* a follower stays with the secret that was taken, and may fail as often again */
            assert_true(dial(&p, *state));
        for (int m = 1; k < n && m <= n; m++)
            assert_int_equal(tls_context_next(p.of_follower), m < n);
        pair_close(&p, *state);
    }
}

/* A peer that has a follower's keys answers as a driver: it can do the handshake, but not the
 * driver's proof, neither by the public half nor by another key. */
static void test_follower_is_no_driver(void **state)
{
    for (int is_other = 0; is_other < 2; is_other++) {
        struct pair p;
        struct tls_context *other;
        EVP_PKEY *mine;

        pair_open(&p, *state, "1", "1");
        other = is_other ? context("2", TLS_DRIVER) : context("1", TLS_FOLLOWER);
        mine = p.of_driver->key[0].driver;
        p.of_driver->key[0].driver = other->key[0].driver;
        dialer_start(p.dialer, 1);
        run_until(*state, &p.client.is_closed);
        assert_int_equal(p.client.n_frames, 0);
        assert_false(p.client.is_plain);
        if (is_other) {
            assert_int_equal(p.client.why.code, ERR_REFUSED);
            assert_non_null(strstr(p.client.why.msg, "knows the secret as a follower does"));
            if (p.server.n_accepted)
                assert_int_equal(p.server.side[0].n_frames, 0); /* the follower said nothing */
        }
        listener_close(p.server.listener);
        while (p.server.n_accepted && !p.server.side[0].is_closed)
            uv_run(*state, UV_RUN_ONCE);
        p.of_driver->key[0].driver = mine;
        tls_context_free(other);
        pair_close(&p, *state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_uses_differ),
        LOOP_TEST(test_several_secrets),
        LOOP_TEST(test_follower_is_no_driver),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
