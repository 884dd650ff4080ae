/* Tests of how the next token is drawn. */
#include "../test.h"

#include <math.h>

#include "base/util.h"
#include "generate/draw.h"

enum { VOCAB = 6, DRAWS = 20000 };

/* Probabilities 0.05, 0.4, 0.1, 0.25, 0.15, 0.05. */
static const float share[VOCAB] = {0.05f, 0.4f, 0.1f, 0.25f, 0.15f, 0.05f};

static void count(const struct draw_rule *rule, double part[VOCAB])
{
    struct draw *d = draw_new(rule, VOCAB);
    float logits[VOCAB];

    memset(part, 0, VOCAB * sizeof *part);
    for (int i = 0; i < VOCAB; i++)
        logits[i] = logf(share[i]) + 3;
    for (int i = 0; i < DRAWS; i++)
        part[draw_next(d, logits)] += 1.0 / DRAWS;
    draw_free(d);
}

static void test_shares(void **state)
{
    static const struct {
        struct draw_rule rule;
        double want[VOCAB];
    } cases[] = {
        {{1, 0, 1, 1}, {0.05, 0.4, 0.1, 0.25, 0.15, 0.05}},
        {{0, 0, 1, 1}, {0, 1, 0, 0, 0, 0}},
        {{1, 2, 1, 1}, {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0, 0}},
        {{1, 0, 0.7, 1}, {0, 0.5, 0, 0.3125, 0.1875, 0}},
        {{1, 0, 0.3, 1}, {0, 1, 0, 0, 0, 0}},
        {{1, 3, 0.8, 1}, {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0, 0}}, /* top_p is of the three */
        {{0.5, 2, 1, 1}, {0, 0.16 / 0.2225, 0, 0.0625 / 0.2225, 0, 0}},
        {{1, 99, 1, 1}, {0.05, 0.4, 0.1, 0.25, 0.15, 0.05}},
    };
    double part[VOCAB];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        count(&cases[i].rule, part);
        for (int k = 0; k < VOCAB; k++)
            if (fabs(part[k] - cases[i].want[k]) > 0.015)
                fail_msg("case %zu, token %d: %g, want %g", i, k, part[k], cases[i].want[k]);
    }
}

static void test_seed(void **state)
{
    const float logits[VOCAB] = {0};
    int differ = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        const struct draw_rule rule = {1, 0, 1, seed}, other = {1, 0, 1, seed + 1};
        struct draw *a = draw_new(&rule, VOCAB), *b = draw_new(&rule, VOCAB),
                    *c = draw_new(&other, VOCAB);

        for (int i = 0; i < 50; i++) {
            const int32_t token = draw_next(a, logits);

            assert_int_equal(token, draw_next(b, logits));
            differ += token != draw_next(c, logits);
        }
        draw_free(a);
        draw_free(b);
        draw_free(c);
    }
    assert_true(differ > 100);
}

/* Logits that are no numbers give no token. */
static void test_not_finite(void **state)
{
    static const struct draw_rule rules[] = {
        {.temperature = 0, .top_p = 1}, {.temperature = 1, .top_p = 1}, {1, 2, 0.5, 1}};
    static const float logits[][3] = {{1, NAN, 2},
                                      {NAN, NAN, NAN},
                                      {1, INFINITY, 2},
                                      {-INFINITY, -INFINITY, -INFINITY},
                                      {1, -INFINITY, 2}};

    (void)state;
    for (size_t r = 0; r < ARRAY_LEN(rules); r++) {
        struct draw *d = draw_new(&rules[r], 3);

        for (size_t i = 0; i < ARRAY_LEN(logits); i++)
            assert_int_equal(draw_next(d, logits[i]) < 0, i < 4);
        draw_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_not_finite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
