/* Tests of tile.h: products of every size of block, with both orders of the left matrix, and sums
 * of outer products, beside loops in double; nothing beside the result may be written; and an
 * element's bits are the same in every place of a block. */
#include "../test.h"

#include <math.h>

#include "backend/cpu/tile.h"

enum { MOST_M = 14, MOST_N = 35, MOST_K = 9, A_ROW = 17, B_ROW = 41, TO_ROW = 39 };

static float a[MOST_M * A_ROW + MOST_K * A_ROW], b[MOST_K * B_ROW];
static float to[(MOST_M + 1) * TO_ROW], old[(MOST_M + 1) * TO_ROW];

static void fill(float *v, size_t n, int seed)
{
    for (size_t i = 0; i < n; i++)
        v[i] = (float)((i * 7919 + (size_t)seed * 104729) % 2003) / 1001.5f - 1.0f;
}

static void check(struct matrix x, int m, int n, int k, int adds)
{
    memcpy(to, old, sizeof to);
    tile_product(x, b, B_ROW, to, TO_ROW, m, n, k, adds);
    for (int i = 0; i <= MOST_M; i++)
        for (int j = 0; j < TO_ROW; j++) {
            const int at = i * TO_ROW + j;
            double want = adds ? (double)old[at] : 0;

            if (i >= m || j >= n) {
                if (memcmp(&to[at], &old[at], sizeof *to))
                    fail_msg("%d x %d x %d: wrote beside the result, at %d,%d", m, n, k, i, j);
                continue;
            }
            for (int l = 0; l < k; l++)
                want += (double)x.at[i * x.row + l * x.col] * (double)b[l * B_ROW + j];
            if (!(fabs((double)to[at] - want) < 1e-5))
                fail_msg("%d x %d x %d: element %d,%d is %g, want %g", m, n, k, i, j,
                         (double)to[at], want);
        }
}

static void test_all_blocks(void **state)
{
    (void)state;
    if (!tile_available())
        skip();
    fill(a, sizeof a / sizeof *a, 1);
    fill(b, sizeof b / sizeof *b, 2);
    fill(old, sizeof old / sizeof *old, 3);
    for (int m = 1; m <= MOST_M; m++)
        for (int n = 1; n <= MOST_N; n++)
            for (int k = 1; k <= MOST_K; k += 4)
                for (int adds = 0; adds < 2; adds++) {
                    check((struct matrix){a, A_ROW, 1}, m, n, k, adds);
                    check((struct matrix){a, 1, A_ROW}, m, n, k, adds);
                }
}

static double outer_at(const struct outer *o, int i, int j)
{
    double sum = o->end == OUTER_ADD ? (double)old[o->to_off[i] + j] : 0;

    for (int64_t t1 = 0; t1 < o->n1; t1++)
        for (int64_t t2 = 0; t2 < o->n2; t2++)
            sum += (double)a[o->a_off[i] + t1 * o->a1 + t2 * o->a2] *
                   (double)b[t1 * o->b1 + t2 * o->b2 + j];
    return sum;
}

static void check_outer(const struct outer *o)
{
    memcpy(to, old, sizeof to);
    tile_outer(o, a, b, to);
    for (int i = 0; i <= o->n_i; i++)
        for (int j = 0; j < TO_ROW; j++) {
            const int at = i * TO_ROW + j;

            if (i == o->n_i || j >= TILE_COLUMNS) {
                if (memcmp(&to[at], &old[at], sizeof *to))
                    fail_msg("%d rows: wrote beside the block, at %d,%d", o->n_i, i, j);
            } else if (!(fabs((double)to[at] - outer_at(o, i, j)) < 1e-5)) {
                fail_msg("%d rows, end %d: element %d,%d is %g, want %g", o->n_i, (int)o->end, i, j,
                         (double)to[at], outer_at(o, i, j));
            }
        }
}

/* The rows of the block are 3, 4, ... numbers apart in `a`. */
static void test_outer_products(void **state)
{
    (void)state;
    if (!tile_available())
        skip();
    fill(a, sizeof a / sizeof *a, 1);
    fill(b, sizeof b / sizeof *b, 2);
    fill(old, sizeof old / sizeof *old, 3);
    for (int n_i = 1; n_i <= TILE_ROWS; n_i++)
        for (int end = OUTER_ADD; end <= OUTER_STORE; end++) {
            struct outer o = {.n1 = 2,
                              .n2 = 3,
                              .a1 = A_ROW,
                              .a2 = 2,
                              .b1 = 4 * B_ROW,
                              .b2 = B_ROW,
                              .n_i = n_i,
                              .n_j = TILE_COLUMNS,
                              .end = (enum outer_end)end};

            for (int i = 0; i < n_i; i++) {
                o.a_off[i] = 3 * i + i * i;
                o.to_off[i] = i * TO_ROW;
            }
            check_outer(&o);
        }
}

/* Each row of the left matrix and each column of the right one is the same. */
static void test_place_moves_no_bit(void **state)
{
    (void)state;
    if (!tile_available())
        skip();
    for (int l = 0; l < MOST_K; l++)
        for (int j = 0; j < MOST_N; j++)
            b[l * B_ROW + j] = 1.0f / (float)(l + 3);
    fill(a, A_ROW, 4);
    tile_product((struct matrix){a, 0, 1}, b, B_ROW, to, TO_ROW, MOST_M, MOST_N, MOST_K, 0);
    for (int i = 0; i < MOST_M; i++)
        for (int j = 0; j < MOST_N; j++)
            assert_memory_equal(&to[i * TO_ROW + j], to, sizeof *to);
}

static void test_nan_stays(void **state)
{
    const float nan_a[2] = {NAN, 0};

    (void)state;
    if (!tile_available())
        skip();
    fill(b, sizeof b / sizeof *b, 2);
    tile_product((struct matrix){nan_a, 1, 1}, b, B_ROW, to, TO_ROW, 1, MOST_N, 2, 0);
    for (int j = 0; j < MOST_N; j++)
        assert_true(isnan(to[j]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_blocks),
        cmocka_unit_test(test_outer_products),
        cmocka_unit_test(test_place_moves_no_bit),
        cmocka_unit_test(test_nan_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
