/* amx_grad_w - the gradients of BF16 filters and weights beside the plain sum in double: strides,
 * padding, samples that do not fill a block, chunks of rows, of samples and of filters, the last
 * panel of channels, biases, what is added to, transposed weights, and several threads, whose bits
 * are those of one.  Where the processor has no AMX, its plain twin computes the sums. */
#include "../test.h"

#include "backend/cpu/amx.h"
#include "backend/cpu/amx_grad_w.h"
#include "filter_grad.h"

static const struct filter_row filters[] = {
    {32, 5, 4, 32, 32, 3, 3, {1, 1}, {1, 1}},   /* one chunk */
    {61, 3, 5, 48, 48, 3, 3, {1, 1}, {0, 2}},   /* samples and channels that fill no block */
    {28, 7, 9, 32, 16, 5, 3, {2, 1}, {2, 1}},   /* each dimension for itself */
    {50, 8, 8, 32, 16, 1, 1, {2, 2}, {0, 0}},   /* a shortcut, of two blocks of samples */
    {25, 2, 1, 32, 16, 3, 3, {1, 1}, {1, 1}},   /* taps that meet no pixel */
    {5, 5, 5, 32, 48, 1, 1, {1, 1}, {0, 0}},    /* one tap: pixels are samples */
    {24, 2, 32, 32, 512, 1, 1, {1, 1}, {0, 1}}, /* chunks of a row */
    {24, 5, 11, 32, 512, 3, 1, {2, 1}, {1, 0}}, /* chunks of two rows and of one */
    {24, 2, 2, 32, 528, 2, 2, {1, 1}, {1, 0}},  /* filters of two chunks */
};

static int make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                struct err *err)
{
    assert_true(amx_grad_w_can(g, n));
    assert_int_equal(amx_grad_w_fits(b, g, n), amx_available());
    return amx_grad_w_make(b, g, n, out, err);
}

static struct cpu *open_cpu(struct backend **b)
{
    struct cpu *cpu;
    struct err err;

    assert_int_equal(backend_open_cpu(1, b, &err), 0);
    cpu = container_of(*b, struct cpu, base);
    cpu->least_work = 1;
    cpu->widens_bf16 = 0;
    return cpu;
}

/* Each gradient may be added to what is there, while the other one is written. */
static void check_adds(struct cpu *cpu, struct filter_case *c, const struct filter_case *one)
{
    const struct filter_row *w = c->row;
    const int64_t n = w->K * w->C * w->R * w->S;

    for (c->adds = 1; c->adds < 4; c->adds++) {
        for (int64_t i = 0; i < n; i++)
            c->dw[i] = 1;
        for (int64_t k = 0; k < w->K; k++)
            c->db[k] = 1;
        run_filter(cpu, c, make);
        for (int64_t i = 0; i < n; i++)
            if (fabsf(c->dw[i] - one->dw[i] - (float)(c->adds & 1)) > 1e-3f)
                fail_msg("adds %u: dw[%d] is %g beside %g", c->adds, (int)i, (double)c->dw[i],
                         (double)one->dw[i]);
        for (int64_t k = 0; k < w->K; k++)
            if (fabsf(c->db[k] - one->db[k] - (float)(c->adds >> 1)) > 1e-3f)
                fail_msg("adds %u: db[%d] is %g beside %g", c->adds, (int)k, (double)c->db[k],
                         (double)one->db[k]);
    }
}

static void test_filters(void **state)
{
    struct backend *b;
    struct cpu *cpu = open_cpu(&b);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(filters); i++) {
        const struct filter_row *w = &filters[i];
        struct filter_case c = filter_case_of(w, 1), one = filter_case_of(w, 1);
        const size_t bytes = (size_t)(w->K * w->C * w->R * w->S) * sizeof(float);

        run_filter(cpu, &one, make);
        want_filter(&one, (int)i);
        for (int threads = 3; threads <= 5; threads += 2) {
            backend_set_threads(b, threads);
            run_filter(cpu, &c, make);
            assert_memory_equal(c.dw, one.dw, bytes);
            assert_memory_equal(c.db, one.db, (size_t)w->K * sizeof(float));
        }
        check_adds(cpu, &c, &one);
        backend_set_threads(b, 1);
        filter_case_free(&c);
        filter_case_free(&one);
    }
    backend_close(b);
}

/* ---- which nodes ---- */

struct node_row {
    const char *what;
    int64_t N, C, K;
    int dilation, groups;
    enum dtype x, dw, db;
    int can;
};

static const struct node_row nodes[] = {
    {"as it should be", 32, 32, 32, 1, 1, DTYPE_BF16, DTYPE_F32, DTYPE_F32, 1},
    {"too few samples", 23, 32, 32, 1, 1, DTYPE_BF16, DTYPE_F32, DTYPE_F32, 0},
    {"few channels", 32, 16, 32, 1, 1, DTYPE_BF16, DTYPE_F32, DTYPE_F32, 0},
    {"half a tile of channels", 32, 40, 32, 1, 1, DTYPE_BF16, DTYPE_F32, DTYPE_F32, 0},
    {"half a tile of filters", 32, 32, 24, 1, 1, DTYPE_BF16, DTYPE_F32, DTYPE_F32, 0},
    {"dilation", 32, 32, 32, 2, 1, DTYPE_BF16, DTYPE_F32, DTYPE_F32, 0},
    {"groups", 32, 64, 32, 1, 2, DTYPE_BF16, DTYPE_F32, DTYPE_F32, 0},
    {"float32", 32, 32, 32, 1, 1, DTYPE_F32, DTYPE_F32, DTYPE_F32, 0},
    {"dw in bfloat16", 32, 32, 32, 1, 1, DTYPE_BF16, DTYPE_BF16, DTYPE_F32, 0},
    {"db in bfloat16", 32, 32, 32, 1, 1, DTYPE_BF16, DTYPE_F32, DTYPE_BF16, 0},
};

static void test_nodes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        const struct node_row *r = &nodes[i];
        const union node_attr attr = {.conv = {.stride = {1, 1},
                                               .pad = {r->dilation, r->dilation},
                                               .dilation = {r->dilation, r->dilation},
                                               .groups = r->groups,
                                               .in_image = {6, 6},
                                               .kernel = {3, 3}}};
        struct graph *g = graph_new(r->N, 1);
        const int in[] = {graph_value(g, VALUE_INPUT, r->x, SHAPE(r->N, 6, 6, r->C), "x"),
                          graph_value(g, VALUE_INPUT, r->x, SHAPE(r->N, 6, 6, r->K), "dy")};
        int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NEW_OUT, NODE_NO_OUT};
        struct err err;

        assert_int_equal(graph_node(g, OP_conv2d_grad_w, &attr, in, 2, out, "dw", &err), 0);
        g->value[out[0]].dtype = r->dw;
        g->value[out[1]].dtype = r->db;
        if (amx_grad_w_can(g, &g->node[0]) != r->can)
            fail_msg("%s: want %d", r->what, r->can);
        graph_free(g);
    }
}

/* ---- linear layers ---- */

struct layer {
    int64_t rows, in, out;
    int transposed;
};

static const struct layer layers[] = {
    {75, 32, 48, 0},    {75, 32, 48, 1},    {1300, 32, 32, 1}, /* several blocks of samples */
    {1100, 32, 544, 0}, {1100, 544, 32, 1},                    /* filters of two chunks */
};

static void run_layer(struct cpu *b, const struct layer *l, uint16_t *x, uint16_t *dy, float *dw,
                      float *db, unsigned adds)
{
    const union node_attr attr = {.linear = {.transposed = l->transposed}};
    struct graph *g = graph_new(l->rows, 1);
    const int in[] = {graph_value(g, VALUE_INPUT, DTYPE_BF16, SHAPE(l->rows, l->in), "x"),
                      graph_value(g, VALUE_INPUT, DTYPE_BF16, SHAPE(l->rows, l->out), "dy")};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NEW_OUT, NODE_NO_OUT};
    struct kernel *k;
    struct err err;

    assert_int_equal(graph_node(g, OP_linear_grad_w, &attr, in, 2, out, "dw", &err), 0);
    g->value[out[0]].dtype = g->value[out[1]].dtype = DTYPE_F32;
    g->node[0].adds = adds;
    assert_int_equal(make(b, g, &g->node[0], &k, &err), 0);
    run_kernel(&b->base, k, (void *[NODE_MAX_IN]){x, dy}, (void *[NODE_MAX_OUT]){dw, db});
    graph_free(g);
}

static void want_near(const char *what, int64_t i, float got, double want, double size)
{
    if (!(fabs((double)got - want) <= 1e-5 * size))
        fail_msg("%s[%d]: %.9g, want %.9g", what, (int)i, (double)got, want);
}

static void want_layer(const struct layer *l, const uint16_t *x, const uint16_t *dy,
                       const float *dw, const float *db, int times)
{
    for (int64_t o = 0; o < l->out; o++) {
        double sum = 0, size = 0;

        for (int64_t r = 0; r < l->rows; r++) {
            sum += (double)bf16_to_float(dy[r * l->out + o]);
            size += fabs((double)bf16_to_float(dy[r * l->out + o]));
        }
        want_near("db", o, db[o], times * sum, size);
        for (int64_t i = 0; i < l->in; i++) {
            const int64_t at = l->transposed ? i * l->out + o : o * l->in + i;

            sum = size = 0;
            for (int64_t r = 0; r < l->rows; r++) {
                const double term = (double)bf16_to_float(dy[r * l->out + o]) *
                                    (double)bf16_to_float(x[r * l->in + i]);

                sum += term;
                size += fabs(term);
            }
            want_near("dw", at, dw[at], times * sum, size);
        }
    }
}

static void test_layers(void **state)
{
    struct backend *b;
    struct cpu *cpu = open_cpu(&b);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(layers); i++) {
        const struct layer *l = &layers[i];
        uint16_t *x = bf16_numbers(l->rows * l->in, 1), *dy = bf16_numbers(l->rows * l->out, 2);
        float *dw = xcalloc((size_t)(l->in * l->out), sizeof *dw);
        float *db = xcalloc((size_t)l->out, sizeof *db);
        float *again = xcalloc((size_t)(l->in * l->out), sizeof *again);

        backend_set_threads(b, 1);
        run_layer(cpu, l, x, dy, again, db, 0);
        backend_set_threads(b, 3);
        run_layer(cpu, l, x, dy, dw, db, 0);
        assert_memory_equal(dw, again, (size_t)(l->in * l->out) * sizeof *dw);
        free(again);
        want_layer(l, x, dy, dw, db, 1);
        run_layer(cpu, l, x, dy, dw, db, 1u << LINEAR_GRAD_W_DW | 1u << LINEAR_GRAD_W_DB);
        want_layer(l, x, dy, dw, db, 2);
        free(x);
        free(dy);
        free(dw);
        free(db);
    }
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_filters), cmocka_unit_test(test_nodes),
                                       cmocka_unit_test(test_layers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
