/* test_cases - runs all cases of the operator table on the cpu backend (runner.h), with one thread
 * and with several. */
#include "../test.h"

#include "backend/cpu/amx_attention.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/winograd.h"
#include "base/util.h"
#include "runner.h"

static struct backend *open_cpu(void)
{
    struct backend *b;
    struct err err;

    assert_int_equal(backend_open_cpu(1, &b, &err), 0);
    return b;
}

/* With several threads even the smallest work is divided.  oneDNN's threads then keep some memory
 * for good, so the heap is not watched. */
static void test_cases(void **state)
{
    struct backend *b = open_cpu();

    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        const struct op_runner r = {.b = b, .watch_heap = threads == 1};

        backend_set_threads(b, threads);
        container_of(b, struct cpu, base)->least_work = 1;
        assert_true(op_runner_cases(&r, threads == 1) > 0);
    }
    backend_close(b);
}

static int64_t head_width(const struct graph *g, const struct node *n)
{
    return g->value[n->in[0]].shape.dim[1] / 3 / n->attr.attention.heads;
}

/* Winograd's products of BF16 pairs round their factors (winograd.h), but db is a sum of dy itself.
 * Attention in tiles rounds probabilities and gradients of scores (amx_attention.h), but the
 * products that lse is of are exact. */
static int rounds_points(struct backend *b, const struct graph *g, const struct node *n, int out)
{
    const struct cpu *cpu = container_of(b, struct cpu, base);

    if ((n->op == OP_attention && out == ATTENTION_Y) || n->op == OP_attention_grad)
        return amx_attention_fits(op_type(g, n), cpu->widens_bf16, n->attr.attention.length,
                                  head_width(g, n));
    return (n->op == OP_conv2d || n->op == OP_conv2d_grad_x ||
            (n->op == OP_conv2d_grad_w && out == CONV2D_GRAD_W_DW)) &&
           op_type(g, n) == DTYPE_BF16 && !cpu->widens_bf16 && winograd_fits(cpu, g, n);
}

/* Gradients of parameters are F32 or BF16, as the job wants them. */
static void test_bf16(void **state)
{
    struct backend *b = open_cpu();

    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        const struct op_runner r = {.b = b,
                                    .watch_heap = threads == 1,
                                    .types = {DTYPE_BF16, threads == 1 ? DTYPE_F32 : DTYPE_BF16},
                                    .rounds_points = rounds_points};

        backend_set_threads(b, threads);
        container_of(b, struct cpu, base)->least_work = 1;
        assert_true(op_runner_cases(&r, 0) > 0);
    }
    backend_close(b);
}

/* Products in the way that this processor does not take: widened, or by BF16 primitives. */
static void test_bf16_the_other_way(void **state)
{
    static const char *const some[] = {"conv_stride_pad", "conv_groups",       "conv_1x1",
                                       "conv_wide",       "conv_pairs",        "conv_add",
                                       "linear",          "linear_transposed", "linear_flatten",
                                       "linear_gelu",     "attention_wide",    NULL};
    const struct op_runner r = {.b = open_cpu(),
                                .n_turns = 2,
                                .types = {DTYPE_BF16, DTYPE_F32},
                                .only = some,
                                .rounds_points = rounds_points};
    struct cpu *cpu = container_of(r.b, struct cpu, base);

    (void)state;
    if (!dn_has_bf16()) {
        backend_close(r.b);
        skip();
    }
    cpu->widens_bf16 = !cpu->widens_bf16;
    cpu->least_work = 1;
    backend_set_threads(r.b, 2);
    assert_true(op_runner_cases(&r, 0) > 0);
    backend_close(r.b);
}

static void test_out_of_memory(void **state)
{
    const struct op_runner r = {.b = open_cpu()};

    (void)state;
    op_runner_out_of_memory(&r);
    backend_close(r.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_bf16_the_other_way),
        cmocka_unit_test(test_out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
