/* conv2d and linear of backend/cuda on every case of the operator table, over stand-ins for
 * cuDNN and cuBLASLt that compute exactly what they are described, and the simulator for our own
 * passes.  So layouts, operands, transpositions, scratch and fallbacks are right, or fail here; the
 * libraries' own arithmetic is not tested. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "../cudasim/sim.h"
#include "backend/cuda/cuda.h"
#include "base/util.h"
#include "fakes.h"
#include "runner.h"

static int is_here(int op)
{
    static const int ops[] = {OP_conv2d, OP_conv2d_grad_x, OP_conv2d_grad_w,
                              OP_linear, OP_linear_grad_x, OP_linear_grad_w};

    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (op == ops[i])
            return 1;
    return 0;
}

static struct backend *open_sim(void)
{
    struct backend *b;
    struct err err;

    assert_int_equal(cuda_open(0, &b, &err), 0);
    return b;
}

static void close_sim(struct backend *b)
{
    backend_close(b);
    assert_int_equal(sim_open_things(), 0);
    assert_int_equal(fakes_open_things(), 0);
}

static void run_cases(int refuse_tails, struct case_types types)
{
    const struct op_runner r = {.b = open_sim(),
                                .n_turns = types.type == DTYPE_F32 ? 0 : 2,
                                .before_run = sim_set_seed,
                                .has = is_here,
                                .types = types,
                                .rounds_twice = 1};

    fakes_refuse_tails(refuse_tails);
    assert_true(op_runner_cases(&r, 0) >= 40);
    close_sim(r.b);
}

static void tails_in_the_library(void **state)
{
    (void)state;
    run_cases(0, (struct case_types){DTYPE_F32, DTYPE_F32});
}

static void tails_in_passes(void **state)
{
    (void)state;
    run_cases(1, (struct case_types){DTYPE_F32, DTYPE_F32});
}

/* Activations and weights in half precision, gradients of weights in it or in float32. */
static void half_precision(void **state)
{
    static const struct case_types types[] = {
        {DTYPE_BF16, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16}, {DTYPE_F16, DTYPE_F32}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        for (int how = 0; how <= FAKE_NO_ENGINES; how += FAKE_NO_ENGINES)
            run_cases(how, types[i]);
}

static void out_of_memory(void **state)
{
    const struct op_runner r = {.b = open_sim(), .has = is_here};

    (void)state;
    fakes_refuse_tails(0);
    op_runner_out_of_memory(&r);
    close_sim(r.b);
}

/* x [2,5,5,3] -> conv with bias and relu -> a product with bias, flatten fused: both kernels made,
 * bound and run once.  0, or the first failure's code. */
static int use_both(struct backend *b, struct err *err)
{
    static const struct shape shapes[] = {
        {4, {2, 5, 5, 3}}, {4, {4, 3, 3, 3}}, {1, {4}}, {2, {6, 36}}, {1, {6}}};
    struct graph *g = graph_new(2, 0);
    union node_attr conv = {.conv = {{1, 1}, {0, 0}, {1, 1}, 1, ACT_RELU}};
    union node_attr lin = {.linear = {ACT_NONE, {3, 3, 4}}};
    void *mem[7] = {NULL}, *scratch[2] = {NULL};
    struct kernel *k[2] = {NULL};
    int v[5], y[2][NODE_MAX_OUT] = {{NODE_NEW_OUT}, {NODE_NEW_OUT}}, rc = 0;

    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        v[i] = graph_value(g, VALUE_INPUT, DTYPE_F32, shapes[i], "v");
    assert_int_equal(graph_node(g, OP_conv2d, &conv, v, 3, y[0], "conv", err), 0);
    assert_int_equal(
        graph_node(g, OP_linear, &lin, (int[]){y[0][0], v[3], v[4]}, 3, y[1], "fc", err), 0);
    for (int i = 0; i < 7 && rc == 0; i++)
        rc = backend_alloc(b, 4096, "a test", &mem[i], err);
    for (int i = 0; i < 2 && rc == 0; i++) {
        void *const in[2][3] = {{mem[0], mem[1], mem[2]}, {mem[5], mem[3], mem[4]}};

        rc = backend_make_kernel(b, g, &g->node[i], &k[i], err);
        if (rc == 0)
            rc = backend_alloc(b, k[i]->scratch_bytes, "a test", &scratch[i], err);
        if (rc == 0)
            rc = k[i]->ops->bind(k[i], in[i], &mem[5 + i], scratch[i], err);
        if (rc == 0)
            rc = k[i]->ops->run(k[i], err);
    }
    if (backend_sync(b, &(struct err){0}) < 0)
        rc = -1;
    for (int i = 0; i < 2; i++) {
        if (k[i])
            k[i]->ops->free(k[i]);
        backend_free(b, scratch[i]);
    }
    for (int i = 0; i < 7; i++)
        backend_free(b, mem[i]);
    graph_free(g);
    return rc;
}

/* The n-th call of either library fails, n swept: mostly another way is found (another engine, no
 * tail in the library), else an error that names the library; never a leak. */
static void every_call_fails(void **state)
{
    int n_errors = 0, n, left = 0;

    (void)state;
    fakes_refuse_tails(0);
    for (n = 1; left == 0; n++) { /* until a sweep ends before its failure */
        struct backend *b = open_sim();
        struct err err = {0};

        fakes_fail_at(n);
        if (use_both(b, &err) < 0) {
            n_errors++;
            assert_true(err.code == ERR_DEVICE || err.code == ERR_UNSUPPORTED);
            assert_non_null(strstr(err.msg, "cu"));
        }
        left = fakes_fail_at(0);
        close_sim(b);
    }
    printf("%d calls failed, %d of them ended in an error\n", n - 2, n_errors);
    assert_true(n > 100 && n_errors > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tails_in_the_library), cmocka_unit_test(tails_in_passes),
        cmocka_unit_test(half_precision),       cmocka_unit_test(out_of_memory),
        cmocka_unit_test(every_call_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
