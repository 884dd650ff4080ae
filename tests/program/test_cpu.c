/* test_cpu - whole models on the cpu backend give the logits, metrics, gradients and states that
 * the naive backend gives. */
#include "../test.h"

#include <math.h>

#include "base/alloc.h"
#include "ref_backend.h"
#include "rig.h"

static double largest(const float *v, int64_t n)
{
    double most = 1e-2;

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(v[i]));
    return most;
}

/* The tolerance is relative to `most`, the largest of all: some gradients are small differences of
 * large numbers, such as that of a bias which batch norm cancels. */
static void expect_near(const float *a, const float *b, int64_t n, double most, const char *model,
                        const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - b[i]) <= 5e-5 * most))
            fail_msg("%s: %s[%lld] is %g, want %g (largest %g)", model, what, (long long)i,
                     (double)a[i], (double)b[i], most);
}

static void compare(struct rig *cpu, struct rig *ref, const char *model)
{
    const struct graph *g = ref->graph;
    const int64_t n_logits = shape_elements(&g->value[g->logits].shape);
    const float *logits = program_logits(ref->program);
    uint64_t n_allocs;
    double most;

    rig_run(cpu);
    n_allocs = alloc_count();
    rig_run(cpu); /* once more, on memory that the first run has used */
    assert_int_equal(alloc_count(), n_allocs);
    rig_run(ref);
    if (!g->n_forward)
        expect_near(program_logits(cpu->program), logits, n_logits, largest(logits, n_logits),
                    model, "logits");
    assert_true(fabs(cpu->metrics[METRIC_LOSS_SUM] - ref->metrics[METRIC_LOSS_SUM]) <=
                1e-5 * (1 + ref->metrics[METRIC_LOSS_SUM]));
    assert_true(cpu->metrics[METRIC_TARGETS] == ref->metrics[METRIC_TARGETS]);
    if (!g->training)
        return;
    expect_near(cpu->spaces.shadow, ref->spaces.shadow, ref->layout->n_state_total, 1, model,
                "next states");
    most = largest(ref->spaces.grad, ref->layout->n_trained);
    for (int i = 0; i < ref->layout->n_params; i++) {
        const struct segment *s = &ref->layout->param[i];

        expect_near(rig_grad(cpu, s->name), rig_grad(ref, s->name), s->length, most, model,
                    s->name);
    }
}

static void check(const struct rig_model *model, const struct sample_spec *in, int64_t batch,
                  int training, const char *what)
{
    struct rig cpu, ref, layout;
    struct backend *b;
    struct err err;

    assert_int_equal(backend_open_cpu(1, &b, &err), 0);
    rig_open(&layout, REF_FUSE_NONE, rig_graph(model, in, 1, 1, 1), NULL);
    rig_open_on(&cpu, b, rig_graph(model, in, batch, training, 1), layout.layout);
    rig_open(&ref, REF_FUSE_NONE, rig_graph(model, in, batch, training, 1), layout.layout);
    rig_init(&cpu, 8);
    rig_init(&ref, 8);
    rig_fill(&cpu, 5);
    rig_fill(&ref, 5);
    compare(&cpu, &ref, what);
    rig_close(&cpu);
    rig_close(&ref);
    rig_close(&layout);
}

static void models(void **state)
{
    static const struct sample_spec small = SAMPLE_IMAGES(14, 14, 1, 5),
                                    colour = SAMPLE_IMAGES(5, 3, 2, 4);
    static const int64_t batches[] = {0, 1, 6};
    struct rig_model lenet = rig_model(&arch_lenet), lenet5 = rig_model(&arch_lenet5), mlp;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(batches); i++)
        for (int training = 0; training < 2; training++) {
            check(&lenet, &small, batches[i], training, "lenet");
            check(&lenet5, &small, batches[i], training, "lenet5");
            mlp = rig_model(&arch_mlp);
            check(&mlp, &colour, batches[i], training, "linear");
            mlp.mlp.hidden.n = 2;
            mlp.mlp.hidden.v[0] = 9;
            mlp.mlp.hidden.v[1] = 6;
            for (int a = ACT_RELU; a <= ACT_GELU; a++) {
                mlp.mlp.activation = (enum activation)a;
                mlp.mlp.dropout = a % 2 ? 0.25 : 0;
                mlp.mlp.batch_norm = a >= ACT_SIGMOID && batches[i] != 1;
                mlp.o.loss = a == ACT_TANH ? LOSS_MSE : LOSS_CROSS_ENTROPY;
                check(&mlp, &colour, batches[i], training, "mlp");
            }
        }
}

/* An allocation that fails at any point of program_new is reported, and nothing leaks
 * (AddressSanitizer checks that). */
static void out_of_memory(void **state)
{
    struct rig_model model = rig_model(&arch_lenet);
    struct rig ref;
    struct program *p = NULL;
    struct backend *b;
    struct err err;
    int n_failed = 0, rc = -1;

    (void)state;
    assert_int_equal(backend_open_cpu(1, &b, &err), 0);
    rig_open(&ref, REF_FUSE_NONE, rig_graph(&model, &rig_mnist, 1, 1, 1), NULL);
    for (uint64_t n = 1; rc < 0 && n < 1000; n++) {
        struct graph *g = rig_graph(&model, &rig_mnist, 4, 1, 1);

        alloc_fail_at(n);
        rc = program_new(b, g, ref.layout, &p, &err);
        alloc_fail_at(0);
        assert_true(rc == 0 || rc == ERR_NOMEM);
        n_failed += rc < 0;
    }
    assert_int_equal(rc, 0);
    assert_true(n_failed >= 1);
    program_free(p);
    rig_close(&ref);
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models),
        cmocka_unit_test(out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
