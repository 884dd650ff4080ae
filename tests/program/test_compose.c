/* test_compose - nodes that are composed in one call each, as importers of other programs' networks
 * make them: what they compute, which of them append nothing, and the first failure. */
#include "../test.h"

#include <math.h>

#include "base/util.h"
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

static const struct node *maker_of(const struct net *n, int v)
{
    return n->g->value[v].producer < 0 ? NULL : &n->g->node[n->g->value[v].producer];
}

/* Check an output's elements after a run of the graph, which this frees. */
static void expect_after_run(struct net *n, int v, struct shape shape, const float *want)
{
    const struct program_spaces none = {0};
    struct program *p;
    struct backend *b;
    void *arena;

    graph_output(n->g, v, "out");
    must(n->c.rc);
    must(ref_open(REF_FUSE_NONE, &b));
    must(program_new(b, n->g, NULL, &p, &err));
    must(backend_alloc(b, program_arena_bytes(p), "arena", &arena, &err));
    must(program_bind(p, &none, arena, &err));
    for (int i = 0; i < program_n_stages(p); i++)
        must(program_run_stage(p, i, &err));
    expect(p, "out", shape, want);
    program_free(p);
    backend_free(b, arena);
    backend_close(b);
}

/* x [2,3,4] as [4,2,3], whose first dimension is cut in two. */
static int turned_and_cut(struct net *n)
{
    const int turned = compose_permute(&n->c, n->x, (int[]){2, 0, 1});

    return compose_reshape(&n->c, turned, SHAPE(2, COLS / 2, ROWS, MID));
}

/* A permute that follows others, also behind a reshape that cuts dimensions, is one permute. */
static void views_are_joined(void **state)
{
    struct net n = net_new();
    float want[ALL];
    int y, i = 0;

    (void)state;
    for (int a = 0; a < 2; a++)
        for (int r = 0; r < ROWS; r++)
            for (int m = 0; m < MID; m++)
                for (int b = 0; b < COLS / 2; b++)
                    want[i++] = at(r, m, a * (COLS / 2) + b);
    y = compose_permute(&n.c, turned_and_cut(&n), (int[]){0, 2, 3, 1});
    assert_int_equal(maker_of(&n, y)->op, OP_permute);
    assert_int_equal(maker_of(&n, maker_of(&n, y)->in[0])->op, OP_reshape);
    assert_int_equal(maker_of(&n, maker_of(&n, y)->in[0])->in[0], n.x);
    expect_after_run(&n, y, SHAPE(2, ROWS, MID, COLS / 2), want);
}

static void views_that_turn_back_are_none(void **state)
{
    struct net n = net_new();
    const int y = compose_permute(&n.c, turned_and_cut(&n), (int[]){2, 3, 0, 1});

    (void)state;
    must(n.c.rc);
    assert_int_equal(maker_of(&n, y)->op, OP_reshape);
    assert_int_equal(maker_of(&n, y)->in[0], n.x);
    assert_int_equal(compose_reshape(&n.c, y, SHAPE(ROWS, MID, COLS)), n.x);
    assert_int_equal(compose_transpose(&n.c, compose_transpose(&n.c, n.x, 0, -1), 0, 2), n.x);
    graph_free(n.g);
}

/* Dimensions that a reshape joins, and values without a gradient, keep their nodes; an order that
 * is none is refused. */
static void views_that_stay(void **state)
{
    struct net n = net_new();
    const int turned = compose_transpose(&n.c, n.x, 0, 1);
    const int joined = compose_reshape(&n.c, turned, SHAPE(MID * ROWS, COLS));
    float want[ALL];
    int y, i = 0;

    (void)state;
    n.g->value[turned].is_detached = 1;
    y = compose_transpose(&n.c, turned, 0, 1);
    assert_int_equal(maker_of(&n, y)->in[0], turned);
    n.g->value[turned].is_detached = 0;
    y = compose_transpose(&n.c, joined, 0, 1);
    assert_int_equal(maker_of(&n, y)->in[0], joined);
    for (int c = 0; c < COLS; c++)
        for (int m = 0; m < MID; m++)
            for (int r = 0; r < ROWS; r++)
                want[i++] = at(r, m, c);
    expect_after_run(&n, y, SHAPE(COLS, MID * ROWS), want);
    n = net_new();
    assert_int_equal(compose_permute(&n.c, compose_transpose(&n.c, n.x, 0, 1), (int[]){0, 9, -1}),
                     NO_VALUE);
    assert_true(n.c.rc < 0);
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

/* ---- attention ---- */

enum { SAMPLES = 2, HEADS = 2, LENGTH = 5, EACH = 4, WIDTH = HEADS * EACH };

/* q, k and v [N,H,T,D] are parts of x [N,T,3*H*D]. */
struct attend {
    struct graph *g;
    struct compose c;
    int x;
    struct compose_attention a;
};

static int head_part(struct compose *c, int x, int i)
{
    int y = compose_slice(c, x, -1, i * WIDTH, (i + 1) * WIDTH, 1);

    y = compose_reshape(c, y, SHAPE(SAMPLES, LENGTH, HEADS, EACH));
    return compose_transpose(c, y, 1, 2);
}

static void attend_new(struct attend *t)
{
    float x[SAMPLES * LENGTH * 3 * WIDTH];

    for (size_t i = 0; i < ARRAY_LEN(x); i++)
        x[i] = (float)(i * 7919 % 101) / 50 - 1;
    t->g = graph_new(SAMPLES, 1);
    t->c = (struct compose){.g = t->g, .name = "made", .err = &err};
    t->x = graph_const(t->g, DTYPE_F32, SHAPE(SAMPLES, LENGTH, 3 * WIDTH), x, "x");
    t->a = (struct compose_attention){.q = head_part(&t->c, t->x, 0),
                                      .k = head_part(&t->c, t->x, 1),
                                      .v = head_part(&t->c, t->x, 2),
                                      .mask = NO_VALUE,
                                      .starts = NO_VALUE,
                                      .p = 0.4,
                                      .tag = 3};
}

static int count_of(const struct graph *g, enum op op)
{
    int n = 0;

    for (int k = 0; k < g->n_nodes; k++)
        n += g->node[k].op == (int)op;
    return n;
}

/* Parts of one matrix are read where they lie; parts in another order are not. */
static void attention_reads_one_matrix(void **state)
{
    struct attend t;
    int q;

    (void)state;
    attend_new(&t);
    compose_attention(&t.c, &t.a);
    must(t.c.rc);
    assert_int_equal(count_of(t.g, OP_attention), 1);
    assert_int_equal(count_of(t.g, OP_concat), 0);
    q = t.a.q;
    t.a.q = t.a.k;
    t.a.k = q;
    compose_attention(&t.c, &t.a);
    must(t.c.rc);
    assert_int_equal(count_of(t.g, OP_attention), 2);
    assert_int_equal(count_of(t.g, OP_concat), 1);
    graph_free(t.g);
}

/* A mask that hides nothing changes neither the numbers nor what is dropped, although attention is
 * then made of parts. */
static void attention_drops_the_same(void **state)
{
    static const float all[LENGTH] = {1, 1, 1, 1, 1};
    struct step_scalars scalars = {.seed = 3, .step = 5, .first_position = 6};
    const struct program_spaces spaces = {.scalars = &scalars};
    const float *whole, *parts;
    const struct value *v;
    struct program *p;
    struct backend *b;
    struct attend t;
    void *arena;
    double sum = 0;

    (void)state;
    attend_new(&t);
    t.a.causal = 1;
    graph_output(t.g, compose_attention(&t.c, &t.a), "whole");
    t.a.mask = compose_const(&t.c, SHAPE(LENGTH), all);
    t.a.is_bool = 1;
    graph_output(t.g, compose_attention(&t.c, &t.a), "parts");
    must(t.c.rc);
    assert_int_equal(count_of(t.g, OP_attention), 1);
    must(ref_open(REF_FUSE_NONE, &b));
    must(program_new(b, t.g, NULL, &p, &err));
    must(backend_alloc(b, program_arena_bytes(p), "arena", &arena, &err));
    must(program_bind(p, &spaces, arena, &err));
    for (int i = 0; i < program_n_stages(p); i++)
        must(program_run_stage(p, i, &err));
    whole = program_output(p, "whole", &v);
    parts = program_output(p, "parts", &v);
    for (int64_t i = 0; i < shape_elements(&v->shape); i++) {
        assert_true(fabsf(whole[i] - parts[i]) < 1e-5f);
        sum += fabs((double)whole[i]);
    }
    assert_true(sum > 1);
    program_free(p);
    backend_free(b, arena);
    backend_close(b);
}

/* Numbers that were integers have the graph's half precision, and a difference of integers is made
 * before it is rounded. */
static void integers_in_half_precision(void **state)
{
    static const int32_t number[2] = {50257, 50256};
    const struct program_spaces none = {0};
    struct graph *g = graph_new(1, 0);
    struct compose c = {.g = g, .name = "made", .err = &err};
    const int x = graph_const(g, DTYPE_I32, SHAPE(2), number, "x");
    const struct value *v;
    const uint16_t *y;
    struct program *p;
    struct backend *b;
    void *arena;

    (void)state;
    graph_output(g, compose_compare(&c, EW_EQ, x, 50257), "equal");
    must(c.rc);
    must(program_set_precision(g, (struct program_precision){DTYPE_BF16, DTYPE_F32}, &err));
    must(ref_open(REF_FUSE_NONE, &b));
    must(program_new(b, g, NULL, &p, &err));
    must(backend_alloc(b, program_arena_bytes(p), "arena", &arena, &err));
    must(program_bind(p, &none, arena, &err));
    for (int i = 0; i < program_n_stages(p); i++)
        must(program_run_stage(p, i, &err));
    y = program_output(p, "equal", &v);
    assert_int_equal(v->dtype, DTYPE_BF16);
    assert_true(y[0] == 0x3f80 && y[1] == 0);
    program_free(p);
    backend_free(b, arena);
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(nothing_to_do),
        cmocka_unit_test(views_are_joined),
        cmocka_unit_test(views_that_turn_back_are_none),
        cmocka_unit_test(views_that_stay),
        cmocka_unit_test(the_first_failure_is_kept),
        cmocka_unit_test(attention_reads_one_matrix),
        cmocka_unit_test(attention_drops_the_same),
        cmocka_unit_test(integers_in_half_precision),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
