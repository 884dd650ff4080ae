/* Tests of endpoint: blobs are foreign bytes, and every field of one is checked; addresses are
 * found, written and compared by their source. */
#include "../test.h"

#include "coll/endpoint.h"

static struct endpoint sample(int rank, int size)
{
    struct endpoint e = {.rank = rank, .size = size, .window = 100000, .random = "12345678"};
    struct err err;
    assert_int_equal(endpoint_addr_from_text("10.1.2.3", &e.addr, &err), 0);
    e.addr.port = (uint16_t)(30000 + rank);
    return e;
}

/* With a fabric behind it. */
static struct endpoint sample_with_fabric(int rank, int size)
{
    struct endpoint e = sample(rank, size);

    e.fabric = (struct endpoint_fabric){.name = "verbs;ofi_rxm",
                                        .half = "public",
                                        .len = {16, FABRIC_ADDRESS},
                                        .address = {"first", "second"}};
    return e;
}

static void test_fabric_round_trip(void **state)
{
    struct endpoint in = sample_with_fabric(1, 3), out;
    struct buf b = {0};
    struct err err;

    (void)state;
    endpoint_pack(&in, &b);
    assert_int_equal(b.len,
                     ENDPOINT_BYTES + FABRIC_NAME + SEAL_PUBLIC + 2 + 16 + 2 + FABRIC_ADDRESS);
    assert_int_equal(endpoint_parse(b.data, b.len, &out, &err), 0);
    assert_memory_equal(&in, &out, sizeof in);
    buf_fini(&b);
}

/* Every shorter length, one byte more, and what fields must not hold. */
static void test_fabric_damaged(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
        const char *says;
    } bad[] = {
        {ENDPOINT_BYTES, 0, "whose name"},
        {ENDPOINT_BYTES + FABRIC_NAME - 1, 'x', "whose name"},
        {ENDPOINT_BYTES + FABRIC_NAME + SEAL_PUBLIC, 2, "want 1 to 256"},
        {ENDPOINT_BYTES + FABRIC_NAME + SEAL_PUBLIC + 1, 0, "want 1 to 256"},
        {ENDPOINT_BYTES + FABRIC_NAME + SEAL_PUBLIC + 2 + 16, 0, "want"},
        {ENDPOINT_BYTES + FABRIC_NAME + SEAL_PUBLIC + 2 + 16 + 1, 1, "want 1 to 256"},
    };
    struct endpoint in = sample_with_fabric(1, 3), out;
    struct buf b = {0};
    struct err err;

    (void)state;
    endpoint_pack(&in, &b);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const uint8_t before = b.data[bad[i].at];

        b.data[bad[i].at] = bad[i].value;
        assert_int_equal(endpoint_parse(b.data, b.len, &out, &err), ERR_PROTO);
        if (!strstr(err.msg, bad[i].says))
            fail_msg("row %zu: %s", i, err.msg);
        b.data[bad[i].at] = before;
    }
    for (size_t len = ENDPOINT_BYTES + 1; len < b.len; len++) {
        uint8_t *exact = malloc(len);

        memcpy(exact, b.data, len);
        assert_int_equal(endpoint_parse(exact, len, &out, &err), ERR_PROTO);
        free(exact);
    }
    buf_append(&b, "", 1);
    assert_int_equal(endpoint_parse(b.data, b.len, &out, &err), ERR_PROTO);
    buf_fini(&b);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 255, COLL_TCP_MAX_RANKS};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct endpoint in = sample(sizes[i] - 1, sizes[i]), out;
        struct buf b = {0};
        struct err err;
        endpoint_pack(&in, &b);
        assert_int_equal(b.len, ENDPOINT_BYTES);
        assert_int_equal(endpoint_parse(b.data, b.len, &out, &err), 0);
        assert_memory_equal(&in, &out, sizeof in);
        buf_fini(&b);
    }
}

/* offset, new value, what the error must say */
static const struct damage {
    size_t at;
    uint8_t value;
    const char *says;
} damages[] = {
    {0, 'x', "dpE3"},
    {3, '1', "dpE3"},
    {4, 255, "at most"},
    {5, 3, "rank 3 of 3"},
    {6, 255, "at most"},
    {7, 0, "of 0"},
    {7, 1, "rank 1 of 1"},
    {8, 0, NULL},
    {12, 0, "address family 0"},
    {12, 5, "address family 5"},
};

static void test_damaged(void **state)
{
    (void)state;
    struct endpoint in = sample(1, 3), out;
    struct buf b = {0};
    struct err err;
    endpoint_pack(&in, &b);
    for (size_t i = 0; i < ARRAY_LEN(damages); i++) {
        const struct damage *d = &damages[i];
        uint8_t before = b.data[d->at];
        b.data[d->at] = d->value;
        int want = d->says ? ERR_PROTO : 0;
        assert_int_equal(endpoint_parse(b.data, b.len, &out, &err), want);
        if (d->says && !strstr(err.msg, d->says))
            fail_msg("\"%s\" does not say \"%s\"", err.msg, d->says);
        b.data[d->at] = before;
    }
    memset(b.data + 8, 0, 4);
    assert_int_equal(endpoint_parse(b.data, b.len, &out, &err), ERR_PROTO);
    assert_non_null(strstr(err.msg, "window"));
    buf_fini(&b);
}

/* The blob is copied to memory of its exact size, so that a sanitizer sees a read behind its
 * end. */
static void test_every_length(void **state)
{
    (void)state;
    struct endpoint in = sample(0, 4), out;
    struct buf b = {0};
    struct err err;
    endpoint_pack(&in, &b);
    for (size_t len = 0; len < b.len; len++) {
        uint8_t *p = malloc(len + 1);
        memcpy(p, b.data, len);
        uint8_t *exact = realloc(p, len ? len : 1);
        assert_int_equal(endpoint_parse(exact, len, &out, &err), ERR_PROTO);
        free(exact);
    }
    buf_append(&b, "", 1);
    assert_int_equal(endpoint_parse(b.data, b.len, &out, &err), ERR_PROTO);
    buf_fini(&b);
}

static void test_addresses(void **state)
{
    (void)state;
    static const char *const ips[] = {"192.168.7.9", "fe80::1:2", "::1", "127.0.0.1"};
    struct endpoint in = sample(1, 3), out;
    struct buf b = {0};
    struct err err;
    char ip[COLL_IP_LEN], text[ENDPOINT_TEXT];
    for (size_t i = 0; i < ARRAY_LEN(ips); i++) {
        buf_clear(&b);
        assert_int_equal(endpoint_addr_from_text(ips[i], &in.addr, &err), 0);
        endpoint_pack(&in, &b);
        assert_int_equal(endpoint_parse(b.data, b.len, &out, &err), 0);
        endpoint_ip_text(&out.addr, ip);
        assert_string_equal(ip, ips[i]);
    }
    endpoint_text(&in.addr, text);
    assert_string_equal(text, "127.0.0.1:0");
    in.addr.port = 30001;
    endpoint_text(&in.addr, text);
    assert_string_equal(text, "127.0.0.1:30001");
    assert_int_equal(endpoint_addr_from_text("localhost", &in.addr, &err), ERR_ARG);
    assert_int_equal(endpoint_addr_from_text("1.2.3.4.5", &in.addr, &err), ERR_ARG);
    buf_fini(&b);
}

static void test_socket_addresses(void **state)
{
    static const struct {
        const char *ip;
        int is_any, is_loopback;
    } cases[] = {{"127.0.0.1", 0, 1}, {"127.200.3.4", 0, 1}, {"::1", 0, 1},
                 {"0.0.0.0", 1, 0},   {"::", 1, 0},          {"10.0.0.1", 0, 0},
                 {"fe80::1", 0, 0},   {"1.0.0.127", 0, 0}};
    struct sockaddr_storage sa;
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct endpoint_addr in, out;

        assert_int_equal(endpoint_addr_from_text(cases[i].ip, &in, &err), 0);
        in.port = 4711;
        assert_true(endpoint_to_socket(&in, &sa) > 0);
        endpoint_from_socket(&sa, &out);
        assert_memory_equal(&in, &out, sizeof in);
        assert_int_equal(endpoint_is_any(&in), cases[i].is_any);
        assert_int_equal(endpoint_is_loopback(&in), cases[i].is_loopback);
    }
}

static int prepare(int rank, int size, const char *bind, const char *iface, struct coll **c,
                   struct err *err)
{
    const struct coll_tcp_options o = {.rank = rank, .size = size, .bind = bind, .iface = iface};

    return coll_tcp_prepare(&o, c, err);
}

static void test_prepare_arguments(void **state)
{
    (void)state;
    struct coll *c;
    struct err err;
    assert_int_equal(prepare(0, COLL_TCP_MAX_RANKS + 1, NULL, NULL, &c, &err), ERR_ARG);
    assert_non_null(strstr(err.msg, "ranks, want 1 to"));
    assert_int_equal(prepare(2, 2, NULL, NULL, &c, &err), ERR_ARG);
    assert_int_equal(prepare(0, 2, "somewhere", NULL, &c, &err), ERR_ARG);
    assert_int_equal(prepare(0, 2, "127.0.0.1", "lo", &c, &err), ERR_ARG);
    assert_int_equal(prepare(0, 2, NULL, "no-such0", &c, &err), ERR_IO);
    assert_non_null(strstr(err.msg, "no-such0"));
    assert_int_equal(prepare(0, 2, "192.0.2.77", NULL, &c, &err), ERR_IO);
    assert_non_null(strstr(err.msg, "192.0.2.77"));

    struct buf b = {0};
    struct endpoint e;
    char ip[COLL_IP_LEN];
    assert_int_equal(prepare(0, 2, NULL, "lo", &c, &err), 0);
    coll_tcp_endpoint(c, &b);
    assert_int_equal(endpoint_parse(b.data, b.len, &e, &err), 0);
    endpoint_ip_text(&e.addr, ip);
    assert_string_equal(ip, "127.0.0.1");
    buf_fini(&b);
    coll_free(c);
}

/* Rank 1 of 3 is given these blobs as those of all ranks. */
static void test_peer_blobs(void **state)
{
    (void)state;
    struct endpoint rank0 = sample(0, 3), rank1 = sample(1, 3), rank2 = sample(2, 3);
    struct endpoint portless = rank0, nowhere = rank0, foreign = sample(0, 4);
    portless.addr.port = 0;
    memset(nowhere.addr.ip, 0, sizeof nowhere.addr.ip);
    const struct {
        const struct endpoint *e[3];
        const char *says;
    } cases[] = {
        {{&rank2, &rank1, &rank0}, "it is of rank 2 of 3, want rank 0 of 3"},
        {{&rank0, &rank1, &rank0}, "endpoint of rank 2"},
        {{&rank0, NULL, &rank2}, "endpoint of rank 1"},
        {{&foreign, &rank1, &rank2}, "rank 0 of 4"},
        {{&portless, &rank1, &rank2}, "it has no port"},
        {{&nowhere, &rank1, &rank2}, "it advertises 0.0.0.0"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct coll *c;
        struct err err;
        struct buf b[3] = {{0}};
        const void *blobs[3];
        size_t lens[3];
        assert_int_equal(prepare(1, 3, NULL, NULL, &c, &err), 0);
        for (int r = 0; r < 3; r++) {
            if (cases[i].e[r])
                endpoint_pack(cases[i].e[r], &b[r]);
            blobs[r] = b[r].data;
            lens[r] = b[r].len;
        }
        assert_int_equal(coll_tcp_connect(c, blobs, lens, 1000, &err), ERR_PROTO);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.msg, cases[i].says);
        coll_free(c);
        for (int r = 0; r < 3; r++)
            buf_fini(&b[r]);
    }
}

/* Addresses of one source count together when strangers are bounded. */
static void test_sources(void **state)
{
    static const struct {
        const char *a, *b;
        int is_same;
    } cases[] = {
        {"10.0.0.1", "10.0.0.1", 1},
        {"10.0.0.1", "10.0.0.2", 0},
        {"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", 1},
        {"2001:db8:1:2::1", "2001:db8:1:3::1", 0},
        {"::ffff:10.0.0.1", "::ffff:10.0.0.1", 1},
        {"::ffff:10.0.0.1", "::ffff:10.0.0.2", 0},
        {"::1", "::ffff:10.0.0.1", 0},
        {"10.0.0.1", "a00:1::", 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct endpoint_addr a, b;
        struct err err;

        assert_int_equal(endpoint_addr_from_text(cases[i].a, &a, &err), 0);
        assert_int_equal(endpoint_addr_from_text(cases[i].b, &b, &err), 0);
        a.port = 1;
        if (endpoint_is_same_source(&a, &b) != cases[i].is_same ||
            endpoint_is_same_source(&b, &a) != cases[i].is_same)
            fail_msg("%s and %s", cases[i].a, cases[i].b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),       cmocka_unit_test(test_fabric_round_trip),
        cmocka_unit_test(test_fabric_damaged),   cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_every_length),     cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_socket_addresses), cmocka_unit_test(test_prepare_arguments),
        cmocka_unit_test(test_peer_blobs),       cmocka_unit_test(test_sources),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
