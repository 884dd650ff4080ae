/* Tests of gemm.h: a linear layer and its gradients are computed column-major with exactly the
 * numbers that cuBLASLt is given, and compared with the row-major formulas of op/linear.c. */
#include "../test.h"

#include "backend/cuda/gemm.h"
#include "base/alloc.h"

/* Integers, so that sums are exact in any order. */
static double *integers(int64_t n, int seed)
{
    double *x = xcalloc((size_t)n, sizeof *x);

    for (int64_t i = 0; i < n; i++)
        x[i] = (double)((i * 7 + seed * 13 + i * i % 11) % 17 - 8);
    return x;
}

/* As BLAS does: C = op(A) op(B) by columns, without touching memory outside the matrices. */
static void multiply(const struct gemm *g, const double *a, const double *b, double *c)
{
    for (int64_t j = 0; j < g->n; j++)
        for (int64_t i = 0; i < g->m; i++) {
            double sum = 0.0;

            for (int64_t p = 0; p < g->k; p++)
                sum += (g->transpose_a ? a[p + i * g->lda] : a[i + p * g->lda]) *
                       (g->transpose_b ? b[j + p * g->ldb] : b[p + j * g->ldb]);
            c[i + j * g->ldc] = sum;
        }
}

/* BGRADB: for each column of C, the sum of op(B) over k. */
static void bias_gradient(const struct gemm *g, const double *b, double *db)
{
    for (int64_t j = 0; j < g->n; j++) {
        db[j] = 0.0;
        for (int64_t p = 0; p < g->k; p++)
            db[j] += g->transpose_b ? b[j + p * g->ldb] : b[p + j * g->ldb];
    }
}

/* Add to `to` by the formulas of op/linear.c, row-major: y (forward), dx (grad_x) or dw (grad_w).
 * `y` is dy in the two backward passes. */
static void reference(enum gemm_pass pass, const double *x, const double *w, const double *y,
                      double *to, int64_t batch, int64_t in, int64_t out)
{
    for (int64_t s = 0; s < batch; s++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < in; i++)
                if (pass == GEMM_FORWARD)
                    to[s * out + o] += x[s * in + i] * w[o * in + i];
                else if (pass == GEMM_GRAD_X)
                    to[s * in + i] += y[s * out + o] * w[o * in + i];
                else
                    to[o * in + i] += y[s * out + o] * x[s * in + i];
}

/* The layouts meet cuBLASLt's demands, and each covers the whole of its tensor. */
static void expect_layouts(const struct gemm *g, const int64_t *elements)
{
    assert_true(g->lda >= gemm_rows_a(g) && g->ldb >= gemm_rows_b(g) && g->ldc >= g->m);
    assert_int_equal(gemm_cols_a(g) * g->lda, elements[g->a]);
    assert_int_equal(gemm_cols_b(g) * g->ldb, elements[g->b]);
    assert_int_equal(g->n * g->ldc, elements[g->c]);
}

static void expect_db(const struct gemm *g, const double *dy, int64_t batch, int64_t out)
{
    double *db = integers(g->n, 9);

    assert_int_equal(g->b, GEMM_Y); /* the sum is over dy */
    assert_int_equal(g->n, out);
    bias_gradient(g, dy, db);
    for (int64_t o = 0; o < out; o++) {
        double sum = 0.0;

        for (int64_t s = 0; s < batch; s++)
            sum += dy[s * out + o];
        assert_true(db[o] == sum);
    }
    free(db);
}

static void expect(enum gemm_pass pass, int64_t batch, int64_t in, int64_t out)
{
    const int64_t elements[] = {batch * in, out * in, batch * out};
    const struct gemm g = gemm_of(pass, batch, in, out);
    double *tensor[3], *want;

    for (int i = 0; i < 3; i++)
        tensor[i] = integers(elements[i], i);
    want = xcalloc((size_t)elements[g.c], sizeof *want);
    reference(pass, tensor[GEMM_X], tensor[GEMM_W], tensor[GEMM_Y], want, batch, in, out);
    multiply(&g, tensor[g.a], tensor[g.b], tensor[g.c]);
    expect_layouts(&g, elements);
    for (int64_t i = 0; i < elements[g.c]; i++)
        assert_true(tensor[g.c][i] == want[i]);
    if (pass == GEMM_GRAD_W)
        expect_db(&g, tensor[GEMM_Y], batch, out);
    for (int i = 0; i < 3; i++)
        free(tensor[i]);
    free(want);
}

static void passes(void **state)
{
    static const int64_t size[][3] = {{1, 1, 1}, {1, 5, 3}, {4, 1, 3},    {7, 3, 1},
                                      {2, 3, 4}, {5, 8, 6}, {64, 84, 10}, {3, 400, 120}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(size); i++)
        for (int pass = GEMM_FORWARD; pass <= GEMM_GRAD_W; pass++)
            expect((enum gemm_pass)pass, size[i][0], size[i][1], size[i][2]);
}

/* A bias has one element for each output, and lies along the rows of C. */
static void bias_lies_along_rows(void **state)
{
    const struct gemm g = gemm_of(GEMM_FORWARD, 5, 7, 3);

    (void)state;
    assert_int_equal(g.m, 3);
    assert_int_equal(g.c, GEMM_Y);
    assert_int_equal(g.ldc, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes),
        cmocka_unit_test(bias_lies_along_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
