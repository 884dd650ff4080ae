/* conv_pairs - the gradient of a BF16 filter beside the plain sum in double: strides, padding, odd
 * rows, parts of a panel of channels, filters that do not fill a block, several groups of samples,
 * and several threads. */
#include "../test.h"

#include <math.h>

#include "backend/cpu/conv_pairs.h"
#include "backend/cpu/outer.h"
#include "base/alloc.h"
#include "base/util.h"
#include "kernels.h"
#include "tensor/half.h"

struct row {
    int64_t N, H, W, C, K, R, S, stride[2], pad[2];
};

static const struct row rows[] = {
    {5, 8, 8, 16, 16, 3, 3, {1, 1}, {1, 1}},   /* 32 pairs a sample, so one group */
    {3, 33, 31, 16, 16, 3, 3, {1, 1}, {1, 1}}, /* 528 pairs a sample, the last one of a row half */
    {40, 8, 7, 16, 32, 3, 3, {1, 1}, {0, 2}},  /* a last group that is smaller */
    {2, 9, 11, 80, 16, 3, 3, {2, 2}, {1, 1}},  /* a panel of 64 channels and one of 16 */
    {2, 8, 8, 48, 48, 1, 1, {2, 2}, {0, 0}},   /* a shortcut */
    {2, 7, 9, 16, 16, 5, 3, {2, 1}, {2, 1}},   /* each dimension for itself */
    {1, 2, 1, 16, 16, 3, 3, {1, 1}, {1, 1}},   /* taps that meet no pixel */
    {2, 4, 4, 32, 112, 3, 3, {1, 1}, {1, 1}},  /* filters in blocks of 5 and 6 */
};

static int64_t extent(int64_t n, int64_t kernel, int64_t stride, int64_t pad)
{
    return (n + 2 * pad - kernel) / stride + 1;
}

/* dw[k][c][r][s], and the sum of its terms' absolute values. */
static double sum_of(const struct row *w, const uint16_t *x, const uint16_t *dy,
                     const int64_t at[4], double *size)
{
    const int64_t P = extent(w->H, w->R, w->stride[0], w->pad[0]);
    const int64_t Q = extent(w->W, w->S, w->stride[1], w->pad[1]);
    double sum = 0;

    *size = 0;
    for (int64_t i = 0; i < w->N * P * Q; i++) {
        const int64_t h = i / Q % P * w->stride[0] + at[2] - w->pad[0];
        const int64_t v = i % Q * w->stride[1] + at[3] - w->pad[1];
        double term;

        if (h < 0 || h >= w->H || v < 0 || v >= w->W)
            continue;
        term = (double)bf16_to_float(dy[i * w->K + at[0]]) *
               (double)bf16_to_float(x[((i / (P * Q) * w->H + h) * w->W + v) * w->C + at[1]]);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static void want_sums(const struct row *w, const uint16_t *x, const uint16_t *dy, const float *dw)
{
    for (int64_t i = 0; i < w->K * w->C * w->R * w->S; i++) {
        const int64_t taps = w->R * w->S;
        const int64_t at[4] = {i / (w->C * taps), i / taps % w->C, i / w->S % w->R, i % w->S};
        double size;
        const double want = sum_of(w, x, dy, at, &size);

        if (!(fabs((double)dw[i] - want) <= 1e-5 * size))
            fail_msg("row %td, dw[%d]: %.9g, want %.9g", w - rows, (int)i, (double)dw[i], want);
    }
}

static void run(struct cpu *b, const struct row *w, const uint16_t *x, const uint16_t *dy,
                float *dw)
{
    const union node_attr attr = {.conv = {.stride = {(int)w->stride[0], (int)w->stride[1]},
                                           .pad = {(int)w->pad[0], (int)w->pad[1]},
                                           .dilation = {1, 1},
                                           .groups = 1,
                                           .in_image = {w->H, w->W},
                                           .kernel = {w->R, w->S}}};
    const int64_t P = extent(w->H, w->R, w->stride[0], w->pad[0]);
    const int64_t Q = extent(w->W, w->S, w->stride[1], w->pad[1]);
    struct graph *g = graph_new(w->N, 1);
    const int in[] = {graph_value(g, VALUE_INPUT, DTYPE_BF16, SHAPE(w->N, w->H, w->W, w->C), "x"),
                      graph_value(g, VALUE_INPUT, DTYPE_BF16, SHAPE(w->N, P, Q, w->K), "dy")};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NO_OUT, NODE_NO_OUT};
    struct kernel *k;
    struct err err;

    assert_int_equal(graph_node(g, OP_conv2d_grad_w, &attr, in, 2, out, "dw", &err), 0);
    g->value[out[0]].dtype = DTYPE_F32;
    assert_true(conv_pairs_fits(b, g, &g->node[0]));
    assert_int_equal(conv_pairs_make(b, g, &g->node[0], &k, &err), 0);
    run_kernel(&b->base, k, (void *[NODE_MAX_IN]){(void *)x, (void *)dy},
               (void *[NODE_MAX_OUT]){dw});
    graph_free(g);
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
        const struct row *w = &rows[i];
        const int64_t P = extent(w->H, w->R, w->stride[0], w->pad[0]);
        const int64_t Q = extent(w->W, w->S, w->stride[1], w->pad[1]);
        uint16_t *x = bf16_numbers(w->N * w->H * w->W * w->C, 1);
        uint16_t *dy = bf16_numbers(w->N * P * Q * w->K, 2);
        float *dw = xcalloc((size_t)(w->K * w->C * w->R * w->S), sizeof *dw);

        for (int threads = 1; threads <= 3; threads++) {
            backend_set_threads(b, threads);
            run(container_of(b, struct cpu, base), w, x, dy, dw);
            want_sums(w, x, dy, dw);
        }
        free(x);
        free(dy);
        free(dw);
    }
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_rows)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
