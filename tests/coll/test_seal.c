/* coll/seal: the marks of messages over a fabric, and the keys that they are made with. */
#include "../test.h"

#include <openssl/evp.h>

#include "base/util.h"
#include "coll/fabric/seal.h"

static const uint8_t formation[PROOF_KEY] = "of the formation";
static EVP_PKEY *own[2];
static uint8_t halves[2][SEAL_PUBLIC];

static void make_halves(void)
{
    struct err err;

    for (int r = 0; r < 2; r++)
        assert_int_equal(seal_own_new(&own[r], halves[r], &err), 0);
}

static void free_halves(void)
{
    for (int r = 0; r < 2; r++)
        EVP_PKEY_free(own[r]);
}

static struct seal *new_seal(int self, struct proof_link link, int hides)
{
    uint8_t key[SEAL_KEY];
    struct seal *s;
    struct err err;

    assert_int_equal(seal_key(own[self], halves[1 - self], formation, link, key, &err), 0);
    assert_int_equal(seal_new(key, self == link.to, hides, &s, &err), 0);
    return s;
}

static void test_marks(void **state)
{
    static const char said[] = "bytes of a link";

    (void)state;
    for (int hides = 0; hides < 2; hides++) {
        const struct proof_link there = {0, 1, COLL_BULK, hides ? PROOF_TLS : PROOF_PLAIN};
        uint8_t head[SEAL_HEAD] = {0}, data[sizeof said], mark[SEAL_MARK];
        struct seal *out, *in;

        make_halves();
        out = new_seal(0, there, hides);
        in = new_seal(1, there, hides);
        memcpy(data, said, sizeof said);
        seal_close(out, head, data, sizeof data, mark);
        assert_int_equal(!memcmp(data, said, sizeof said), !hides);
        for (size_t i = 0; i < SEAL_HEAD + sizeof data + SEAL_MARK; i++) {
            uint8_t h[SEAL_HEAD], d[sizeof data], m[SEAL_MARK];

            memcpy(h, head, sizeof h), memcpy(d, data, sizeof d), memcpy(m, mark, sizeof m);
            *(i < SEAL_HEAD                 ? h + i
              : i < SEAL_HEAD + sizeof data ? d + i - SEAL_HEAD
                                            : m + i - SEAL_HEAD - sizeof data) ^= 4;
            assert_int_equal(seal_open(in, h, d, sizeof d, m), 0);
        }
        assert_int_equal(seal_open(in, head, data, sizeof data, mark), 1);
        assert_memory_equal(data, said, sizeof said);
        seal_free(out);
        seal_free(in);
        free_halves();
    }
}

/* A key holds for one direction, one channel and one mode. */
static void test_keys_differ(void **state)
{
    static const struct proof_link there = {0, 1, COLL_BULK, PROOF_PLAIN};
    static const struct proof_link others[] = {{0, 1, COLL_URGENT, PROOF_PLAIN},
                                               {0, 1, COLL_BULK, PROOF_TLS},
                                               {2, 1, COLL_BULK, PROOF_PLAIN}};
    uint8_t head[SEAL_HEAD] = {0}, data[4] = "abc", mark[SEAL_MARK];
    struct seal *out;

    (void)state;
    make_halves();
    out = new_seal(0, there, 0);
    seal_close(out, head, data, sizeof data, mark);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct seal *in = new_seal(1, others[i], 0);

        assert_int_equal(seal_open(in, head, data, sizeof data, mark), 0);
        seal_free(in);
    }
    seal_free(out);
    free_halves();
}

/* Messages on both sides of a change of keys, which come in another order. */
static void test_keys_change(void **state)
{
    static const struct proof_link there = {0, 1, COLL_BULK, PROOF_TLS};
    static const uint8_t numbers[][8] = {{0, 0, 0, 0, 0, 0x0f, 0xff, 0xff},
                                         {0, 0, 0, 0, 0, 0x10, 0, 0}};
    uint8_t head[2][SEAL_HEAD] = {{0}}, data[2][4] = {"one", "two"}, mark[2][SEAL_MARK];
    struct seal *out, *in;

    (void)state;
    make_halves();
    out = new_seal(0, there, 1);
    in = new_seal(1, there, 1);
    for (int i = 0; i < 2; i++) {
        memcpy(head[i] + 8, numbers[i], 8);
        seal_close(out, head[i], data[i], sizeof data[i], mark[i]);
    }
    for (int i = 1; i >= 0; i--)
        assert_int_equal(seal_open(in, head[i], data[i], sizeof data[i], mark[i]), 1);
    assert_string_equal((char *)data[0], "one");
    assert_string_equal((char *)data[1], "two");
    seal_free(out);
    seal_free(in);
    free_halves();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_keys_differ),
        cmocka_unit_test(test_keys_change),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
