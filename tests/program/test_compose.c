/* test_compose - nodes that are composed in one call each, as importers of other programs' networks
 * make them: what they compute, which of them append nothing, and the first failure. */
#include "../test.h"

#include "op/compose.h"
#include "program/program.h"
#include "ref_backend.h"

enum { ROWS = 2, MID = 3, COLS = 4, ALL = ROWS * MID * COLS };

static struct err err;

static void must(int rc)
{
    if (rc < 0)
        fail_msg("%s", err.msg);
}

/* x [2,3,4] holds the numbers of its elements; less has -x; of the middle rows, only the second one
 * is marked. */
struct net {
    struct graph *g;
    int x, less, mark;
    struct compose c;
};

static struct net net_new(void)
{
    static const float mark[MID] = {0, 1, 0};
    struct net n = {.g = graph_new(1, 0)};
    float x[ALL], less[ALL];

    for (int i = 0; i < ALL; i++) {
        x[i] = (float)i;
        less[i] = -x[i];
    }
    n.x = graph_const(n.g, DTYPE_F32, SHAPE(ROWS, MID, COLS), x, "x");
    n.less = graph_const(n.g, DTYPE_F32, SHAPE(ROWS, MID, COLS), less, "less");
    n.mark = graph_const(n.g, DTYPE_F32, SHAPE(MID, 1), mark, "mark");
    n.c = (struct compose){.g = n.g, .name = "made", .err = &err};
    return n;
}

static float at(int row, int mid, int col) { return (float)((row * MID + mid) * COLS + col); }

/* Check an output of this shape; its elements are those of want in order. */
static void expect(const struct program *p, const char *name, struct shape shape, const float *want)
{
    const struct value *v;
    const float *seen = program_output(p, name, &v);

    assert_non_null(seen);
    assert_true(shape_equal(&v->shape, &shape));
    for (int64_t i = 0; i < shape_elements(&shape); i++)
        if (seen[i] != want[i])
            fail_msg("%s[%d] is %g, want %g", name, (int)i, (double)seen[i], (double)want[i]);
}

static void check_outputs(const struct program *p)
{
    float want[ALL];
    int n = 0;

    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++)
            want[n++] = at(r, 0, c);
    expect(p, "first", SHAPE(ROWS, 1, COLS), want);
    n = 0;
    for (int r = 0; r < ROWS; r++)
        for (int m = 0; m < MID; m++) /* the two parts have changed places */
            for (int c = 0; c < COLS; c++)
                want[n++] = at(r, (m + 1) % MID, c);
    expect(p, "turned", SHAPE(ROWS, MID, COLS), want);
    n = 0;
    for (int r = 0; r < ROWS; r++)
        for (int m = 0; m < MID; m++)
            want[n++] = at(r, m, COLS - 1);
    expect(p, "last", SHAPE(ROWS, MID), want);
    n = 0;
    for (int r = 0; r < ROWS; r++)
        for (int m = 0; m < MID; m++)
            for (int c = 0; c < COLS; c++)
                want[n++] = m == 1 ? at(r, m, c) : -at(r, m, c);
    expect(p, "chosen", SHAPE(ROWS, MID, COLS), want);
    n = 0;
    for (int r = 0; r < ROWS; r++)
        for (int m = 0; m < MID; m++)
            for (int c = 1; c < COLS - 1; c++)
                want[n++] = at(r, m, c);
    expect(p, "inner", SHAPE(ROWS, MID, COLS - 2), want);
}

static void values(void **state)
{
    const struct program_spaces none = {0};
    struct net n = net_new();
    struct program *p;
    struct backend *b;
    void *arena;
    int part[2];

    (void)state;
    compose_split(&n.c, n.x, 1, (int64_t[]){1, 2}, 2, part);
    graph_output(n.g, part[0], "first");
    graph_output(n.g, compose_concat(&n.c, (int[]){part[1], part[0]}, 2, -2), "turned");
    graph_output(n.g, compose_select(&n.c, n.x, -1, -1), "last");
    graph_output(n.g, compose_where(&n.c, n.mark, n.x, n.less), "chosen");
    graph_output(n.g, compose_slice(&n.c, n.x, -1, 1, -1, 1), "inner");
    must(n.c.rc);
    must(ref_open(REF_FUSE_NONE, &b));
    must(program_new(b, n.g, NULL, &p, &err));
    must(backend_alloc(b, program_arena_bytes(p), "arena", &arena, &err));
    must(program_bind(p, &none, arena, &err));
    for (int i = 0; i < program_n_stages(p); i++)
        must(program_run_stage(p, i, &err));
    check_outputs(p);
    program_free(p);
    backend_free(b, arena);
    backend_close(b);
}

static void nothing_to_do(void **state)
{
    struct net n = net_new();
    const int n_nodes = n.g->n_nodes;
    int whole;

    (void)state;
    assert_int_equal(compose_slice(&n.c, n.x, 1, 0, INT64_MAX, 1), n.x);
    assert_int_equal(compose_slice(&n.c, n.x, -1, -COLS, COLS, 1), n.x);
    assert_int_equal(compose_reshape(&n.c, n.x, SHAPE(ROWS, MID, COLS)), n.x);
    assert_int_equal(compose_expand(&n.c, n.x, SHAPE(ROWS, MID, COLS)), n.x);
    compose_split(&n.c, n.x, 2, (int64_t[]){COLS}, 1, &whole);
    assert_int_equal(whole, n.x);
    must(n.c.rc);
    assert_int_equal(n.g->n_nodes, n_nodes);
    graph_free(n.g);
}

static void the_first_failure_is_kept(void **state)
{
    struct net n = net_new();
    int n_nodes, part[2];
    char first[sizeof err.msg];

    (void)state;
    assert_int_equal(compose_concat(&n.c, (int[]){n.x, n.mark}, 2, 0), NO_VALUE);
    assert_true(n.c.rc < 0);
    strcpy(first, err.msg);
    n_nodes = n.g->n_nodes;
    assert_int_equal(compose_select(&n.c, n.x, 0, 0), NO_VALUE);
    assert_int_equal(compose_where(&n.c, NO_VALUE, n.x, n.less), NO_VALUE);
    compose_split(&n.c, NO_VALUE, 0, (int64_t[]){1, 1}, 2, part);
    assert_true(part[0] == NO_VALUE && part[1] == NO_VALUE);
    assert_int_equal(n.g->n_nodes, n_nodes);
    assert_string_equal(err.msg, first);
    graph_free(n.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(nothing_to_do),
        cmocka_unit_test(the_first_failure_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
