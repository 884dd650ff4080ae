/* amx - every size of block beside loops in double, by tiles where the processor has them and else
 * by plain loops; nothing beside a block may be written, and the work beside its steps is done.
 * And how operands are arranged and sums are written. */
#include "../test.h"

#include <math.h>

#include "backend/cpu/amx.h"
#include "base/util.h"
#include "kernels.h"

enum { N1 = 2, N2 = 3, A_ROW = 200, B_ROW = 80, C_ROW = 35, ROOM = 8192 };

static double want_at(const struct amx *x, const uint16_t *a, const uint16_t *b, int i, int j)
{
    const int64_t low = x->a_low ? x->a_low : AMX_TILE * x->a_row;
    double sum = 0;

    a += i / AMX_TILE * low + i % AMX_TILE * x->a_row;
    for (int64_t t1 = 0; t1 < x->n1; t1++)
        for (int64_t t2 = 0; t2 < x->n2; t2++)
            for (int64_t k = 0; k < AMX_TERMS; k++)
                sum += (double)bf16_to_float(a[t1 * x->a1 + t2 * x->a2 + k]) *
                       (double)bf16_to_float(
                           b[t1 * x->b1 + t2 * x->b2 + k / 2 * x->b_row + 2 * j + k % 2]);
    return sum;
}

static void next_step(void *task, int64_t step)
{
    int64_t *steps = task;

    assert_int_equal(step, *steps);
    ++*steps;
}

static void check(struct amx *x, const uint16_t *a, const uint16_t *b)
{
    float c[(AMX_BLOCK + 1) * C_ROW];
    int64_t steps = 0;

    x->task = &steps;
    for (int i = 0; i < (AMX_BLOCK + 1) * C_ROW; i++)
        c[i] = 7;
    amx_begin();
    amx_run(x, a, b, c);
    amx_end();
    assert_int_equal(steps, x->beside ? N1 * N2 : 0);
    for (int i = 0; i <= AMX_BLOCK; i++)
        for (int j = 0; j < C_ROW; j++) {
            const int is_in = i < x->n_i && j < x->n_j;
            const double want = is_in ? want_at(x, a, b, i, j) + (x->adds ? 7 : 0) : 7;

            if (!(fabs((double)c[i * C_ROW + j] - want) <= (is_in ? 1e-4 : 0)))
                fail_msg("%d x %d, adds %d: element %d,%d is %g, want %g", x->n_i, x->n_j, x->adds,
                         i, j, (double)c[i * C_ROW + j], want);
        }
}

static void test_all_blocks(void **state)
{
    uint16_t *a = bf16_numbers(ROOM, 1), *b = bf16_numbers(ROOM, 2);

    (void)state;
    print_message("by %s\n", amx_available() ? "tiles" : "plain loops");
    for (int n_i = AMX_TILE; n_i <= AMX_BLOCK; n_i += AMX_TILE)
        for (int n_j = AMX_TILE; n_j <= AMX_BLOCK; n_j += AMX_TILE)
            for (int more = 0; more < 8; more++) {
                struct amx x = {.n1 = N1,
                                .n2 = N2,
                                .a1 = 100,
                                .a2 = AMX_TERMS,
                                .b1 = 4000,
                                .b2 = 1300,
                                .a_row = A_ROW,
                                .b_row = B_ROW,
                                .c_row = C_ROW,
                                .n_i = n_i,
                                .n_j = n_j,
                                .a_low = more & 2 ? 777 : 0,
                                .adds = more & 1,
                                .beside = more & 4 ? next_step : NULL};

                check(&x, a, b);
            }
    free(a);
    free(b);
}

static void test_operands(void **state)
{
    enum { N = 48, AT = 5, PAIRS_ROW = 70 };
    uint16_t pairs_turned[AMX_TILE * PAIRS_ROW];
    uint16_t *x = bf16_numbers(AMX_TERMS * N, 3), pairs[2 * N], turned[AMX_TILE * AMX_TERMS];
    const uint16_t *row[AMX_TERMS];

    (void)state;
    for (int absent = 0; absent < 2; absent++) {
        amx_pair(x, absent ? NULL : x + N, N, pairs);
        for (int j = 0; j < N; j++) {
            assert_int_equal(pairs[2 * j], x[j]);
            assert_int_equal(pairs[2 * j + 1], absent ? 0 : x[N + j]);
        }
    }
    for (int k = 0; k < AMX_TERMS; k++)
        row[k] = k % 5 == 3 ? NULL : x + k * N;
    amx_turn(row, AT, turned);
    for (int i = 0; i < AMX_TILE; i++)
        for (int k = 0; k < AMX_TERMS; k++)
            assert_int_equal(turned[i * AMX_TERMS + k], row[k] ? row[k][AT + i] : 0);
    amx_turn_pairs(x + AT, N, pairs_turned, PAIRS_ROW);
    for (int j = 0; j < AMX_TILE; j++)
        for (int k = 0; k < AMX_TERMS; k++)
            assert_int_equal(pairs_turned[k / 2 * PAIRS_ROW + 2 * j + k % 2], x[AT + j * N + k]);
    free(x);
}

/* Ties, numbers that are not finite, and zeros are rounded as everywhere else. */
static void test_write(void **state)
{
    enum { N = 3 };
    const float some[] = {1,     -2.5f,    1.00390625f, 1.01171875f, 3e38f, -3.4e38f,
                          1e-30, INFINITY, NAN,         -0.0f,       7.3f};
    const int64_t place[N] = {2 * AMX_BLOCK, -1, 0};
    float sum[N * AMX_BLOCK];
    uint16_t to[N * AMX_BLOCK];

    (void)state;
    for (int i = 0; i < N * AMX_BLOCK; i++) {
        sum[i] = some[i % (int)ARRAY_LEN(some)];
        to[i] = 5;
    }
    amx_write(sum, place, N, to);
    for (int j = 0; j < AMX_BLOCK; j++) {
        assert_int_equal(to[2 * AMX_BLOCK + j], bf16_from_float(sum[j]));
        assert_int_equal(to[AMX_BLOCK + j], 5);
        assert_int_equal(to[j], bf16_from_float(sum[2 * AMX_BLOCK + j]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_blocks),
                                       cmocka_unit_test(test_operands),
                                       cmocka_unit_test(test_write)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
