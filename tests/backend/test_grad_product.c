/* Tests of grad_product.h: products and sums of columns beside loops in double, with tails in every
 * extent and with several blocks of each; by any number of threads the same bytes.  And the
 * gradients of linear layers that are computed so. */
#include "../test.h"

#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/grad_product.h"
#include "backend/cpu/outer.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "base/util.h"
#include "kernels.h"

static const float guard = -12345.0f;

static float *numbers_of(int64_t n, uint64_t step)
{
    float *x = xcalloc((size_t)n + 1, sizeof *x);
    struct rng_stream s;

    rng_stream_init(&s, 1, RNG_TEST, step);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)rng_next_normal(&s);
    x[n] = guard;
    return x;
}

/* c [R,C] = old? + a^T b; a_sum [R] and b_sum [C] are sums over rows. */
struct sums {
    double *c, *a_sum, *b_sum;
};

static struct sums sums_new(int64_t M, int64_t R, int64_t C, const float *a, const float *b,
                            const float *old)
{
    struct sums s = {xcalloc((size_t)(R * C), sizeof *s.c), xcalloc((size_t)R, sizeof *s.a_sum),
                     xcalloc((size_t)C, sizeof *s.b_sum)};

    for (int64_t i = 0; old && i < R * C; i++)
        s.c[i] = (double)old[i];
    for (int64_t m = 0; m < M; m++)
        for (int64_t i = 0; i < R; i++) {
            s.a_sum[i] += (double)a[m * R + i];
            for (int64_t j = 0; j < C; j++)
                s.c[i * C + j] += (double)a[m * R + i] * (double)b[m * C + j];
        }
    for (int64_t m = 0; m < M; m++)
        for (int64_t j = 0; j < C; j++)
            s.b_sum[j] += (double)b[m * C + j];
    return s;
}

static void sums_free(struct sums *s)
{
    free(s->b_sum);
    free(s->a_sum);
    free(s->c);
}

static void want_near(const char *what, const float *x, const double *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)x[i] - want[i]) <= 1e-4))
            fail_msg("%s[%lld] is %.9g, want %.9g", what, (long long)i, (double)x[i], want[i]);
    assert_true(x[n] == guard);
}

/* ---- the product ---- */

struct extents {
    int64_t M, R, C;
};

static void run_product(struct grad_product g, int n_threads, const float *old, float *c)
{
    const int64_t n = grad_product_scratch(g.M, g.R, g.C);
    float *scratch = numbers_of(n, 9);

    memcpy(c, old, (size_t)(g.R * g.C + 1) * sizeof *c);
    g.c = c;
    grad_product_run(&g, scratch, n_threads, 1);
    assert_true(scratch[n] == guard);
    free(scratch);
}

static void check_product(const struct extents *e, int adds)
{
    float *a = numbers_of(e->M * e->R, 1), *b = numbers_of(e->M * e->C, 2),
          *old = numbers_of(e->R * e->C, 3), *c = numbers_of(e->R * e->C, 4),
          *again = numbers_of(e->R * e->C, 5), *a_sum = numbers_of(e->R, 6),
          *b_sum = numbers_of(e->C, 7);
    const struct grad_product g = {.M = e->M,
                                   .R = e->R,
                                   .C = e->C,
                                   .a = a,
                                   .b = b,
                                   .a_sum = a_sum,
                                   .b_sum = b_sum,
                                   .adds = adds};
    struct sums want = sums_new(e->M, e->R, e->C, a, b, adds ? old : NULL);

    run_product(g, 1, old, c);
    for (int threads = 1; threads <= 3; threads++) {
        run_product(g, threads, old, again);
        assert_memory_equal(again, c, (size_t)(e->R * e->C + 1) * sizeof *c);
        want_near("a_sum", a_sum, want.a_sum, e->R);
        want_near("b_sum", b_sum, want.b_sum, e->C);
    }
    want_near("c", c, want.c, e->R * e->C);
    sums_free(&want);
    free(b_sum);
    free(a_sum);
    free(again);
    free(c);
    free(old);
    free(b);
    free(a);
}

static void test_products(void **state)
{
    static const struct extents e[] = {{1, 1, 1},       {1, 8, 48},    {17, 16, 96},
                                       {40, 9, 49},     {33, 7, 47},   {512, 48, 48},
                                       {513, 50, 40},   {1100, 20, 3}, {70, 1550, 385},
                                       {530, 1541, 10}, {530, 10, 800}};

    (void)state;
    if (!outer_available())
        skip();
    for (size_t i = 0; i < ARRAY_LEN(e); i++)
        for (int adds = 0; adds <= 1; adds++)
            check_product(&e[i], adds);
}

/* ---- layers ---- */

enum { BATCH = 520, IN = 410, OUT = 322 };

static void run_layer(struct backend *b, int transposed, int adds, float *x, float *dy, float *dw,
                      float *db)
{
    const union node_attr attr = {.linear = {.transposed = transposed}};
    struct graph *g = graph_new(BATCH, 1);
    const int in[] = {graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(BATCH, IN), "x"),
                      graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(BATCH, OUT), "dy")};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, db ? NODE_NEW_OUT : NODE_NO_OUT, NODE_NO_OUT};
    struct kernel *k;
    struct err err;

    assert_int_equal(graph_node(g, OP_linear_grad_w, &attr, in, 2, out, "dw", &err), 0);
    g->node[0].adds = adds ? 1u << LINEAR_GRAD_W_DW : 0;
    assert_int_equal(backend_make_kernel(b, g, &g->node[0], &k, &err), 0);
    run_kernel(b, k, (void *[NODE_MAX_IN]){x, dy}, (void *[NODE_MAX_OUT]){dw, db});
    graph_free(g);
}

/* The node's gradients are the product's, bit by bit.  A node that adds has no db. */
static void check_layer(struct backend *b, int transposed, int adds)
{
    float *x = numbers_of(BATCH * IN, 1), *dy = numbers_of(BATCH * OUT, 2),
          *old = numbers_of(IN * OUT, 3), *dw = numbers_of(IN * OUT, 3),
          *want = numbers_of(IN * OUT, 4), *db = numbers_of(OUT, 5), *want_db = numbers_of(OUT, 6);
    const struct grad_product by_rows_of_w = {
        .M = BATCH, .R = OUT, .C = IN, .a = dy, .b = x, .a_sum = want_db, .adds = adds};
    const struct grad_product by_columns = {
        .M = BATCH, .R = IN, .C = OUT, .a = x, .b = dy, .b_sum = want_db, .adds = adds};

    run_product(transposed ? by_columns : by_rows_of_w, 1, old, want);
    run_layer(b, transposed, adds, x, dy, dw, adds ? NULL : db);
    assert_memory_equal(dw, want, IN * OUT * sizeof *dw);
    if (!adds)
        assert_memory_equal(db, want_db, OUT * sizeof *db);
    free(want_db);
    free(db);
    free(want);
    free(dw);
    free(old);
    free(dy);
    free(x);
}

static void test_layers(void **state)
{
    struct backend *b;
    struct err err;

    (void)state;
    if (!grad_product_pays(BATCH, OUT, IN))
        skip();
    assert_int_equal(backend_open_cpu(2, &b, &err), 0);
    container_of(b, struct cpu, base)->least_work = 1;
    for (int i = 0; i < 4; i++)
        check_layer(b, i & 1, i >> 1);
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_layers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
