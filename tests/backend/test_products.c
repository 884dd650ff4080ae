/* Tests of kernels whose product of matrices fails: oneDNN's product allocates memory in each call,
 * so it may fail in the midst of training.  This file has a dnnl_sgemm of its own, which the
 * backend calls instead of oneDNN's. */
#include "../test.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdatomic.h>

#include "backend/cpu/cpu.h"
#include "base/util.h"

enum { ROWS = 6, COLUMNS = 4 };

static atomic_int n_calls, failing_call; /* calls count from 1; 0: none fails */

dnnl_status_t dnnl_sgemm(char ta, char tb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha,
                         const float *a, dnnl_dim_t a_row, const float *b, dnnl_dim_t b_row,
                         float beta, float *c, dnnl_dim_t c_row)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)a_row, (void)b;
    (void)b_row, (void)beta, (void)c, (void)c_row;
    return atomic_fetch_add(&n_calls, 1) + 1 == failing_call ? dnnl_out_of_memory : dnnl_success;
}

/* Run node n on operands of zeros; returns what the kernel's run returned. */
static int run(struct backend *b, const struct graph *g, const struct node *n, struct err *err)
{
    static float zeros[ROWS * ROWS * COLUMNS], result[ROWS * ROWS * COLUMNS];
    void *in[NODE_MAX_IN] = {zeros, zeros}, *out[NODE_MAX_OUT] = {result}, *scratch;
    struct kernel *k;
    int rc;

    assert_int_equal(backend_make_kernel(b, g, n, &k, err), 0);
    assert_int_equal(backend_alloc(b, k->scratch_bytes + 1, "scratch", &scratch, err), 0);
    assert_int_equal(k->ops->bind(k, in, out, scratch, err), 0);
    rc = k->ops->run(k, err);
    k->ops->free(k);
    backend_free(b, scratch);
    return rc;
}

static void assert_fails_at(struct backend *b, const struct graph *g, int call, int n_wanted)
{
    struct err err;

    n_calls = 0;
    failing_call = call;
    assert_int_equal(run(b, g, &g->node[0], &err), call ? ERR_NOMEM : 0);
    assert_int_equal(n_calls, n_wanted);
    if (call)
        assert_non_null(strstr(err.msg, "product of matrices: out of memory"));
}

/* Any product of many, each on some thread. */
static void test_matmul(void **state)
{
    struct graph *g = graph_new(ROWS, 1);
    const int in[] = {graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(ROWS, ROWS, COLUMNS), "a"),
                      graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(ROWS, COLUMNS, ROWS), "b")};
    struct backend *b;
    struct err err;

    (void)state;
    assert_int_equal(backend_open_cpu(3, &b, &err), 0);
    container_of(b, struct cpu, base)->least_work = 1;
    assert_int_equal(graph_node(g, OP_matmul, NULL, in, 2, NULL, "product", &err), 0);
    for (int call = 0; call <= ROWS; call++)
        assert_fails_at(b, g, call, ROWS);
    graph_free(g);
    backend_close(b);
}

/* The gradient of a weight that is added up in its place. */
static void test_linear_grad_w(void **state)
{
    struct graph *g = graph_new(ROWS, 1);
    const int in[] = {graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(ROWS, COLUMNS), "x"),
                      graph_value(g, VALUE_INPUT, DTYPE_F32, SHAPE(ROWS, COLUMNS), "dy")};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NO_OUT, NODE_NO_OUT};
    struct backend *b;
    struct err err;

    (void)state;
    assert_int_equal(backend_open_cpu(1, &b, &err), 0);
    assert_int_equal(graph_node(g, OP_linear_grad_w, NULL, in, 2, out, "dw", &err), 0);
    g->node[0].adds = 1;
    for (int call = 0; call <= 1; call++)
        assert_fails_at(b, g, call, 1);
    graph_free(g);
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_linear_grad_w),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
