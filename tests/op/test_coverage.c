/* test_coverage - every operator that has a kernel occurs in the graph of a case, as the case's
 * node or as a gradient. */
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
        cmocka_unit_test(test_names_are_unique),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
