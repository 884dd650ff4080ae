/* test_model_gradients - gradients of whole models equal central differences, on the naive backend;
 * which gradients are not made; parameters' names. */
#include "../test.h"

#include "op/op.h"
#include "ref_backend.h"
#include "rig.h"
#include "slope.h"

static void check_model(const struct rig_model *model, const struct sample_spec *in, int64_t batch,
                        unsigned fusions, const char *what)
{
    struct rig r;

    rig_open(&r, fusions, rig_graph(model, in, batch, 1, 1), NULL);
    rig_init(&r, 5);
    rig_fill(&r, 3);
    check_all(&r, 3, 4e-3, 1e-2, what);
    rig_close(&r);
}

static void whole_models(void **state)
{
    static const struct sample_spec small = SAMPLE_IMAGES(14, 14, 1, 5),
                                    colour = SAMPLE_IMAGES(4, 3, 2, 4);
    struct rig_model model = rig_model(&arch_mlp);

    (void)state;
    model = rig_model(&arch_lenet);
    check_model(&model, &small, 2, REF_FUSE_ALL, "lenet");
    model = rig_model(&arch_lenet5);
    check_model(&model, &small, 2, REF_FUSE_ALL, "lenet5");
    for (unsigned fusions = REF_FUSE_NONE; fusions <= REF_FUSE_ALL; fusions += REF_FUSE_ALL) {
        model = rig_model(&arch_mlp);
        check_model(&model, &colour, 3, fusions, "linear");
        model.mlp.hidden.n = 2;
        model.mlp.hidden.v[0] = 7;
        model.mlp.hidden.v[1] = 6;
        for (int a = ACT_TANH; a <= ACT_GELU; a++) {
            model.mlp.activation = (enum activation)a;
            check_model(&model, &colour, 5, fusions, "mlp");
        }
        model.mlp.batch_norm = 1;
        model.mlp.dropout = 0.3;
        model.o.label_smoothing = 0.1;
        check_model(&model, &colour, 6, fusions, "mlp with batch norm and dropout");
        model.o.label_smoothing = 0;
        model.o.loss = LOSS_MSE;
        check_model(&model, &colour, 6, fusions, "mlp with mse");
    }
}

/* A gradient that no parameter needs is not computed; frozen parameters get no gradient. */
static void nothing_in_vain(void **state)
{
    struct rig_model model = rig_model(&arch_lenet);
    struct graph *g = rig_graph(&model, &rig_mnist, 2, 1, 0);
    int n_grad_x = 0;

    (void)state;
    for (int k = 0; k < g->n_nodes; k++)
        n_grad_x += g->node[k].op == OP_conv2d_grad_x;
    assert_int_equal(n_grad_x, 1);
    graph_free(g);
}

static void unused_parameter_is_named(void **state)
{
    struct rig_model model = rig_model(&arch_mlp);
    const struct model_options options = rig_options(&model);
    struct param_info info = {.init = PARAM_CONST};
    struct graph *g;
    struct err err;

    (void)state;
    assert_int_equal(model_build(&options, &rig_mnist, 2, 1, 0, &g, &err), 0);
    graph_param(g, SHAPE(3), info, "idle.weight");
    assert_int_equal(program_differentiate(g, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "idle.weight"));
    graph_free(g);
}

/* A parameter may be called as an input is. */
static void parameter_named_as_an_input(void **state)
{
    struct rig_model model = rig_model(&arch_mlp);
    const struct model_options options = rig_options(&model);
    struct param_info info = {.init = PARAM_CONST};
    struct graph *g;
    struct err err;
    int p;

    (void)state;
    assert_int_equal(model_build(&options, &rig_mnist, 2, 1, 0, &g, &err), 0);
    assert_string_equal(g->value[g->input[0]].name, "x");
    p = graph_param(g, SHAPE(3), info, "x");
    assert_ptr_equal(graph_find(g, "x"), &g->value[p]);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_models),
        cmocka_unit_test(nothing_in_vain),
        cmocka_unit_test(unused_parameter_is_named),
        cmocka_unit_test(parameter_named_as_an_input),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
