/* Tests of addr: HOST:PORT is taken apart or refused, addresses become text, and an interface or a
 * host name that does not exist is an error. */
#include "../test.h"

#include "net/addr.h"

static void test_split(void **state)
{
    static const struct {
        const char *text, *host; /* host NULL: refused */
        int port;
        const char *message; /* part of the error's message */
    } cases[] = {
        {"127.0.0.1:7000", "127.0.0.1", 7000, ""},
        {"node-3.example:1", "node-3.example", 1, ""},
        {"[::1]:65535", "::1", 65535, ""},
        {"[fe80::1%eth0]:7000", "fe80::1%eth0", 7000, ""},
        {"localhost", NULL, 0, "want HOST:PORT"},
        {"localhost:", NULL, 0, "port is \"\""},
        {":7000", NULL, 0, "want HOST:PORT"},
        {"[]:7000", NULL, 0, "the host has 0 characters"},
        {"[::1:7000", NULL, 0, "want [IPV6]:PORT"},
        {"::1:7000", NULL, 0, "needs brackets"},
        {"fe80::1%eth0:7000", NULL, 0, "needs brackets"},
        {"2001:db8::7", NULL, 0, "needs brackets"},
        {"http://localhost:7000", NULL, 0, "want HOST:PORT"},
        {"127.0.0.1:7000:8", NULL, 0, "want HOST:PORT"},
        {"h:0", NULL, 0, "port is \"0\""},
        {"h:65536", NULL, 0, "port is \"65536\""},
        {"h:-1", NULL, 0, "port is \"-1\""},
        {"h:7000x", NULL, 0, "port is \"7000x\""},
        {"h: 7000", NULL, 0, "port is \" 7000\""},
        {"", NULL, 0, "want HOST:PORT"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char host[ADDR_MAX_HOST];
        int port = -1, rc;
        struct err err = {0};

        rc = addr_split(cases[i].text, host, &port, &err);
        if (cases[i].host) {
            assert_int_equal(rc, 0);
            assert_string_equal(host, cases[i].host);
            assert_int_equal(port, cases[i].port);
        } else {
            assert_int_equal(rc, ERR_ARG);
            assert_non_null(strstr(err.msg, cases[i].message));
        }
    }
}

static void test_text(void **state)
{
    static const struct {
        const char *number, *host, *text;
        int is_loopback;
    } cases[] = {
        {"10.0.0.1", "10.0.0.1", "10.0.0.1:7000", 0},
        {"127.0.0.1", "127.0.0.1", "127.0.0.1:7000", 1},
        {"127.8.9.1", "127.8.9.1", "127.8.9.1:7000", 1},
        {"::1", "::1", "[::1]:7000", 1},
        {"2001:db8::7", "2001:db8::7", "[2001:db8::7]:7000", 0},
        {"::ffff:10.0.0.1", "10.0.0.1", "10.0.0.1:7000", 0},
        {"::ffff:127.0.0.1", "127.0.0.1", "127.0.0.1:7000", 1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct sockaddr_storage sa = {0};
        struct err err;
        char out[ADDR_TEXT];

        assert_int_equal(addr_resolve(cases[i].number, 7000, &sa, &err), 0);
        addr_text((struct sockaddr *)&sa, out);
        assert_string_equal(out, cases[i].text);
        addr_number((struct sockaddr *)&sa, out);
        assert_string_equal(out, cases[i].host);
        assert_int_equal(addr_port((struct sockaddr *)&sa), 7000);
        assert_int_equal(addr_is_loopback((struct sockaddr *)&sa), cases[i].is_loopback);
        assert_int_equal(addr_number_is_loopback(cases[i].number), cases[i].is_loopback);
    }
    assert_false(addr_number_is_loopback("localhost"));
}

/* Only addresses that hold on one link are refused, and names never. */
static void test_link_local(void **state)
{
    static const struct {
        const char *host;
        int is_link_local;
    } cases[] = {
        {"fe80::1", 1},
        {"fe80::1%eth0", 1},
        {"FEBF::1", 1},
        {"febf::1", 1},
        {"fe80::1%", 1},
        {"fec0::1", 0},
        {"fe7f::1", 0},
        {"fd00::1%eth0", 0},
        {"2001:db8::7", 0},
        {"169.254.0.1", 0},
        {"::1", 0},
        {"fe80.example.org", 0},
        {"", 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct sockaddr_storage sa = {0};
        struct err err = {0};

        assert_int_equal(addr_check_link(cases[i].host, &err),
                         cases[i].is_link_local ? ERR_ARG : 0);
        if (cases[i].is_link_local) {
            assert_non_null(strstr(err.msg, cases[i].host));
            assert_non_null(strstr(err.msg, "is a link-local IPv6 address"));
        }
        if (!addr_is_number(cases[i].host) || strchr(cases[i].host, '%'))
            continue;
        assert_int_equal(addr_resolve(cases[i].host, 7000, &sa, &err), 0);
        assert_int_equal(addr_is_link_local((struct sockaddr *)&sa), cases[i].is_link_local);
    }
}

static void test_interface(void **state)
{
    char out[ADDR_TEXT];
    struct err err;

    (void)state;
    assert_int_equal(addr_of_interface("lo", out, &err), 0);
    assert_true(addr_number_is_loopback(out));
    assert_int_equal(addr_of_interface("no-such-if", out, &err), ERR_ARG);
    assert_non_null(strstr(err.msg, "\"no-such-if\""));
    assert_non_null(strstr(err.msg, "lo (127.0.0.1)"));
}

static void test_unresolvable(void **state)
{
    struct sockaddr_storage sa;
    struct err err;

    (void)state;
    assert_int_equal(addr_resolve("no.such.host.invalid", 1, &sa, &err), ERR_ARG);
    assert_non_null(strstr(err.msg, "no.such.host.invalid"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),        cmocka_unit_test(test_text),
        cmocka_unit_test(test_link_local),   cmocka_unit_test(test_interface),
        cmocka_unit_test(test_unresolvable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
