/* A multilayer perceptron's training step over the fakes.  Each layer is one product forward and
 * two backward; bias, activation and their gradients are epilogues of these products, and no other
 * kernel is launched for the layer.  Where cuBLASLt has no such epilogues, our own passes give the
 * same gradients. */
#include "../test.h"

#include <math.h>

#include "../cudasim/sim.h"
#include "backend/cuda/cuda.h"
#include "base/alloc.h"
#include "fakes.h"
#include "ref_backend.h"
#include "rig.h"

enum { N_LAYERS = 3, BATCH = 6 };

struct step {
    int n_products, n_launches, n_nodes;
    int epilogue[FAKE_EPILOGUES]; /* products by cublasLtEpilogue_t */
    float *grad;
    int64_t n_grad;
};

static int n_products(void)
{
    int n = 0;

    for (int i = 0; i < FAKE_ENGINES; i++)
        n += fakes_runs(i);
    return n;
}

/* Run p once, on ref's parameters and inputs. */
static void run(struct backend *b, struct program *p, const struct rig *ref, struct step *s)
{
    const struct layout *l = ref->layout;
    const size_t sizes[] = {(size_t)l->n_total * 4, (size_t)l->n_grad * 4,
                            (size_t)l->n_state_total * 4 + 4};
    void *zero = xcalloc(1, program_arena_bytes(p) + sizes[1] + sizes[2]);
    void *arena = rig_put(b, zero, program_arena_bytes(p));
    struct program_spaces at = {
        .param = rig_put(b, ref->spaces.param, sizes[0]),
        .grad = rig_put(b, zero, sizes[1]),
        .state = rig_put(b, zero, sizes[2]),
        .shadow = rig_put(b, zero, sizes[2]),
        .metrics = rig_put(b, ref->metrics, sizeof ref->metrics),
        .scalars = rig_put(b, &ref->scalars, sizeof ref->scalars),
    };
    const uint64_t launches = sim_launches();

    rig_must(program_bind(p, &at, arena, &rig_err));
    rig_must(backend_copy_in(
        b, program_input(p, 0), program_input(ref->program, 0),
        (size_t)shape_elements(&ref->graph->value[ref->graph->input[0]].shape) * 4, &rig_err));
    rig_must(backend_copy_in(b, program_input(p, 1), program_input(ref->program, 1), BATCH * 4,
                             &rig_err));
    fakes_forget_runs();
    for (int e = 0; e < (int)ARRAY_LEN(s->epilogue); e++)
        s->epilogue[e] = -fakes_epilogue_runs(e);
    for (int i = 0; i < program_n_stages(p); i++)
        rig_must(program_run_stage(p, i, &rig_err));
    s->grad = xcalloc((size_t)l->n_grad, sizeof *s->grad);
    s->n_grad = l->n_grad;
    rig_must(backend_copy_out(b, s->grad, at.grad, (size_t)l->n_grad * 4, &rig_err));
    for (int e = 0; e < (int)ARRAY_LEN(s->epilogue); e++)
        s->epilogue[e] += fakes_epilogue_runs(e);
    s->n_launches = (int)(sim_launches() - launches);
    s->n_products = n_products();
    backend_free(b, at.param);
    backend_free(b, at.grad);
    backend_free(b, at.state);
    backend_free(b, at.shadow);
    backend_free(b, at.metrics);
    backend_free(b, at.scalars);
    backend_free(b, arena);
    free(zero);
}

static void train_once(enum activation act, int refuse, struct step *s)
{
    static const struct sample_spec in = SAMPLE_IMAGES(5, 3, 1, 5);
    struct rig_model model = rig_model(&arch_mlp);
    struct program *p;
    struct backend *b;
    struct graph *g;
    struct rig ref;

    model.mlp.activation = act;
    model.mlp.hidden.n = N_LAYERS - 1;
    model.mlp.hidden.v[0] = 16;
    model.mlp.hidden.v[1] = 136;
    rig_open(&ref, REF_FUSE_NONE, rig_graph(&model, &in, BATCH, 1, 1), NULL);
    rig_init(&ref, 8);
    rig_fill(&ref, 5);
    fakes_refuse_tails(refuse);
    rig_must(cuda_open(0, &b, &rig_err));
    g = rig_graph(&model, &in, BATCH, 1, 1);
    rig_must(program_new(b, g, ref.layout, &p, &rig_err));
    s->n_nodes = g->n_nodes;
    run(b, p, &ref, s);
    program_free(p);
    backend_close(b);
    rig_close(&ref);
    assert_int_equal(sim_open_things(), 0);
    assert_int_equal(fakes_open_things(), 0);
}

/* The gradients of both steps are equal, up to 1e-5 of the largest one. */
static void expect_near(const struct step *a, const struct step *b)
{
    double most = 0;

    assert_int_equal(a->n_grad, b->n_grad);
    for (int64_t i = 0; i < a->n_grad; i++)
        most = fmax(most, fabs((double)a->grad[i]));
    assert_true(most > 1e-3);
    for (int64_t i = 0; i < a->n_grad; i++)
        if (!(fabs((double)a->grad[i] - (double)b->grad[i]) <= 1e-5 * most))
            fail_msg("gradient %lld is %g, want %g", (long long)i, (double)b->grad[i],
                     (double)a->grad[i]);
}

static void check(enum activation act, int forward, int backward)
{
    struct step tails, passes;

    train_once(act, 0, &tails);
    train_once(act, 1, &passes);
    assert_int_equal(tails.n_products, 3 * N_LAYERS - 1); /* no gradient of the images */
    assert_int_equal(passes.n_products, tails.n_products);
    assert_int_equal(tails.epilogue[forward], N_LAYERS - 1);
    assert_int_equal(tails.epilogue[FAKE_BIAS], 1);
    assert_int_equal(tails.epilogue[backward], N_LAYERS - 1);
    assert_int_equal(tails.epilogue[FAKE_BGRADB], N_LAYERS);
    assert_int_equal(tails.epilogue[FAKE_PLAIN], 0);
    assert_int_equal(passes.epilogue[FAKE_PLAIN], passes.n_products);
    /* A node is a kernel: a product, or a launch of ours for the loss and the control vector. */
    assert_int_equal(tails.n_nodes, tails.n_products + tails.n_launches);
    /* Our passes: y of each layer, dx of all layers but the first, db of each layer. */
    assert_true(passes.n_launches >= tails.n_launches + 3 * N_LAYERS - 1);
    expect_near(&tails, &passes);
    free(tails.grad);
    free(passes.grad);
}

static void relu(void **state)
{
    (void)state;
    check(ACT_RELU, FAKE_RELU_AUX_BIAS, FAKE_DRELU);
}

static void gelu(void **state)
{
    (void)state;
    check(ACT_GELU_TANH, FAKE_GELU_AUX_BIAS, FAKE_DGELU);
}

/* If cuBLASLt can only write relu's mask, or only read it, passes do both; all other epilogues
 * remain. */
static void mask_has_one_owner(void **state)
{
    static const int refused[] = {FAKE_NO_RELU_AUX, FAKE_NO_DRELU};
    struct step tails, mixed;

    (void)state;
    train_once(ACT_RELU, 0, &tails);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        train_once(ACT_RELU, refused[i], &mixed);
        assert_int_equal(mixed.n_products, tails.n_products);
        assert_int_equal(mixed.epilogue[FAKE_RELU_AUX_BIAS], 0);
        assert_int_equal(mixed.epilogue[FAKE_DRELU], 0);
        assert_int_equal(mixed.epilogue[FAKE_PLAIN], 2 * (N_LAYERS - 1));
        assert_int_equal(mixed.epilogue[FAKE_BGRADB], N_LAYERS);
        expect_near(&tails, &mixed);
        free(mixed.grad);
    }
    free(tails.grad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(relu), cmocka_unit_test(gelu),
                                       cmocka_unit_test(mask_has_one_owner)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
