/* test_fused - sums and products that end a formula for which there is one node: which of them
 * become that node, and that it computes what the separate nodes compute. */
#include "../test.h"

#include <math.h>
#include <string.h>

#include "base/util.h"
#include "op/compose.h"
#include "program/program.h"
#include "ref_backend.h"

enum { SAMPLES = 2, PLACES = 3, HEADS = 3, WIDTH = 8, ALL = SAMPLES * PLACES * HEADS * WIDTH };

static struct err err;

static void must(int rc)
{
    if (rc < 0)
        fail_msg("%s", err.msg);
}

/* One way to write rotary positions of x [2,3,3,8]. */
struct writing {
    int pairs;       /* 1: the numbers 2i and 2i + 1; 0: the halves */
    int by_sample;   /* 1: the tables differ from sample to sample */
    int swapped;     /* 1: (x2, -x1): the opposite turn */
    int off;         /* the first half begins off by this much */
    int no_sign;     /* 1: (x2, x1) */
    int same_half;   /* 1: (-x1, x1) */
    int by_head;     /* 1: the table of sines has a row for each head, not for each place */
    int sum_is_back; /* 1: the product with the sine is the first operand */
    int is_rotary;   /* wanted */
};

static int number(struct compose *c, struct shape shape, double from)
{
    float v[ALL];

    for (int64_t i = 0; i < shape_elements(&shape); i++)
        v[i] = (float)sin(from + 1.7 * (double)i);
    return compose_const(c, shape, v);
}

static int times(struct compose *c, int a, int b)
{
    const union node_attr attr = {.elementwise.kind = EW_MUL};

    return compose_append(c, OP_elementwise, &attr, (const int[]){a, b}, 2);
}

/* One of every pair: the first numbers (0) or the second (1). */
static int part(struct compose *c, const struct writing *w, int x, int second)
{
    const int64_t half = WIDTH / 2, start = second ? half : w->off;

    return w->pairs ? compose_slice(c, x, 3, second, INT64_MAX, 2)
                    : compose_slice(c, x, 3, start, start + half, 1);
}

/* (-x2, x1) of the pairs. */
static int other(struct compose *c, const struct writing *w, int x)
{
    const struct shape one = SHAPE(SAMPLES, PLACES, HEADS, WIDTH / 2, 1);
    int a = part(c, w, x, w->swapped);
    int b = part(c, w, x, !w->swapped && !w->same_half);

    if (!w->no_sign)
        b = compose_constants(c, EW_NEG, b, 0, 0);
    if (w->pairs) {
        a = compose_reshape(c, a, one);
        b = compose_reshape(c, b, one);
    }
    return compose_reshape(c, compose_concat(c, (const int[]){b, a}, 2, -1),
                           SHAPE(SAMPLES, PLACES, HEADS, WIDTH));
}

static struct shape table_of(const struct writing *w)
{
    return SHAPE(w->by_sample ? SAMPLES : 1, PLACES, 1, WIDTH);
}

static const struct node *fused_maker_of(const struct graph *g, int v)
{
    return &g->node[g->value[v].producer];
}

static void fused_run(struct graph *g, const float **out)
{
    const struct program_spaces none = {0};
    static float kept[2][ALL];
    struct program *p;
    struct backend *b;
    void *arena;

    must(ref_open(REF_FUSE_NONE, &b));
    must(program_new(b, g, NULL, &p, &err));
    must(backend_alloc(b, program_arena_bytes(p), "arena", &arena, &err));
    must(program_bind(p, &none, arena, &err));
    for (int i = 0; i < program_n_stages(p); i++)
        must(program_run_stage(p, i, &err));
    for (int i = 0; i < 2; i++) {
        memcpy(kept[i], program_output(p, i ? "plain" : "fused", NULL), sizeof kept[i]);
        out[i] = kept[i];
    }
    program_free(p);
    backend_free(b, arena);
    backend_close(b);
}

/* Check both outputs of the graph, which this frees. */
static void expect_equal(struct graph *g, int fused, int plain)
{
    const float *out[2];

    graph_output(g, fused, "fused");
    graph_output(g, plain, "plain");
    fused_run(g, out);
    for (int i = 0; i < ALL; i++)
        if (!(fabsf(out[0][i] - out[1][i]) <= 1e-6F))
            fail_msg("[%d] is %g, want %g", i, (double)out[0][i], (double)out[1][i]);
}

static void rotary_is_found(void **state)
{
    static const struct writing ways[] = {
        {.is_rotary = 1},
        {.pairs = 1, .is_rotary = 1},
        {.sum_is_back = 1, .is_rotary = 1},
        {.swapped = 1},
        {.pairs = 1, .swapped = 1},
        {.by_sample = 1},
        {.off = 1},
        {.no_sign = 1},
        {.same_half = 1},
        {.pairs = 1, .same_half = 1},
        {.by_head = 1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        const struct writing *w = &ways[i];
        struct graph *g = graph_new(1, 0);
        struct compose c = {.g = g, .name = "made", .err = &err};
        const int x = number(&c, SHAPE(SAMPLES, PLACES, HEADS, WIDTH), 0);
        const int cos = times(&c, x, number(&c, table_of(w), 0.5));
        const struct shape sines = w->by_head ? SHAPE(HEADS, WIDTH) : table_of(w);
        const int sin = times(&c, other(&c, w, x), number(&c, sines, 2));
        const int y =
            compose_elementwise(&c, EW_ADD, w->sum_is_back ? sin : cos, w->sum_is_back ? cos : sin);

        must(c.rc);
        if ((fused_maker_of(g, y)->op == OP_rotary) != w->is_rotary)
            fail_msg("writing %d became %s", (int)i, op_get(fused_maker_of(g, y)->op)->name);
        expect_equal(g, y, compose_append(&c, OP_add, NULL, (const int[]){cos, sin}, 2));
    }
}

/* k is turned by the tables of q. */
static void tables_are_shared(void **state)
{
    const struct writing w = {0};
    struct graph *g = graph_new(1, 0);
    struct compose c = {.g = g, .name = "made", .err = &err};
    int y[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        const int x = number(&c, SHAPE(SAMPLES, PLACES, HEADS, WIDTH), i);
        const int cos = times(&c, x, number(&c, table_of(&w), 0.5));

        y[i] = compose_elementwise(
            &c, EW_ADD, cos, times(&c, other(&c, &w, x), number(&c, table_of(&w), i == 2 ? 3 : 2)));
    }
    must(c.rc);
    for (int i = 1; i < 3; i++) {
        const struct node *first = fused_maker_of(g, y[0]), *n = fused_maker_of(g, y[i]);

        assert_int_equal(n->in[ROTARY_COS], first->in[ROTARY_COS]);
        assert_int_equal(n->in[ROTARY_SIN] == first->in[ROTARY_SIN], i == 1);
    }
    graph_free(g);
}

/* silu(a) * b, in both orders; not with another activation, and not with broadcasting. */
static void gates_are_found(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct graph *g = graph_new(1, 0);
        struct compose c = {.g = g, .name = "made", .err = &err};
        const int a = number(&c, SHAPE(ALL), 0);
        const int b = number(&c, i == 3 ? SHAPE(1) : SHAPE(ALL), 3);
        const int gate = compose_activation(&c, i == 2 ? ACT_TANH : ACT_SILU, a);
        const int y = compose_elementwise(&c, EW_MUL, i == 1 ? b : gate, i == 1 ? gate : b);

        must(c.rc);
        assert_int_equal(fused_maker_of(g, y)->attr.elementwise.kind, i < 2 ? EW_SILU_MUL : EW_MUL);
        expect_equal(g, y, times(&c, gate, b));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotary_is_found),
        cmocka_unit_test(tables_are_shared),
        cmocka_unit_test(gates_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
