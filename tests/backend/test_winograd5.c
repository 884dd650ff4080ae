/* winograd5 - its chunks of tiles and its threads: a batch gives what its samples give one by one.
 * That one sample is right is tested in tests/op (conv_5x5...).  A gradient that is added to what
 * is there is twice as large. */
#include "../test.h"

#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/outer.h"
#include "backend/cpu/tile.h"
#include "backend/cpu/winograd5.h"
#include "base/rng.h"
#include "base/util.h"
#include "kernels.h"

/* 49 tiles a sample, so chunks of 36 end within samples. */
enum { N = 5, H = 20, W = 19, C = 20, K = 37, N_PIXELS = H * W, N_FILTER = K * C * 25 };

struct tensors {
    float x[N][N_PIXELS * C], dy[N][N_PIXELS * K], dx[N][N_PIXELS * C];
    float w[N_FILTER], dw[N_FILTER], db[K];
};

static void fill(float *x, int64_t n, uint64_t step)
{
    struct rng_stream s;

    rng_stream_init(&s, 1, RNG_TEST, step);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)rng_next_normal(&s);
}

static void run(struct cpu *b, const struct graph *g, const struct node *n, void *const *in,
                void *const *out)
{
    struct kernel *k;
    struct err err;

    assert_true(winograd5_fits(b, g, n));
    assert_int_equal(winograd5_make(b, g, n, &k, &err), 0);
    run_kernel(&b->base, k, in, out);
}

/* Both gradients of `n` samples from `first` on.  dw and db are those of these samples, or are
 * added to what is there. */
static void run_passes(struct cpu *b, struct tensors *t, int first, int n, int adds)
{
    const union node_attr attr = {.conv = {.stride = {1, 1},
                                           .pad = {2, 2},
                                           .dilation = {1, 1},
                                           .groups = 1,
                                           .in_image = {H, W},
                                           .kernel = {5, 5}}};
    struct graph *g = graph_new(n, 1);
    const int x = graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(n, H, W, C), "x");
    const int w = graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(K, C, 5, 5), "w");
    const int dy = graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(n, H, W, K), "dy");
    struct err err;

    assert_int_equal(graph_node(g, OP_conv2d_grad_x, &attr, (int[]){w, dy}, 2, NULL, "dx", &err),
                     0);
    assert_int_equal(graph_node(g, OP_conv2d_grad_w, &attr, (int[]){x, dy}, 2, NULL, "dw", &err),
                     0);
    if (adds)
        g->node[1].adds = 1u << CONV2D_GRAD_W_DW | 1u << CONV2D_GRAD_W_DB;
    run(b, g, &g->node[0], (void *[NODE_MAX_IN]){t->w, t->dy[first]},
        (void *[NODE_MAX_OUT]){t->dx[first]});
    run(b, g, &g->node[1], (void *[NODE_MAX_IN]){t->x[first], t->dy[first]},
        (void *[NODE_MAX_OUT]){t->dw, t->db});
    graph_free(g);
}

static void add_to(double *sum, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        sum[i] += x[i];
}

/* Rounding errors are some 3e-6 of the results' own root mean square, which is that of sums of
 * N_PIXELS * N products; the largest of N_FILTER errors is some four times as large, and `want` has
 * errors, too. */
static void want_near(const char *what, const float *x, const double *want, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(x[i] - want[i]) <= 3e-5 * sqrt(N_PIXELS * N)))
            fail_msg("%s[%d] is %.9g, want %.9g", what, i, x[i], want[i]);
}

static const float *halved(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] /= 2;
    return x;
}

static void test_a_batch_is_its_samples(void **state)
{
    static double dw[N_FILTER], db[K];
    static struct tensors want, got;
    struct backend *b;
    struct err err;

    (void)state;
    if (!outer_available() && !tile_available())
        skip();
    fill(want.x[0], N * N_PIXELS * C, 1);
    fill(want.dy[0], N * N_PIXELS * K, 2);
    fill(want.w, N_FILTER, 3);
    got = want;
    assert_int_equal(backend_open_cpu(1, &b, &err), 0);
    for (int i = 0; i < N; i++) {
        run_passes(container_of(b, struct cpu, base), &want, i, 1, 0);
        add_to(dw, want.dw, N_FILTER);
        add_to(db, want.db, K);
    }
    for (int threads = 1; threads <= 3; threads++) {
        backend_set_threads(b, threads);
        container_of(b, struct cpu, base)->least_work = 1;
        run_passes(container_of(b, struct cpu, base), &got, 0, N, 0);
        assert_memory_equal(got.dx, want.dx, sizeof got.dx);
        want_near("dw", got.dw, dw, N_FILTER);
        want_near("db", got.db, db, K);
        run_passes(container_of(b, struct cpu, base), &got, 0, N, 1);
        want_near("half of dw", halved(got.dw, N_FILTER), dw, N_FILTER);
        want_near("half of db", halved(got.db, K), db, K);
    }
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_batch_is_its_samples)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
