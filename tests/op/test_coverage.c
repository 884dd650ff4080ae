/* test_coverage - every operator that has a kernel occurs in the graph of a case, as the case's
 * node or as a gradient; and every kind of element-wise arithmetic and every activation has a case
 * of its own. */
#include "../test.h"

#include "cases.h"

static void count(int seen[OP_COUNT])
{
    const struct op_case *c;

    for (int i = 0; (c = op_case_at(i)); i++) {
        int din[NODE_MAX_IN];
        struct graph *g = case_build(c, (struct case_types){DTYPE_F32, DTYPE_F32}, din);

        for (int k = 0; k < g->n_nodes; k++)
            seen[g->node[k].op]++;
        graph_free(g);
    }
}

static void test_every_op_has_a_case(void **state)
{
    int seen[OP_COUNT] = {0}, missing = 0;

    (void)state;
    count(seen);
    for (int op = 0; op < OP_COUNT; op++) {
        if (seen[op] || op_get(op)->flags & (OP_ALIAS | OP_ENGINE))
            continue;
        print_error("%s has no case: add a row to tests/op/cases_*.c\n", op_get(op)->name);
        missing++;
    }
    assert_int_equal(missing, 0);
}

static int has_case(enum op op, int kind)
{
    const struct op_case *c;

    for (int i = 0; (c = op_case_at(i)); i++)
        if (c->op == op &&
            (op == OP_activation ? (int)c->attr.act.kind : (int)c->attr.elementwise.kind) == kind)
            return 1;
    return 0;
}

static void test_every_kind_has_a_case(void **state)
{
    static const char *const elementwise[] = {
#define X(kind, name, n, y, da, db) [EW_##kind] = name,
        ELEMENTWISE_LIST(X)
#undef X
    };
    int missing = 0;

    (void)state;
    for (int kind = 0; kind < EW_COUNT; kind++)
        if (!has_case(OP_elementwise, kind)) {
            print_error("%s has no case: add a row to tests/op/cases_general.c\n",
                        elementwise[kind]);
            missing++;
        }
    for (int kind = ACT_NONE + 1; activation_names[kind]; kind++)
        if (!has_case(OP_activation, kind)) {
            print_error("%s has no case: add a row to tests/op/cases_pixels.c\n",
                        activation_names[kind]);
            missing++;
        }
    assert_int_equal(missing, 0);
}

static void test_names_are_unique(void **state)
{
    (void)state;
    for (int i = 0; op_case_at(i); i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(op_case_at(i)->name, op_case_at(j)->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_has_a_case),
        cmocka_unit_test(test_every_kind_has_a_case),
        cmocka_unit_test(test_names_are_unique),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
