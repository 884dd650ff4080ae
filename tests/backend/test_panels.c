/* Tests of panels: the same numbers in the same places as oneDNN's own reorder puts them, and which
 * reorders are left to oneDNN. */
#include "../test.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/panels.h"
#include "base/util.h"
#include "kernels.h"

static struct dn_layout layout_of(int64_t rows, int64_t columns, int by_columns)
{
    struct dn_layout l = dn_row_major(2, (int64_t[]){rows, columns});

    if (by_columns) {
        l.stride[0] = 1;
        l.stride[1] = rows;
    }
    return l;
}

static void reorder_by_onednn(struct onednn *dn, const struct dn_md *from, const struct dn_md *to,
                              float *x, float *y)
{
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t reorder;
    dnnl_memory_t in, out, pad;
    struct dn_md scratch;
    struct err err;
    void *pad_bytes = NULL;

    assert_int_equal(dn_reorder(dn, from, to, 0, &pd, &err), 0);
    assert_int_equal(dnnl_primitive_create(&reorder, pd), dnnl_success);
    assert_int_equal(dn_memory_new(dn, from, &in, &err), 0);
    assert_int_equal(dn_memory_new(dn, to, &out, &err), 0);
    dnnl_memory_set_data_handle(in, x);
    dnnl_memory_set_data_handle(out, y);
    if (dn_md_of_arg(dn, pd, DNNL_ARG_SCRATCHPAD, &scratch, &err) > 0) {
        pad_bytes = calloc(1, dn_md_bytes(&scratch) + 1);
        assert_int_equal(dn_memory_new(dn, &scratch, &pad, &err), 0);
        dnnl_memory_set_data_handle(pad, pad_bytes);
    }
    assert_int_equal(
        dnnl_primitive_execute(reorder, dn->stream, pad_bytes ? 3 : 2,
                               (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, in},
                                                   {DNNL_ARG_TO, out},
                                                   {DNNL_ARG_SCRATCHPAD, pad_bytes ? pad : NULL}}),
        dnnl_success);
    if (pad_bytes)
        dnnl_memory_destroy(pad);
    free(pad_bytes);
    dnnl_memory_destroy(in);
    dnnl_memory_destroy(out);
    dnnl_primitive_destroy(reorder);
    dnnl_primitive_desc_destroy(pd);
}

static void assert_same_places(struct onednn *dn, const struct dn_layout *l, int width,
                               dnnl_format_tag_t tag, int n_threads)
{
    const int64_t n = l->dim[0] * l->dim[1];
    float *x = calloc((size_t)n, sizeof *x), *wanted = calloc((size_t)n, sizeof *x),
          *y = calloc((size_t)n + 1, sizeof *y);
    struct dn_md from, to;
    struct panels p;
    struct err err;

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)i;
    y[n] = -1;
    assert_int_equal(dn_md_init(dn, &from, l, DTYPE_F32, &err), 0);
    assert_int_equal(dn_md_tag(dn, &to, l, DTYPE_F32, tag, &err), 0);
    assert_int_equal(panels_find(dn, l, &to, &p, &err), 0);
    assert_int_equal(p.width, width);
    reorder_by_onednn(dn, &from, &to, x, wanted);
    panels_fill(&p, x, y, n_threads, 1);
    assert_memory_equal(y, wanted, (size_t)n * sizeof *y);
    assert_true(y[n] == -1);
    free(x);
    free(wanted);
    free(y);
}

static struct onednn *open_backend(struct backend **b)
{
    struct err err;

    if (!dn_has_avx512())
        skip();
    assert_int_equal(backend_open_cpu(3, b, &err), 0);
    return container_of(*b, struct cpu, base)->dn;
}

static void test_places(void **state)
{
    static const struct {
        int width;
        dnnl_format_tag_t tag;
        int64_t rows, columns;
    } row[] = {
        {64, dnnl_AB16b64a, 64, 16},   {64, dnnl_AB16b64a, 192, 80}, {64, dnnl_AB16b64a, 128, 512},
        {32, dnnl_AB16b32a, 32, 48},   {32, dnnl_AB16b32a, 96, 32},  {16, dnnl_AB16b16a, 16, 16},
        {16, dnnl_AB16b16a, 112, 112},
    };
    struct backend *b;
    struct onednn *dn = open_backend(&b);

    (void)state;
    for (int i = 0; i < (int)ARRAY_LEN(row); i++)
        for (int by_columns = 0; by_columns < 2; by_columns++)
            for (int n_threads = 1; n_threads <= 3; n_threads++) {
                const struct dn_layout l = layout_of(row[i].rows, row[i].columns, by_columns);

                assert_same_places(dn, &l, row[i].width, row[i].tag, n_threads);
            }
    dn_release(dn);
    backend_close(b);
}

/* Layouts that are padded, that are no panels, or whose matrix has gaps in both directions. */
static void test_left_to_onednn(void **state)
{
    struct dn_layout gaps = layout_of(64, 16, 0);
    const struct dn_layout narrow = layout_of(65, 16, 0), thin = layout_of(64, 17, 0),
                           plain = layout_of(64, 16, 0);
    const struct {
        const struct dn_layout *from;
        dnnl_format_tag_t tag;
    } row[] = {{&narrow, dnnl_AB16b64a}, {&thin, dnnl_AB16b64a}, {&plain, dnnl_ab},
               {&plain, dnnl_ba},        {&gaps, dnnl_AB16b64a}, {&plain, dnnl_AB8b64a2b}};
    struct backend *b;
    struct onednn *dn = open_backend(&b);
    struct err err;

    (void)state;
    gaps.stride[0] = 32;
    gaps.stride[1] = 2;
    for (int i = 0; i < (int)ARRAY_LEN(row); i++) {
        struct dn_md to;
        struct panels p = {.width = 1};

        assert_int_equal(dn_md_tag(dn, &to, row[i].from, DTYPE_F32, row[i].tag, &err), 0);
        assert_int_equal(panels_find(dn, row[i].from, &to, &p, &err), 0);
        assert_int_equal(p.width, 0);
    }
    dn_release(dn);
    backend_close(b);
}

enum { BATCH = 128, IN = 48, OUT = 64 };

/* A small whole number, so that sums are exact. */
static float number_at(int64_t i) { return (float)(i * 7 % 13 - 6); }

/* Run node 0 of g on x and w; y has n elements. */
static void run_node(struct backend *b, const struct graph *g, void *x, void *w, float *y, size_t n)
{
    void *in[NODE_MAX_IN] = {x, w}, *out[NODE_MAX_OUT] = {NULL}, *at;
    struct kernel *k;
    struct err err;

    assert_int_equal(backend_make_kernel(b, g, &g->node[0], &k, &err), 0);
    assert_int_equal(backend_alloc(b, n * sizeof *y, "result", &at, &err), 0);
    out[0] = at;
    run_kernel(b, k, in, out);
    memcpy(y, at, n * sizeof *y);
    backend_free(b, at);
}

/* y [BATCH,OUT] = x w^T; w is [OUT,IN], or [IN,OUT] if it is transposed. */
static void assert_layer(struct backend *b, int transposed)
{
    static float x[BATCH * IN], w[OUT * IN], y[BATCH * OUT];
    struct graph *g = graph_new(BATCH, 1);
    const struct shape shape = transposed ? SHAPE(IN, OUT) : SHAPE(OUT, IN);
    const int in[] = {graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(BATCH, IN), "x"),
                      graph_value(g, VALUE_INPUT, DTYPE_F32, shape, "w")};
    const union node_attr attr = {.linear.transposed = transposed};
    struct err err;

    for (int i = 0; i < BATCH * IN; i++)
        x[i] = number_at(i);
    for (int i = 0; i < OUT * IN; i++)
        w[i] = number_at(i * 3 + 1);
    assert_int_equal(graph_node(g, OP_linear, &attr, in, 2, NULL, "y", &err), 0);
    run_node(b, g, x, w, y, BATCH * OUT);
    for (int r = 0; r < BATCH; r++)
        for (int o = 0; o < OUT; o++) {
            float sum = 0;

            for (int i = 0; i < IN; i++)
                sum += x[r * IN + i] * (transposed ? w[i * OUT + o] : w[o * IN + i]);
            assert_true(y[r * OUT + o] == sum);
        }
    graph_free(g);
}

/* A layer whose weight has the extents that panels take. */
static void test_linear(void **state)
{
    struct backend *b;
    struct err err;

    (void)state;
    assert_int_equal(backend_open_cpu(3, &b, &err), 0);
    container_of(b, struct cpu, base)->least_work = 1;
    assert_layer(b, 0);
    assert_layer(b, 1);
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_left_to_onednn),
        cmocka_unit_test(test_linear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
