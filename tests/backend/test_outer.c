/* Tests of outer.h: every size of block is compared with loops in double, and nothing beside the
 * block may be written. */
#include "../test.h"

#include <math.h>

#include "backend/cpu/outer.h"

enum { N1 = 3, N2 = 4, A_ROW = 50, TO_ROW = 131, WIDTH = 16 * OUTER_MAX_V };

static float a[N1 * A_ROW + 64], b[N1 * N2 * WIDTH + WIDTH], add[WIDTH];
static float to[OUTER_MAX_I * TO_ROW + TO_ROW], old[OUTER_MAX_I * TO_ROW + TO_ROW];

static void fill(float *v, size_t n, int seed)
{
    for (size_t i = 0; i < n; i++)
        v[i] = (float)((i * 7919 + (size_t)seed * 104729) % 2003) / 1001.5f - 1.0f;
}

static void fill_operands(void)
{
    if (!outer_available())
        skip();
    fill(a, sizeof a / sizeof *a, 1);
    fill(b, sizeof b / sizeof *b, 2);
    fill(add, WIDTH, 3);
    fill(old, sizeof old / sizeof *old, 4);
}

static double want_at(const struct outer *o, int i, int j)
{
    double sum = 0;

    for (int64_t t1 = 0; t1 < o->n1; t1++)
        for (int64_t t2 = 0; t2 < o->n2; t2++)
            sum += (double)a[o->a_off[i] + t1 * o->a1 + t2 * o->a2] *
                   (double)b[t1 * o->b1 + t2 * o->b2 + j];
    if (o->end == OUTER_ADD)
        return sum + (double)old[o->to_off[i] + j];
    sum += o->add ? (double)o->add[j] : 0;
    return o->end == OUTER_RELU && sum < 0 ? 0 : sum;
}

static void check(const struct outer *o)
{
    for (int i = 0; i <= o->n_i; i++)
        for (int j = 0; j < TO_ROW; j++) {
            const int at = i * TO_ROW + j;

            if (i < o->n_i && j < o->n_j) {
                if (fabs((double)to[at] - want_at(o, i, j)) > 1e-5)
                    fail_msg("%d x %d, end %d: element %d,%d is %g, want %g", o->n_i, o->n_j,
                             (int)o->end, i, j, (double)to[at], want_at(o, i, j));
            } else if (memcmp(&to[at], &old[at], sizeof *to)) {
                fail_msg("%d x %d: wrote beside the block, at %d,%d", o->n_i, o->n_j, i, j);
            }
        }
}

/* A number of `to` is set, or stays as it was. */
static void expect_number(const struct outer *o, int i, int k, double want)
{
    const int at = i * TO_ROW + k;

    if (i >= o->n_i || k >= o->n_j)
        want = (double)old[at];
    if (fabs((double)to[at] - want) > 1e-5)
        fail_msg("%d x %d, %lld terms, end %d: element %d,%d is %g, want %g", o->n_i, o->n_j,
                 (long long)o->n2, (int)o->end, i, k, (double)to[at], want);
}

static void check_dots(const struct outer *o)
{
    for (int i = 0; i < OUTER_DOTS_I + 1; i++)
        for (int k = 0; k < OUTER_DOTS_J + 1; k++) {
            double sum = 0;

            if (i < o->n_i && k < o->n_j) {
                for (int64_t t1 = 0; t1 < o->n1; t1++)
                    for (int64_t t = 0; t < o->n2; t++)
                        sum += (double)a[o->a_off[i] + t1 * o->a1 + t] *
                               (double)b[k * o->b2 + t1 * o->b1 + t];
                sum += o->add ? (double)o->add[k] : 0;
            }
            expect_number(o, i, k, o->end == OUTER_RELU && sum < 0 ? 0 : sum);
        }
}

/* Rows of every length, so that the last vector has any number of terms. */
static void test_dots(void **state)
{
    (void)state;
    fill_operands();
    for (int n_j = 1; n_j <= OUTER_DOTS_J; n_j++)
        for (int n_i = 1; n_i <= OUTER_DOTS_I; n_i++)
            for (int n = 1; n <= A_ROW; n++) {
                struct outer o = {.n1 = N1,
                                  .n2 = n,
                                  .a1 = A_ROW,
                                  .b1 = A_ROW,
                                  .b2 = N1 * A_ROW,
                                  .n_i = n_i,
                                  .n_j = n_j,
                                  .end = n % 2 ? OUTER_STORE : OUTER_RELU,
                                  .add = n % 3 ? add : NULL};

                for (int i = 0; i < n_i; i++) {
                    o.a_off[i] = 3 * i;
                    o.to_off[i] = i * TO_ROW;
                }
                memcpy(to, old, sizeof to);
                outer_dots(&o, a, b, to);
                check_dots(&o);
            }
}

static void test_all_blocks(void **state)
{
    (void)state;
    fill_operands();
    for (int n_j = 1; n_j <= WIDTH; n_j++)
        for (int n_i = 1; n_i <= outer_max_i(n_j); n_i++)
            for (int end = OUTER_ADD; end <= OUTER_RELU; end++) {
                struct outer o = {.n1 = N1,
                                  .n2 = N2,
                                  .a1 = A_ROW,
                                  .a2 = 1,
                                  .b1 = N2 * n_j,
                                  .b2 = n_j,
                                  .n_i = n_i,
                                  .n_j = n_j,
                                  .end = (enum outer_end)end,
                                  .add = n_j % 2 ? add : NULL};

                for (int i = 0; i < n_i; i++) {
                    o.a_off[i] = 3 * i;
                    o.to_off[i] = i * TO_ROW;
                }
                memcpy(to, old, sizeof to);
                outer_run(&o, a, b, to);
                check(&o);
            }
}

/* Packed operands give the bits of outer_run. */
static void test_packed(void **state)
{
    enum { N = N1 * N2 };
    struct outer o = {.n1 = 1,
                      .n2 = N,
                      .a2 = OUTER_PACKED_I,
                      .b2 = OUTER_PACKED_J,
                      .n_i = OUTER_PACKED_I,
                      .n_j = OUTER_PACKED_J};
    float want[sizeof to / sizeof *to];

    (void)state;
    if (!outer_available())
        skip();
    fill(a, sizeof a / sizeof *a, 1);
    fill(b, sizeof b / sizeof *b, 2);
    fill(old, sizeof old / sizeof *old, 4);
    for (int i = 0; i < o.n_i; i++) {
        o.a_off[i] = i;
        o.to_off[i] = i * TO_ROW;
    }
    for (int end = OUTER_ADD; end <= OUTER_STORE; end++) {
        o.end = (enum outer_end)end;
        memcpy(want, old, sizeof want);
        memcpy(to, old, sizeof to);
        outer_run(&o, a, b, want);
        outer_run_packed(N, a, b, o.end, to, TO_ROW);
        assert_memory_equal(to, want, sizeof to);
    }
}

/* A NaN stays NaN with relu, too. */
static void test_nan_stays(void **state)
{
    struct outer o = {.n1 = 1, .n2 = 1, .n_i = 1, .n_j = 5, .end = OUTER_RELU};
    const float nan_a = NAN;
    float out[5];

    (void)state;
    if (!outer_available())
        skip();
    fill(b, sizeof b / sizeof *b, 2);
    outer_run(&o, &nan_a, b, out);
    for (int j = 0; j < 5; j++)
        assert_true(isnan(out[j]));
    o.n_j = 1;
    out[0] = 0;
    outer_dots(&o, &nan_a, b, out);
    assert_true(isnan(out[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_blocks),
        cmocka_unit_test(test_dots),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_nan_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
