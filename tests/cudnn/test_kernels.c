/* conv2d, linear and attention of backend/cuda on every case of the operator table.  Stand-ins for
 * cuDNN and cuBLASLt compute exactly what their descriptors say, and the simulator runs our own
 * passes.  A wrong layout, operand, transposition, scratch size or fallback fails here; the
 * libraries' own arithmetic is not tested. */
#include "../test.h"

#include "../cudasim/sim.h"
#include "backend/cuda/cuda.h"
#include "fakes.h"
#include "layers.h"
#include "runner.h"

static int is_here(int op)
{
    static const int ops[] = {OP_conv2d,    OP_conv2d_grad_x, OP_conv2d_grad_w,
                              OP_linear,    OP_linear_grad_x, OP_linear_grad_w,
                              OP_attention, OP_attention_grad};

    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (op == ops[i])
            return 1;
    return 0;
}

static void run_cases(int refuse_tails, struct case_types types)
{
    const struct op_runner r = {.b = layers_open(NULL),
                                .n_turns = types.type == DTYPE_F32 ? 0 : 2,
                                .before_run = sim_set_seed,
                                .has = is_here,
                                .types = types,
                                .rounds_twice = 1};

    fakes_refuse_tails(refuse_tails);
    assert_true(op_runner_cases(&r, 0) >= 40);
    layers_close(r.b);
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

/* Activations and weights in half precision, gradients of weights in half precision or float32. */
static void half_precision(void **state)
{
    static const struct case_types types[] = {
        {DTYPE_BF16, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16}, {DTYPE_F16, DTYPE_F32}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        for (int how = 0; how <= FAKE_NO_ENGINES; how += FAKE_NO_ENGINES)
            run_cases(how, types[i]);
}

static int is_attention(int op) { return op == OP_attention || op == OP_attention_grad; }

/* cuDNN computes attention in half precision without dropout; where the gradient's workspace is too
 * large for all five samples, it takes two at a time and one more. */
static void attention_in_pieces(void **state)
{
    static const char *const only[] = {"attention_samples", NULL};
    int n_runs[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct plugin_choices small = {.max_workspace = i ? 2500 : 10000};
        const struct op_runner r = {.b = layers_open(&small),
                                    .n_turns = 1,
                                    .before_run = sim_set_seed,
                                    .has = is_attention,
                                    .types = {DTYPE_BF16, DTYPE_F32},
                                    .only = only,
                                    .rounds_twice = 1};

        fakes_refuse_tails(0);
        fakes_forget_runs();
        assert_int_equal(op_runner_cases(&r, 0), 2);
        n_runs[i] = fakes_runs(0);
        layers_close(r.b);
    }
    /* The runner runs the forward node twice, and the gradient's three times, once of them adding;
     * a gradient in three pieces is three runs. */
    assert_int_equal(n_runs[0], 2 + 3);
    assert_int_equal(n_runs[1], 2 + 3 * 3);
}

static void out_of_memory(void **state)
{
    const struct op_runner r = {.b = layers_open(NULL), .has = is_here};

    (void)state;
    fakes_refuse_tails(0);
    op_runner_out_of_memory(&r);
    layers_close(r.b);
}

/* The n-th call of either library fails, for every n: mostly the backend finds another way (another
 * engine, no tail in the library), else it gives an error that names the library; never a leak. */
static void every_call_fails(void **state)
{
    int n_errors = 0, n, left = 0;

    (void)state;
    fakes_refuse_tails(0);
    for (n = 1; left == 0; n++) { /* until all calls are made before the failure comes */
        struct backend *b = layers_open(NULL);
        struct err err = {0};

        fakes_fail_at(n);
        if (layers_use(b, NULL, &err) < 0) {
            n_errors++;
            assert_true(err.code == ERR_DEVICE || err.code == ERR_UNSUPPORTED);
            assert_non_null(strstr(err.msg, "cu"));
        }
        left = fakes_fail_at(0);
        layers_close(b);
    }
    printf("%d calls failed, %d of them ended in an error\n", n - 2, n_errors);
    assert_true(n > 100 && n_errors > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tails_in_the_library), cmocka_unit_test(tails_in_passes),
        cmocka_unit_test(half_precision),       cmocka_unit_test(attention_in_pieces),
        cmocka_unit_test(out_of_memory),        cmocka_unit_test(every_call_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
