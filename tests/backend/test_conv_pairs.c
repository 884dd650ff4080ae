/* conv_pairs - the gradient of a BF16 filter beside the plain sum in double: strides, padding, odd
 * rows, parts of a panel of channels, filters that do not fill a block, several groups of samples,
 * and several threads. */
#include "../test.h"

#include "backend/cpu/conv_pairs.h"
#include "backend/cpu/outer.h"
#include "filter_grad.h"

static const struct filter_row rows[] = {
    {5, 8, 8, 16, 16, 3, 3, {1, 1}, {1, 1}},   /* 32 pairs a sample, so one group */
    {3, 33, 31, 16, 16, 3, 3, {1, 1}, {1, 1}}, /* 528 pairs a sample, the last one of a row half */
    {40, 8, 7, 16, 32, 3, 3, {1, 1}, {0, 2}},  /* a last group that is smaller */
    {2, 9, 11, 80, 16, 3, 3, {2, 2}, {1, 1}},  /* a panel of 64 channels and one of 16 */
    {2, 8, 8, 48, 48, 1, 1, {2, 2}, {0, 0}},   /* a shortcut */
    {2, 7, 9, 16, 16, 5, 3, {2, 1}, {2, 1}},   /* each dimension for itself */
    {1, 2, 1, 16, 16, 3, 3, {1, 1}, {1, 1}},   /* taps that meet no pixel */
    {2, 4, 4, 32, 112, 3, 3, {1, 1}, {1, 1}},  /* filters in blocks of 5 and 6 */
};

static int make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                struct err *err)
{
    assert_true(conv_pairs_fits(b, g, n));
    return conv_pairs_make(b, g, n, out, err);
}

static void test_all_rows(void **state)
{
    struct backend *b;
    struct err err;

    (void)state;
    if (!outer_has_pairs())
        skip();
    assert_int_equal(backend_open_cpu(1, &b, &err), 0);
    container_of(b, struct cpu, base)->widens_bf16 = 0;
    container_of(b, struct cpu, base)->least_work = 1;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct filter_case c = filter_case_of(&rows[i], 0);

        for (int threads = 1; threads <= 3; threads++) {
            backend_set_threads(b, threads);
            run_filter(container_of(b, struct cpu, base), &c, make);
            want_filter(&c, (int)i);
        }
        filter_case_free(&c);
    }
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_rows)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
