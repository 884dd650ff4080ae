/* endpoint: blobs are foreign bytes, and every field is checked.  Also: Gloo's headers fit its
 * library. */
#include "../test.h"

#include "coll/endpoint.h"
#include "coll/gloo_leaf.h"

static struct endpoint sample(int rank, int size)
{
    struct endpoint e = {.rank = rank, .size = size, .window = 100000, .nonce = "12345678"};
    struct err err;
    assert_int_equal(endpoint_addr_from_text("10.1.2.3", &e.addr, &err), 0);
    for (int ch = 0; ch < COLL_CHANNELS; ch++)
        for (int r = 0; r < size; r++)
            e.ports[ch][r] = (uint16_t)(r == rank ? 0 : 30000 + 1000 * ch + r);
    return e;
}

static void test_round_trip(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 255, 256};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct endpoint in = sample(sizes[i] - 1, sizes[i]), out;
        struct buf b = {0};
        struct err err;
        endpoint_pack(&in, &b);
        assert_int_equal(b.len, 40 + 4 * sizes[i]);
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
    {0, 'x', "dpG2"},          {3, '1', "dpG2"}, {4, 1, "rank"},
    {5, 3, "rank 3 of 3"},     {6, 1, "ranks"},  {7, 0, "of 0"},
    {7, 4, "want 56 for 4"},   {8, 0, NULL},     {20, 0, "address family 0"},
    {20, 5, "address family"},
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
    struct sockaddr_storage a = endpoint_for(&out, COLL_BULK, 2);
    endpoint_text(&a, text);
    assert_string_equal(text, "127.0.0.1:30002");
    a = endpoint_for(&out, COLL_URGENT, 2);
    endpoint_text(&a, text);
    assert_string_equal(text, "127.0.0.1:31002");
    assert_int_equal(endpoint_addr_from_text("localhost", &a, &err), ERR_ARG);
    assert_int_equal(endpoint_addr_from_text("1.2.3.4.5", &a, &err), ERR_ARG);
    buf_fini(&b);
}

static void test_prepare_arguments(void **state)
{
    (void)state;
    struct coll *c;
    struct err err;
    assert_int_equal(coll_gloo_prepare(0, 257, NULL, NULL, 0, &c, &err), ERR_ARG);
    assert_non_null(strstr(err.msg, "256"));
    assert_int_equal(coll_gloo_prepare(2, 2, NULL, NULL, 0, &c, &err), ERR_ARG);
    assert_int_equal(coll_gloo_prepare(0, 2, "somewhere", NULL, 0, &c, &err), ERR_ARG);
    assert_int_equal(coll_gloo_prepare(0, 2, "127.0.0.1", "lo", 0, &c, &err), ERR_ARG);
    assert_int_equal(coll_gloo_prepare(0, 2, NULL, "no-such0", 0, &c, &err), ERR_IO);
    assert_non_null(strstr(err.msg, "no-such0"));
    assert_int_equal(coll_gloo_prepare(0, 2, "192.0.2.77", NULL, 0, &c, &err), ERR_IO);
    assert_non_null(strstr(err.msg, "192.0.2.77"));

    struct buf b = {0};
    struct endpoint e;
    char ip[COLL_IP_LEN];
    assert_int_equal(coll_gloo_prepare(0, 2, NULL, "lo", 0, &c, &err), 0);
    coll_gloo_endpoint(c, &b);
    assert_int_equal(endpoint_parse(b.data, b.len, &e, &err), 0);
    endpoint_ip_text(&e.addr, ip);
    assert_string_equal(ip, "127.0.0.1");
    buf_fini(&b);
    coll_free(c);
}

/* Rank 1 of 3 is given these blobs as those of ranks 0 and 2. */
static void test_peer_blobs(void **state)
{
    (void)state;
    struct endpoint rank0 = sample(0, 3), rank2 = sample(2, 3);
    struct endpoint portless = rank0, half = rank0, foreign = sample(0, 4);
    portless.ports[COLL_BULK][1] = 0;
    half.ports[COLL_URGENT][1] = 0;
    const struct {
        const struct endpoint *e[3];
        const char *says;
    } cases[] = {
        {{&rank2, NULL, &rank0}, "it is of rank 2 of 3, want rank 0 of 3"},
        {{&rank0, NULL, &rank0}, "endpoint of rank 2"},
        {{&foreign, NULL, &rank2}, "rank 0 of 4"},
        {{&portless, NULL, &rank2}, "no port for rank 1"},
        {{&half, NULL, &rank2}, "no port for rank 1"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct coll *c;
        struct err err;
        struct buf b[3] = {{0}};
        const void *blobs[3];
        size_t lens[3];
        assert_int_equal(coll_gloo_prepare(1, 3, NULL, NULL, 0, &c, &err), 0);
        for (int r = 0; r < 3; r++) {
            if (cases[i].e[r])
                endpoint_pack(cases[i].e[r], &b[r]);
            blobs[r] = b[r].data;
            lens[r] = b[r].len;
        }
        assert_int_equal(coll_gloo_connect(c, blobs, lens, 1000, &err), ERR_PROTO);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.msg, cases[i].says);
        coll_free(c);
        for (int r = 0; r < 3; r++)
            buf_fini(&b[r]);
    }
}

static void test_gloo_abi(void **state)
{
    (void)state;
    struct err err;
    if (gloo_leaf_check_abi(&err) < 0)
        fail_msg("%s", err.msg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_every_length),      cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_prepare_arguments), cmocka_unit_test(test_peer_blobs),
        cmocka_unit_test(test_gloo_abi),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
