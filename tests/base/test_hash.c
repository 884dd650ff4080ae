/* Tests of hash: hashing in pieces gives the hash of the whole, text is written and read back, and
 * any flipped bit changes the hash. */
#include "../test.h"

#include "base/hash.h"

static void known_values(void **state)
{
    char text[HASH_TEXT_LEN];

    (void)state;
    /* XXH3-128, seed 0, of nothing: the canonical value of its published test vectors. */
    hash_to_text(hash_of(NULL, 0), text);
    assert_string_equal(text, "99aa06d3014798d86001c324468d497f");
}

static void pieces_equal_the_whole(void **state)
{
    uint8_t data[3000];

    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 131 >> 3);
    for (size_t n = 0; n <= sizeof data; n += 1 + n / 7) {
        struct hasher *h = hasher_new();

        for (size_t at = 0, piece = 1; at < n; at += piece, piece = piece * 3 % 257) {
            if (piece > n - at)
                piece = n - at;
            hasher_add(h, data + at, piece);
        }
        assert_true(hash_equal(hasher_end(h), hash_of(data, n)));
        assert_true(
            hash_equal(hasher_end(h), hash_of(data, n))); /* the first call changes nothing */
        hasher_free(h);
    }
}

static void any_flipped_bit_shows(void **state)
{
    uint8_t data[100] = {0};
    struct hash128 base = hash_of(data, sizeof data);

    (void)state;
    for (size_t bit = 0; bit < 8 * sizeof data; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(hash_equal(hash_of(data, sizeof data), base));
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(hash_equal(hash_of(data, sizeof data), base));
}

/* Hashes of which only one half is equal are not equal. */
static void both_words_count(void **state)
{
    struct hash128 a = {1, 2}, b = {1, 3}, c = {4, 2};

    (void)state;
    assert_true(hash_equal(a, a));
    assert_false(hash_equal(a, b));
    assert_false(hash_equal(a, c));
}

static void texts_and_numbers_keep_their_borders(void **state)
{
    struct hasher *a = hasher_new(), *b = hasher_new();

    (void)state;
    hasher_add_text(a, "ab");
    hasher_add_text(a, "c");
    hasher_add_text(b, "a");
    hasher_add_text(b, "bc");
    assert_false(hash_equal(hasher_end(a), hasher_end(b)));
    hasher_add_i64(a, 1);
    hasher_add_i64(b, -1);
    assert_false(hash_equal(hasher_end(a), hasher_end(b)));
    hasher_free(a);
    hasher_free(b);
}

static void text_is_high_word_first(void **state)
{
    struct hash128 h = {0x0123456789abcdefu, 0x0edcba9876543210u};
    char text[HASH_TEXT_LEN];

    (void)state;
    hash_to_text(h, text);
    assert_string_equal(text, "0edcba98765432100123456789abcdef");
}

static void text_is_read_back(void **state)
{
    static const char *const wrong[] = {
        "", "0edcba98765432100123456789abcde", "0edcba98765432100123456789abcdef0",
        "0edcba98765432100123456789abcdeF", "0edcba98765432100123456789abcd/:"};
    struct hash128 h = {0x0123456789abcdefu, 0xfedcba9876543210u}, got;
    char text[HASH_TEXT_LEN];
    struct err err;

    (void)state;
    hash_to_text(h, text);
    assert_int_equal(hash_from_text(text, &got, &err), 0);
    assert_true(hash_equal(got, h));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(hash_from_text(wrong[i], &got, &err), ERR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(pieces_equal_the_whole),
        cmocka_unit_test(any_flipped_bit_shows),
        cmocka_unit_test(both_words_count),
        cmocka_unit_test(texts_and_numbers_keep_their_borders),
        cmocka_unit_test(text_is_high_word_first),
        cmocka_unit_test(text_is_read_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
