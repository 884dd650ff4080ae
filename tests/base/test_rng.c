/* Tests of rng: Philox gives its authors' published answers, and the numbers that we make of its
 * words have the right distributions. */
#include "../test.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

/* The answers that Random123 publishes for philox4x32-10; its counters and keys are written as our
 * seed, purpose, step and index. */
static void known_answers(void **state)
{
    static const struct {
        uint64_t seed, step, index;
        unsigned purpose;
        uint32_t want[4];
    } cases[] = {
        {0, 0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX,
         UINT64_MAX,
         0x00ffffffffffffff,
         0xff,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x0370734413198a2e,
         0x00a308d3243f6a88,
         0x85,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rng_block b = rng_draw(cases[i].seed, (enum rng_purpose)cases[i].purpose,
                                      cases[i].step, cases[i].index);

        assert_memory_equal(b.v, cases[i].want, sizeof b.v);
    }
}

static void any_argument_changes_the_block(void **state)
{
    struct rng_block a = rng_draw(1, RNG_TEST, 2, 3), b[6];

    (void)state;
    b[0] = rng_draw(2, RNG_TEST, 2, 3);
    b[1] = rng_draw(1, RNG_INIT, 2, 3);
    b[2] = rng_draw(1, RNG_TEST, 3, 3);
    b[3] = rng_draw(1, RNG_TEST, 2, 4);
    b[4] = rng_draw(1 + (1ull << 32), RNG_TEST, 2, 3);
    b[5] = rng_draw(1, RNG_TEST, 2 + (1ull << 32), 3);
    for (size_t i = 0; i < ARRAY_LEN(b); i++)
        assert_memory_not_equal(&a, &b[i], sizeof a);
}

static void a_stream_is_its_blocks_in_order(void **state)
{
    struct rng_stream s;

    (void)state;
    rng_stream_init(&s, 9, RNG_TEST, 8);
    for (uint64_t i = 0; i < 400; i++)
        assert_int_equal(rng_next_u32(&s), rng_draw(9, RNG_TEST, 8, i / 4).v[i % 4]);
}

static void units_stay_below_one(void **state)
{
    (void)state;
    assert_true(rng_to_unit(0) == 0.0f);
    assert_true(rng_to_unit(UINT32_MAX) < 1.0f);
    assert_true(rng_to_unit(0x80000000u) == 0.5f);
}

/* Every value is about equally frequent; the bound is 5 sigma of a binomial, and the seed fixed. */
static void below_is_uniform(void **state)
{
    static const uint64_t ns[] = {1, 2, 3, 7, 10, 100};
    enum { DRAWS = 60000 };

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(ns); k++) {
        struct rng_stream s;
        int count[100] = {0};
        double p = 1.0 / (double)ns[k], bound = 5 * sqrt(DRAWS * p * (1 - p));

        rng_stream_init(&s, k, RNG_TEST, 0);
        for (int i = 0; i < DRAWS; i++) {
            uint64_t x = rng_next_below(&s, ns[k]);

            assert_true(x < ns[k]);
            count[x]++;
        }
        for (uint64_t x = 0; x < ns[k]; x++)
            assert_true(fabs(count[x] - DRAWS * p) <= bound);
    }
}

/* n = 3 * 2^62: a quarter of all words must be rejected, or a third of the values comes twice as
 * often as the others: by x % n the lowest third, by multiplication every third value. */
static void below_rejects_what_would_be_unfair(void **state)
{
    const uint64_t n = 3ull << 62; /* 2^64 is 4/3 of it */
    int quarter[3] = {0}, third[3] = {0};
    struct rng_stream s;

    (void)state;
    rng_stream_init(&s, 4, RNG_TEST, 0);
    for (int i = 0; i < 30000; i++) {
        const uint64_t x = rng_next_below(&s, n);

        quarter[x >> 62]++;
        third[x % 3]++;
    }
    for (int i = 0; i < 3; i++) {
        assert_in_range(quarter[i], 9600, 10400);
        assert_in_range(third[i], 9600, 10400);
    }
    assert_true(rng_next_below(&s, UINT64_MAX) < UINT64_MAX);
}

static void moments(void **state)
{
    enum { N = 100000 };
    double sum = 0, sum2 = 0, sum4 = 0, unit = 0, unit2 = 0;
    struct rng_stream s;

    (void)state;
    rng_stream_init(&s, 5, RNG_TEST, 0);
    for (int i = 0; i < N; i++) {
        double x = rng_next_normal(&s), u = rng_next_unit(&s);

        assert_true(isfinite(x) && u >= 0 && u < 1);
        sum += x, sum2 += x * x, sum4 += x * x * x * x;
        unit += u, unit2 += u * u;
    }
    assert_true(fabs(sum / N) < 5 / sqrt(N));             /* mean 0 */
    assert_true(fabs(sum2 / N - 1) < 5 * sqrt(2.0 / N));  /* variance 1 */
    assert_true(fabs(sum4 / N - 3) < 5 * sqrt(96.0 / N)); /* fourth moment 3 */
    assert_true(fabs(unit / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
    assert_true(fabs(unit2 / N - 1.0 / 3) < 5 * sqrt(4.0 / 45 / N));
}

static void extreme_words_give_finite_normals(void **state)
{
    static const uint32_t words[] = {0, 1, 0x7fffffff, 0x80000000, UINT32_MAX};
    double out[2];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        for (size_t k = 0; k < ARRAY_LEN(words); k++) {
            rng_to_normal(words[i], words[k], out);
            assert_true(isfinite(out[0]) && isfinite(out[1]));
            assert_true(hypot(out[0], out[1]) < 7); /* sqrt(2 * 33 * ln 2) */
        }
}

/* At lengths that leave a rest beside the vectors, and across the carry into the index' high half.
 */
static void many_blocks_are_each_block(void **state)
{
    static const int64_t lengths[] = {0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 100};
    static const uint64_t firsts[] = {0, 5, UINT32_MAX - 10, (1ull << 56) - 101};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        for (size_t k = 0; k < ARRAY_LEN(firsts); k++) {
            const uint64_t seed = 0x123456789abcdef0, step = 0xfedcba9876543210;
            struct rng_block many[101];

            memset(many, 0x5a, sizeof many);
            rng_draw_many(seed, RNG_TEST, step, firsts[k], lengths[i], many);
            for (int64_t n = 0; n < 101; n++) {
                struct rng_block want;

                memset(&want, 0x5a, sizeof want);
                if (n < lengths[i])
                    want = rng_draw(seed, RNG_TEST, step, firsts[k] + (uint64_t)n);
                assert_memory_equal(&many[n], &want, sizeof want);
            }
        }
}

/* Normal numbers made together have the bits of those made one by one, also where their
 * approximation lies so near the middle between two floats that it does not tell which one to
 * take (a few of a million). */
static void check_normals(const uint32_t *word, int64_t n, double std, float *to)
{
    rng_to_normals(word, n, std, to);
    for (int64_t i = 0; i < n; i++) {
        double z[2];
        float want[2];

        rng_to_normal(word[2 * i], word[2 * i + 1], z);
        want[0] = (float)(z[0] * std);
        want[1] = (float)(z[1] * std);
        if (memcmp(to + 2 * i, want, sizeof want))
            fail_msg("words %#x and %#x, std %g: %a and %a, want %a and %a", word[2 * i],
                     word[2 * i + 1], std, to[2 * i], to[2 * i + 1], want[0], want[1]);
    }
}

static void many_normals_are_each_normal(void **state)
{
    enum { N = 1 << 20 }; /* pairs; a block has two */
    static const double stds[] = {1, 0.02, 1e-3, 1e-41, 0};
    static const uint32_t edges[] = {0, 1u << 30, 1u << 31, 3u << 30};
    struct rng_block *block = calloc(N / 2, sizeof *block);
    float *to = calloc(2 * N, sizeof *to);
    uint32_t *word = block[0].v;

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(stds); k++) {
        rng_draw_many(k, RNG_TEST, 1, 0, N / 2, block);
        check_normals(word, N, stds[k], to);
    }
    for (size_t a = 0; a < ARRAY_LEN(edges); a++)
        for (size_t b = 0; b < ARRAY_LEN(edges); b++)
            for (uint32_t i = 0; i < 32; i++) {
                word[2 * i] = edges[a] + i - 16;
                word[2 * i + 1] = edges[b] + i - 16;
                check_normals(word, i + 1, 1, to);
            }
    for (int n = 0; n < 600; n += 7) {
        to[2 * n] = 7;
        check_normals(word, n, 1, to);
        assert_true(to[2 * n] == 7);
    }
    free(to);
    free(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(any_argument_changes_the_block),
        cmocka_unit_test(a_stream_is_its_blocks_in_order),
        cmocka_unit_test(units_stay_below_one),
        cmocka_unit_test(below_is_uniform),
        cmocka_unit_test(below_rejects_what_would_be_unfair),
        cmocka_unit_test(moments),
        cmocka_unit_test(extreme_words_give_finite_normals),
        cmocka_unit_test(many_blocks_are_each_block),
        cmocka_unit_test(many_normals_are_each_normal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
