/* test_graph - the graph as data: values, parameters with their gradients, states with their
 * shadows, and arrays that grow. */
#include "../test.h"

#include "ir/graph.h"

static void starts_with_scalars_and_metrics(void **state)
{
    struct graph *g = graph_new(7, 1);

    (void)state;
    assert_int_equal(g->batch, 7);
    assert_int_equal(g->training, 1);
    assert_int_equal(g->value[g->scalars].role, VALUE_SCALARS);
    assert_int_equal(g->value[g->scalars].shape.dim[0], sizeof(struct step_scalars));
    assert_int_equal(g->value[g->metrics].role, VALUE_METRICS);
    assert_int_equal(g->value[g->metrics].dtype, DTYPE_F64);
    assert_int_equal(g->n_inputs, 0);
    assert_int_equal(g->logits, NO_VALUE);
    graph_free(g);
    graph_free(NULL);
}

static void params_and_states_have_partners(void **state)
{
    struct graph *g = graph_new(1, 1);
    struct param_info info = {.init = PARAM_UNIFORM, .bound = 0.5F};
    int w = graph_param(g, SHAPE(3, 4), info, "w"), grad = graph_grad_of(g, w);
    int s = graph_state(g, SHAPE(5), 1.5F, "s"), shadow = graph_shadow_of(g, s);

    (void)state;
    info.bound = 9; /* the graph has its own copy */
    assert_true(g->value[w].info->bound == 0.5F);
    assert_int_equal(graph_grad_of(g, w), grad);
    assert_int_equal(graph_shadow_of(g, s), shadow);
    assert_int_equal(g->value[grad].role, VALUE_GRAD);
    assert_int_equal(g->value[grad].partner, w);
    assert_string_equal(g->value[grad].name, "w.grad");
    assert_true(shape_equal(&g->value[grad].shape, &g->value[w].shape));
    assert_int_equal(g->value[shadow].role, VALUE_SHADOW);
    assert_int_equal(g->value[shadow].partner, s);
    assert_true(g->value[s].init_state == 1.5F);
    graph_free(g);
}

/* Constants are copied, with their type; outputs have names, and are told apart from other values.
 */
static void constants_and_outputs(void **state)
{
    struct graph *g = graph_new(1, 0);
    int32_t tokens[] = {3, 1, 2};
    float table[] = {1, 2, 3, 4};
    const int a = graph_const(g, DTYPE_I32, SHAPE(3), tokens, "tokens");
    const int b = graph_const(g, DTYPE_F32, SHAPE(2, 2), table, "table");
    const int none = graph_const(g, DTYPE_F32, SHAPE(0, 4), NULL, "none");
    const int temp = graph_value(g, VALUE_TEMP, DTYPE_F32, SHAPE(2), "temp");

    (void)state;
    tokens[0] = 9;
    table[3] = 9;
    assert_int_equal(g->value[a].role, VALUE_CONST);
    assert_int_equal(g->value[a].dtype, DTYPE_I32);
    assert_int_equal(((const int32_t *)g->value[a].content)[0], 3);
    assert_true(((const float *)g->value[b].content)[3] == 4);
    assert_int_equal(shape_elements(&g->value[none].shape), 0);
    graph_output(g, b, "the table");
    graph_output(g, temp, "half");
    assert_int_equal(g->n_outputs, 2);
    assert_string_equal(g->output[1].name, "half");
    assert_true(graph_is_output(g, b) && graph_is_output(g, temp));
    assert_false(graph_is_output(g, a));
    graph_free(g);
}

/* Names are copied; ids stay while the arrays grow. */
static void grows(void **state)
{
    struct graph *g = graph_new(1, 0);
    char name[16];

    (void)state;
    for (int i = 0; i < 1000; i++) {
        struct node n = {.op = i % 3, .name = name, .n_in = 1, .in = {i}};
        int v;

        snprintf(name, sizeof name, "n%d", i);
        v = graph_value(g, VALUE_TEMP, DTYPE_F32, SHAPE(i), name);
        assert_int_equal(v, i + 2);
        assert_int_equal(g->value[v].producer, -1);
        assert_int_equal(graph_append(g, &n), i);
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_string_equal(g->value[i + 2].name, name);
        assert_string_equal(g->node[i].name, name);
        assert_int_equal(g->node[i].in[0], i);
    }
    graph_free(g);
}

static void parameters_and_states_are_found(void **state)
{
    struct graph *g = graph_new(2, 1);
    const struct param_info info = {.init = PARAM_CONST};
    char name[16];
    int id[1000];

    (void)state;
    assert_null(graph_find(g, "p0"));
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "p%d", i);
        id[i] = i % 3 ? graph_param(g, SHAPE(1), info, name) : graph_state(g, SHAPE(1), 0, name);
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "p%d", i);
        assert_ptr_equal(graph_find(g, name), &g->value[id[i]]);
    }
    assert_null(graph_find(g, "p1000"));
    assert_null(graph_find(g, "scalars")); /* neither a parameter nor a state */
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_with_scalars_and_metrics),
        cmocka_unit_test(params_and_states_have_partners),
        cmocka_unit_test(constants_and_outputs),
        cmocka_unit_test(grows),
        cmocka_unit_test(parameters_and_states_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
