/* coll/proof: the three messages by which two ranks prove that they are of one formation, and the
 * key that they prove to have. */
#include "../test.h"

#include "base/util.h"
#include "two.h"

/* The key differs from formation to formation, and with every byte of every blob. */
static void test_key(void **state)
{
    struct two a, b;
    uint8_t other[PROOF_KEY];

    (void)state;
    two_prepare(&a, 0);
    two_prepare(&b, 0);
    assert_memory_not_equal(a.key, b.key, PROOF_KEY);
    for (size_t i = 0; i < a.blobs[1].len; i++) {
        a.blobs[1].data[i] ^= 1;
        proof_key((const void *[]){a.blobs[0].data, a.blobs[1].data},
                  (size_t[]){a.blobs[0].len, a.blobs[1].len}, 2, other);
        assert_memory_not_equal(a.key, other, PROOF_KEY);
        a.blobs[1].data[i] ^= 1;
    }
    two_free(&a);
    two_free(&b);
}

/* ---- the messages alone ---- */

static const struct proof_link some_link = {3, 1, COLL_URGENT, PROOF_PLAIN};

struct exchange {
    struct proof dialer, acceptor;
    uint8_t hello[PROOF_HELLO], answer[PROOF_ANSWER], fresh[PROOF_FRESH];
};

static void run_exchange(struct exchange *x, const uint8_t key[PROOF_KEY])
{
    struct err err;

    assert_int_equal(proof_dial(&x->dialer, key, some_link, x->hello, &err), 0);
    assert_int_equal(proof_read_hello(&x->acceptor, key, 1, 4, PROOF_PLAIN, x->hello, &err), 0);
    assert_int_equal(proof_answer(&x->acceptor, x->answer, &err), 0);
    assert_int_equal(proof_read_answer(&x->dialer, x->answer, &err), 0);
    proof_fresh(&x->dialer, x->fresh);
}

static void test_proof(void **state)
{
    static const uint8_t key[PROOF_KEY] = "a key";
    struct exchange x, y;
    uint8_t a[PROOF_KEY], b[PROOF_KEY];

    (void)state;
    run_exchange(&x, key);
    assert_int_equal(proof_read_fresh(&x.acceptor, x.fresh), 0);
    assert_int_equal(x.acceptor.link.from, 3);
    assert_int_equal(x.acceptor.link.channel, COLL_URGENT);
    proof_link_key(&x.dialer, a);
    proof_link_key(&x.acceptor, b);
    assert_memory_equal(a, b, PROOF_KEY);
    run_exchange(&y, key);
    proof_link_key(&y.dialer, b);
    assert_memory_not_equal(a, b, PROOF_KEY);
    assert_int_equal(proof_read_fresh(&y.acceptor, x.fresh), PROOF_STRANGER);
}

/* Every bit of every message counts. */
static void test_flipped_bits(void **state)
{
    static const uint8_t key[PROOF_KEY] = "a key";
    struct exchange x;
    struct proof p;
    struct err err;

    (void)state;
    run_exchange(&x, key);
    for (int bit = 0; bit < 8 * PROOF_HELLO; bit++) {
        const uint8_t mask = (uint8_t)(1 << bit % 8);

        x.hello[bit / 8] ^= mask;
        assert_int_equal(proof_read_hello(&p, key, 1, 4, PROOF_PLAIN, x.hello, &err),
                         PROOF_STRANGER);
        x.hello[bit / 8] ^= mask;
        p = x.dialer;
        x.answer[bit / 8] ^= mask;
        assert_int_equal(proof_read_answer(&p, x.answer, &err), PROOF_STRANGER);
        x.answer[bit / 8] ^= mask;
        if (bit >= 8 * PROOF_FRESH)
            continue;
        x.fresh[bit / 8] ^= mask;
        assert_int_equal(proof_read_fresh(&x.acceptor, x.fresh), PROOF_STRANGER);
        x.fresh[bit / 8] ^= mask;
    }
}

/* A right mac does not make a link that no rank may ask for. */
static void test_wrong_links(void **state)
{
    static const uint8_t key[PROOF_KEY] = "a key";
    static const struct proof_link links[] = {
        {1, 1, COLL_BULK, PROOF_PLAIN},     {0, 1, COLL_BULK, PROOF_PLAIN},
        {4, 1, COLL_BULK, PROOF_PLAIN},     {3, 2, COLL_BULK, PROOF_PLAIN},
        {3, 1, COLL_CHANNELS, PROOF_PLAIN},
    };
    uint8_t hello[PROOF_HELLO];
    struct proof p;
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(links); i++) {
        assert_int_equal(proof_dial(&p, key, links[i], hello, &err), 0);
        assert_int_equal(proof_read_hello(&p, key, 1, 4, PROOF_PLAIN, hello, &err), PROOF_STRANGER);
    }
}

/* Ranks that differ in what they were told name that, on both sides. */
static void test_other_mode(void **state)
{
    static const uint8_t key[PROOF_KEY] = "a key";
    struct proof dialer, acceptor;
    uint8_t hello[PROOF_HELLO], answer[PROOF_ANSWER];
    struct err err;

    (void)state;
    assert_int_equal(proof_dial(&dialer, key, some_link, hello, &err), 0);
    assert_int_equal(proof_read_hello(&acceptor, key, 1, 4, PROOF_TLS, hello, &err), ERR_PROTO);
    assert_non_null(strstr(err.msg, "rank 3 wants plain links, this rank encrypted ones"));
    assert_int_equal(proof_answer(&acceptor, answer, &err), 0);
    assert_int_equal(proof_read_answer(&dialer, answer, &err), ERR_PROTO);
    assert_non_null(strstr(err.msg, "rank 1 wants encrypted links, this rank plain ones"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key),          cmocka_unit_test(test_proof),
        cmocka_unit_test(test_flipped_bits), cmocka_unit_test(test_wrong_links),
        cmocka_unit_test(test_other_mode),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
