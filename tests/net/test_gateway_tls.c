/* Tests of a gateway with a secret: it proves it in its processes' place, tries the next one when
 * the driver refuses the first, and hands the text of a refusal on. */
#include "gateway_process.h"

#include <signal.h>

#include "base/util.h"

static const struct tls_texts texts = {"no copy of the other", "give both a secret"};

/* A secret is 32 equal bytes here; 0: no more of them. */
static struct tls_context *context_of(int first, int second, enum tls_role role)
{
    const int n = second ? 2 : 1;
    struct tls_context *c;
    struct secret s[2];
    struct err err;

    memset(&s[0], first, sizeof s[0]);
    memset(&s[1], second, sizeof s[1]);
    assert_int_equal(tls_context_new(s, n, role, &texts, &c, &err), 0);
    return c;
}

/* Frames go both ways through one connection that TLS protects, also after the driver has refused
 * the gateway's first secret. */
static void test_secrets(void **state)
{
    static const int first[] = {1, 2};

    for (size_t i = 0; i < ARRAY_LEN(first); i++) {
        struct tls_context *driver = context_of(1, 0, TLS_DRIVER);
        struct tls_context *relay = context_of(first[i], 1, TLS_FOLLOWER);
        struct gateway *g = gateway_new(*state, relay);
        struct process p[2];
        struct server s;

        open_for_relays(*state, &s, driver, 0);
        for (int k = 0; k < 2; k++) {
            struct side *side = connect_one(*state, g, &p[k], &s);

            assert_string_equal(conn_local_number(p[k].side.conn), "127.0.0.1");
            conn_send(p[k].side.conn, frame_of(40000, 'd'));
            side->answer = frame_of(3 << 20, 'e');
            run_until(*state, &p[k].side.has_frame);
            assert_int_equal(side->n_bytes, 40000);
            assert_int_equal(p[k].side.n_bytes, 3 << 20);
        }
        for (int k = 0; k < 2; k++)
            process_end(&p[k]);
        for (int k = 0; k < 2; k++)
            run_until(*state, &s.side[k].is_closed);
        gateway_close(g);
        listener_close(s.listener);
        uv_run(*state, UV_RUN_DEFAULT);
        tls_context_free(driver);
        tls_context_free(relay);
    }
}

/* No secret of the gateway is the driver's, or one of the two has none: each process hears why, as
 * if its own connection had been refused. */
static void test_refusals(void **state)
{
    static const struct {
        int driver, first, second; /* 0: none */
        const char *says;
    } cases[] = {
        {1, 2, 0, "the secrets differ: no copy of the other"},
        {1, 2, 3, "the secrets differ: no copy of the other"},
        {1, 0, 0, "it has a secret, and this side has none"},
        {0, 1, 0, "it has no secret, and this side has one"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tls_context *driver = NULL, *relay = NULL;
        struct process p[2];
        struct gateway *g;
        struct server s;

        if (cases[i].driver)
            driver = context_of(cases[i].driver, 0, TLS_DRIVER);
        if (cases[i].first)
            relay = context_of(cases[i].first, cases[i].second, TLS_FOLLOWER);
        g = gateway_new(*state, relay);
        open_for_relays(*state, &s, driver, 0);
        for (int k = 0; k < 2; k++) {
            process_dial(*state, g, &p[k], listener_port(s.listener), -1);
            p[k].n_hello = 100; /* that this cannot be written any more is not the reason */
        }
        for (int k = 0; k < 2; k++) {
            run_until(*state, &p[k].side.is_closed);
            assert_int_equal(p[k].side.why.code, ERR_REFUSED);
            assert_non_null(strstr(p[k].side.why.msg, cases[i].says));
            assert_non_null(strstr(p[k].side.why.msg, listener_text(s.listener)));
        }
        assert_int_equal(s.n_accepted, 0);
        for (int k = 0; k < 2; k++)
            process_end(&p[k]);
        gateway_close(g);
        listener_close(s.listener);
        uv_run(*state, UV_RUN_DEFAULT);
        tls_context_free(driver);
        tls_context_free(relay);
    }
}

int main(void)
{
#define LOOP_TEST(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)
    const struct CMUnitTest tests[] = {LOOP_TEST(test_secrets), LOOP_TEST(test_refusals)};

    signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
