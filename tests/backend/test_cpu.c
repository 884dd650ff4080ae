/* Tests of the cpu backend: its memory, the fusions that it offers, its threads, its errors.
 *
 * The kernels that every rank runs for itself must also give the same bits as plain scalar code in
 * the documented order.  This holds for any vectors of the processor and any number of threads. */
#include "../test.h"

#include <math.h>
#include <unistd.h>

#include "backend/cpu/activate.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/plain.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "base/util.h"
#include "kernels.h"
#include "op/control.h"
#include "op/update.h"
#include "tensor/half.h"

struct fixture {
    struct backend *b;
    struct graph *g;
};

static int set_up(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    struct err err;

    assert_int_equal(backend_open_cpu(1, &f->b, &err), 0);
    f->g = graph_new(4, 1);
    *state = f;
    return 0;
}

/* Three threads, however little work there is. */
static int set_up_three(void **state)
{
    struct fixture *f;
    int rc = set_up(state);

    f = *state;
    backend_set_threads(f->b, 3);
    container_of(f->b, struct cpu, base)->least_work = 1;
    return rc;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    graph_free(f->g);
    backend_close(f->b);
    free(f);
    return 0;
}

static void test_memory(void **state)
{
    struct fixture *f = *state;
    const char text[] = "seventeen bytes.";
    char back[sizeof text];
    struct err err;
    void *p;

    assert_int_equal(backend_alloc(f->b, 100, "a test", &p, &err), 0);
    assert_int_equal((uintptr_t)p % 64, 0);
    assert_int_equal(((char *)p)[99], 0);
    assert_int_equal(backend_copy_in(f->b, p, text, sizeof text, &err), 0);
    assert_int_equal(backend_copy_out(f->b, back, p, sizeof text, &err), 0);
    assert_string_equal(back, text);
    assert_int_equal(backend_copy_in(f->b, NULL, NULL, 0, &err), 0);
    assert_int_equal(backend_sync(f->b, &err), 0);
    backend_free(f->b, p);
    backend_free(f->b, NULL);
    alloc_fail_at(1);
    assert_int_equal(backend_alloc(f->b, 100, "a test", &p, &err), ERR_NOMEM);
    alloc_fail_at(0);
    assert_non_null(strstr(err.msg, "a test"));
}

static int is_near(double a, double b)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-6 * fabs(b) + 1e-37;
}

/* The loops that take oneDNN's place, on this processor or on another. */
static void test_own_activations(void **state)
{
    static const float x[] = {-INFINITY, -200, -80, -3, -1e-9f, -0.0f, 0, 1e-9f, 0.5f,
                              3,         90,   200, -1, NAN,    1,     2, NAN,   INFINITY};
    float relu[ARRAY_LEN(x)], leaky[ARRAY_LEN(x)], sigmoid[ARRAY_LEN(x)];

    (void)state;
    activate_f32(ACT_RELU, x, relu, ARRAY_LEN(x));
    activate_f32(ACT_LEAKY_RELU, x, leaky, ARRAY_LEN(x));
    activate_f32(ACT_SIGMOID, x, sigmoid, ARRAY_LEN(x));
    for (size_t i = 0; i < ARRAY_LEN(x); i++) {
        const double v = (double)x[i];

        assert_true(is_near((double)relu[i], v < 0 ? 0 : v));
        assert_true(is_near((double)leaky[i], v < 0 ? 0.01 * v : v));
        assert_true(is_near((double)sigmoid[i], 1 / (1 + exp(-v))));
    }
}

static void test_fusions(void **state)
{
    static const struct {
        enum op op;
        enum fusion fusion;
        enum activation act;
        int want;
    } rows[] = {
        {OP_conv2d, FUSE_BIAS, ACT_NONE, 1},
        {OP_conv2d_grad_w, FUSE_BIAS, ACT_NONE, 1},
        {OP_linear_grad_w, FUSE_BIAS, ACT_NONE, 1},
        {OP_linear_grad_x, FUSE_BIAS, ACT_NONE, 0},
        {OP_linear, FUSE_ACTIVATION, ACT_RELU, 1},
        {OP_conv2d, FUSE_ACTIVATION, ACT_GELU, 1},
        {OP_pool2d, FUSE_ACTIVATION, ACT_RELU, 0},
        {OP_linear_grad_x, FUSE_FLATTEN, ACT_NONE, 1},
        {OP_conv2d, FUSE_FLATTEN, ACT_NONE, 0},
        {OP_pool2d_grad, FUSE_POOL_GRAD_ACT, ACT_RELU, 1},
        {OP_pool2d_grad, FUSE_POOL_GRAD_ACT, ACT_GELU, 0},
        {OP_pool2d_grad, FUSE_POOL_GRAD_ACT, ACT_LEAKY_RELU, 0},
        {OP_linear_grad_x, FUSE_LINEAR_GRAD_ACT, ACT_RELU, 0},
        {OP_activation_grad, FUSE_POOL_GRAD_ACT, ACT_RELU, 0},
        {OP_softmax_xent, FUSE_LOSS_GRAD, ACT_NONE, 1},
        {OP_batch_norm, FUSE_NORM, ACT_NONE, 1},
        {OP_batch_norm_infer, FUSE_NORM, ACT_RELU, 1},
        {OP_batch_norm, FUSE_NORM, ACT_TANH, 0},
        {OP_pointwise_loss, FUSE_LOSS_GRAD, ACT_NONE, 0},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct node n = {.op = rows[i].op, .name = "n"};

        if (backend_can_fuse(f->b, f->g, &n, rows[i].fusion, rows[i].act) != rows[i].want)
            fail_msg("row %zu: %s is not as wanted", i, op_get(rows[i].op)->name);
    }
}

/* If oneDNN refuses a node, the error names the node, and nothing leaks (a sanitizer checks). */
static void test_what_onednn_refuses(void **state)
{
    struct fixture *f = *state;
    const union node_attr attr = {.conv = {.stride = {1, 1}, .dilation = {1, 1}, .groups = 1}};
    const int in[] = {graph_value(f->g, VALUE_INPUT, DTYPE_F32, SHAPE(1, 3, 3, 20), "x"),
                      graph_value(f->g, VALUE_INPUT, DTYPE_F32, SHAPE(1, 20, 1, 1), "w")};
    struct kernel *k = NULL;
    struct err err;

    assert_int_equal(graph_node(f->g, OP_conv2d, &attr, in, 2, NULL, "conv1", &err), 0);
    f->g->value[f->g->node[0].out[0]].shape.dim[3] = 7; /* as a faulty rewrite might leave it */
    assert_true(backend_make_kernel(f->b, f->g, &f->g->node[0], &k, &err) < 0);
    assert_non_null(strstr(err.msg, "conv1 (conv2d) on cpu"));
    assert_null(k);
}

static void run_node(struct fixture *f, const struct node *n, void *const *in, void *const *out)
{
    struct kernel *k;
    struct err err;

    assert_int_equal(backend_make_kernel(f->b, f->g, n, &k, &err), 0);
    run_kernel(f->b, k, in, out);
}

static float *numbers(int64_t n, uint64_t step)
{
    float *x = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);
    struct rng_stream s;

    assert_non_null(x);
    rng_stream_init(&s, 1, RNG_TEST, step);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)rng_next_normal(&s);
    return x;
}

enum { N = 10007 };

/* Blocks have 4,096 elements; in a block, element i goes to lane i % 16.  Lanes are added in order,
 * and then blocks. */
static double scalar_sum_of_squares(const float *x, int64_t n)
{
    double sum = 0;

    for (int64_t from = 0; from < n; from += 4096) {
        volatile double lane[16] = {0};
        double block = 0;

        for (int64_t i = from; i < n && i < from + 4096; i++) {
            volatile double square = (double)x[i] * (double)x[i];

            lane[i % 16] += square;
        }
        for (int i = 0; i < 16; i++)
            block += lane[i];
        sum += block;
    }
    return sum;
}

static void test_grad_check_bits(void **state)
{
    struct fixture *f = *state;
    float *x = numbers(N, 1);
    double check[2], want = scalar_sum_of_squares(x, N);
    const int in = graph_value(f->g, VALUE_INPUT, DTYPE_F32, SHAPE(N), "grad");
    struct err err;

    assert_int_equal(graph_node(f->g, OP_grad_check, NULL, &in, 1, NULL, "check", &err), 0);
    run_node(f, &f->g->node[0], (void *[]){x}, (void *[]){check});
    assert_memory_equal(&check[0], &want, sizeof want);
    assert_true(check[1] == 0);
    free(x);
}

static void scalar_sgd(float *param, const float *grad, float *buf, float clip)
{
    for (int i = 0; i < N; i++) {
        volatile float g = grad[i] * clip, t = 0.01f * param[i];

        g = g + t;
        t = (1.0f - 0.1f) * g;
        buf[i] = 0.9f * buf[i];
        buf[i] = buf[i] + t;
        t = 0.9f * buf[i];
        g = g + t;
        t = 0.05f * g;
        param[i] = param[i] - t;
    }
}

static void test_sgd_bits(void **state)
{
    struct fixture *f = *state;
    float *param = numbers(N, 1), *grad = numbers(N, 2), *buf = numbers(N, 3);
    float *want_param = numbers(N, 1), *want_buf = numbers(N, 3), control[CONTROL_LEN] = {0};
    double check[2] = {49.0, 0};
    struct step_scalars s = {.n_updates = 1, .rate = 0.05f, .clip_norm = 3.5f};
    double segments[SEGMENT_COLUMNS] = {N, 1, (double)0.01f};
    const union node_attr attr = {
        .number = {[SGD_ATTR_MOMENTUM] = 0.9, [SGD_ATTR_DAMPENING] = 0.1, [SGD_ATTR_NESTEROV] = 1}};
    struct graph *g = f->g;
    const int p = graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(N), "param");
    const int in[] = {p,
                      graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(N), "grad"),
                      graph_value(g, VALUE_INPUT, DTYPE_F64, SHAPE(2), "check"),
                      graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(CONTROL_LEN), "control"),
                      g->scalars,
                      graph_value(g, VALUE_INPUT, DTYPE_F64, SHAPE(1, SEGMENT_COLUMNS), "rows"),
                      NO_VALUE,
                      NO_VALUE,
                      NO_VALUE,
                      graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(N), "buf")};
    struct err err;

    assert_int_equal(graph_node(g, OP_sgd, &attr, in, 10, NULL, "sgd", &err), 0);
    run_node(f, &g->node[0],
             (void *[]){param, grad, check, control, &s, segments, NULL, NULL, NULL, buf},
             (void *[]){param, NULL, NULL, buf});
    scalar_sgd(want_param, grad, want_buf, (float)(3.5 / (7.0 + 1e-6)));
    assert_memory_equal(param, want_param, N * sizeof *param);
    assert_memory_equal(buf, want_buf, N * sizeof *buf);
    free(param), free(grad), free(buf), free(want_param), free(want_buf);
}

/* ---- Muon ---- */

enum { ROWS = 37, COLUMNS = 70, MATRIX = ROWS * COLUMNS, ITERATIONS = 2 };

/* c [m,n] = alpha * (a b) + beta * add, each product and sum rounded by itself; b [k,n], or
 * transposed [n,k]. */
static void scalar_product(int m, int n, int k, const float *a, const float *b, int is_transposed,
                           float alpha, float beta, const float *add, float *c)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            volatile float sum = 0, t;

            for (int l = 0; l < k; l++) {
                t = a[i * k + l] * (is_transposed ? b[j * k + l] : b[l * n + j]);
                sum = sum + t;
            }
            t = alpha * sum;
            sum = beta * (add ? add[i * n + j] : 0);
            c[i * n + j] = add ? sum + t : t;
        }
}

/* One step with momentum 0.5, rate 0.25 and ratio 2, whose products with these are exact. */
static void scalar_muon(float *param, const float *grad, float *avg)
{
    static float x[MATRIX], next[MATRIX], s[ROWS * ROWS], t[ROWS * ROWS];
    float norm;

    for (int i = 0; i < MATRIX; i++) {
        volatile float d = grad[i] - avg[i];

        avg[i] = avg[i] + 0.5f * d;
        d = avg[i] - grad[i];
        x[i] = avg[i] - 0.5f * d;
    }
    norm = (float)sqrt(scalar_sum_of_squares(x, MATRIX));
    for (int i = 0; i < MATRIX; i++)
        x[i] = x[i] / norm;
    for (int k = 0; k < ITERATIONS; k++) {
        scalar_product(ROWS, ROWS, COLUMNS, x, x, 1, 1, 0, NULL, s);
        scalar_product(ROWS, ROWS, ROWS, s, s, 0, 2.0315f, -4.775f, s, t);
        scalar_product(ROWS, COLUMNS, ROWS, t, x, 0, 1, 3.4445f, x, next);
        memcpy(x, next, sizeof x);
    }
    for (int i = 0; i < MATRIX; i++)
        param[i] = param[i] - 0.5f * x[i];
}

static void test_muon_bits(void **state)
{
    struct fixture *f = *state;
    float *param = numbers(MATRIX, 1), *grad = numbers(MATRIX, 2), *avg = numbers(MATRIX, 3);
    float *want_param = numbers(MATRIX, 1), *want_avg = numbers(MATRIX, 3);
    float control[CONTROL_LEN] = {0};
    double check[2] = {49.0, 0};
    struct step_scalars s = {.n_updates = 1, .rate = 0.25f};
    double segments[SEGMENT_COLUMNS] = {MATRIX, 1, 0};
    const union node_attr attr = {.number = {[MUON_ATTR_MOMENTUM] = 0.5,
                                             [MUON_ATTR_NESTEROV] = 1,
                                             [MUON_ATTR_ROWS] = ROWS,
                                             [MUON_ATTR_RATIO] = 2,
                                             [MUON_ATTR_STEPS] = ITERATIONS,
                                             [MUON_ATTR_A] = 3.4445,
                                             [MUON_ATTR_B] = -4.775,
                                             [MUON_ATTR_C] = 2.0315}};
    struct graph *g = f->g;
    const int in[] = {graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(MATRIX), "param"),
                      graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(MATRIX), "grad"),
                      graph_value(g, VALUE_INPUT, DTYPE_F64, SHAPE(2), "check"),
                      graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(CONTROL_LEN), "control"),
                      g->scalars,
                      graph_value(g, VALUE_INPUT, DTYPE_F64, SHAPE(1, SEGMENT_COLUMNS), "rows"),
                      NO_VALUE,
                      NO_VALUE,
                      NO_VALUE,
                      graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(MATRIX), "avg")};
    struct err err;

    assert_int_equal(graph_node(g, OP_muon, &attr, in, 10, NULL, "muon", &err), 0);
    run_node(f, &g->node[0],
             (void *[]){param, grad, check, control, &s, segments, NULL, NULL, NULL, avg},
             (void *[]){param, NULL, NULL, avg});
    scalar_muon(want_param, grad, want_avg);
    assert_memory_equal(avg, want_avg, MATRIX * sizeof *avg);
    assert_memory_equal(param, want_param, MATRIX * sizeof *param);
    free(param), free(grad), free(avg), free(want_param), free(want_avg);
}

/* ---- threads ---- */

int omp_get_num_threads(void);

static int n_seen[3]; /* the number of threads that each part saw */

static void see_threads(const struct plain *p, int part, int64_t from, int64_t to)
{
    (void)p;
    assert_int_equal(to - from, 1);
    n_seen[part] = omp_get_num_threads();
}

static void run_seeing(const struct plain *p) { plain_split(p, 3, 3, see_threads); }

/* A kernel that was made for three threads runs on fewer: an optimizer's kernel lives on when the
 * number of ranks on its host, and so of its threads, changes. */
static void test_fewer_threads_than_made_for(void **state)
{
    struct fixture *f = *state;
    const int in = graph_value(f->g, VALUE_INPUT, DTYPE_F32, SHAPE(3), "x");
    struct kernel *k;
    struct err err;

    assert_int_equal(graph_node(f->g, OP_grad_check, NULL, &in, 1, NULL, "n", &err), 0);
    assert_int_equal(plain_new_split(container_of(f->b, struct cpu, base), f->g, &f->g->node[0],
                                     run_seeing, 0, 0, &k, &err),
                     0);
    for (int threads = 3; threads >= 1; threads--) {
        backend_set_threads(f->b, threads);
        assert_int_equal(k->ops->run(k, &err), 0);
        for (int part = 0; part < 3; part++)
            assert_in_range(n_seen[part], 1, threads);
    }
    k->ops->free(k);
}

/* Rounding gives the bits of tensor/half.h: of ties, infinities and NaNs, in vectors and in what is
 * left behind them. */
static void test_rounding(void **state)
{
    static const uint32_t special[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff, 0x7f800000,
                                       0xff800000, 0x7f800001, 0xffffffff, 0x00000001, 0x80000000};
    uint32_t bits[67];
    float x[ARRAY_LEN(bits)];
    uint16_t y[ARRAY_LEN(bits) + 1];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bits); i++)
        bits[i] = i % 3 ? special[i % ARRAY_LEN(special)] : (uint32_t)i * 0x9e3779b9;
    memcpy(x, bits, sizeof x);
    for (size_t n = 0; n <= ARRAY_LEN(x); n++) {
        y[n] = 0x1234;
        convert_from_f32(y, x, DTYPE_BF16, (int64_t)n);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(y[i], bf16_from_float(x[i]));
        assert_int_equal(y[n], 0x1234);
    }
}

/* A sanitizer takes memory of its own for what is read. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
enum { HAS_SHADOWS = 1 };
#else
enum { HAS_SHADOWS = 0 };
#endif

/* The memory that this process takes, in bytes. */
static int64_t taken_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long long n_pages = 0;

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d %lld", &n_pages), 1);
    fclose(f);
    return n_pages * sysconf(_SC_PAGESIZE);
}

/* Gradients and moments of a large network begin as zeros: a second of a start, were they written.
 */
static void what_is_zero_is_not_written_to(void **state)
{
    const size_t n_bytes = (64 << 20) + 100;
    const int64_t before = taken_bytes();
    struct fixture *f = *state;
    struct err err;
    void *block;
    char *p;

    assert_int_equal(backend_alloc(f->b, n_bytes, "a test", &block, &err), 0);
    p = block;
    assert_int_equal(backend_zero_start(f->b, p, n_bytes, &err), 0);
    assert_true(HAS_SHADOWS || taken_bytes() - before < 32 << 20);
    p[0] = p[n_bytes - 2] = p[n_bytes - 1] = 1;
    for (size_t at = 1; at < n_bytes; at *= 3) /* in the middle of a piece, too */
        p[at] = 1;
    assert_int_equal(backend_zero_start(f->b, p, n_bytes - 1, &err), 0);
    for (size_t i = 0; i < n_bytes - 1; i++)
        if (p[i])
            fail_msg("byte %zu is %d", i, p[i]);
    assert_int_equal(p[n_bytes - 1], 1); /* the one behind is left alone */
    assert_int_equal(backend_zero_start(f->b, p, 0, &err), 0);
    backend_free(f->b, block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_memory, set_up, tear_down),
        cmocka_unit_test(test_own_activations),
        cmocka_unit_test_setup_teardown(test_fusions, set_up, tear_down),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test_setup_teardown(test_what_onednn_refuses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_grad_check_bits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_grad_check_bits, set_up_three, tear_down),
        cmocka_unit_test_setup_teardown(what_is_zero_is_not_written_to, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sgd_bits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sgd_bits, set_up_three, tear_down),
        cmocka_unit_test_setup_teardown(test_muon_bits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_muon_bits, set_up_three, tear_down),
        cmocka_unit_test_setup_teardown(test_fewer_threads_than_made_for, set_up_three, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
