/* test_outputs - graphs with several inputs and outputs, and with constants, as importers of other
 * programs' networks make them. */
#include "../test.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "op/op.h"
#include "program/impl.h"
#include "program/program.h"
#include "ref_backend.h"
#include "tensor/half.h"

enum { ROWS = 4, COLS = 6, WORDS = 5 };

static const float table[WORDS * COLS] = {
    1,  -2, 3,  -4,   5,     -6,   0.5,   -0.5, 1.5,   -1.5, 2.5, -2.5, 7,   -7, 8,
    -8, 9,  -9, 0.25, -0.25, 0.75, -0.75, 1.25, -1.25, 10,   -11, 12,   -13, 14, -15,
};
static const int32_t tokens[ROWS] = {4, 0, 2, 1};

static struct err err;

static void must(int rc)
{
    if (rc < 0)
        fail_msg("%s", err.msg);
}

static int node(struct graph *g, enum op op, const union node_attr *attr, const int *in, int n_in,
                const char *name)
{
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NO_OUT, NODE_NO_OUT,
                             NODE_NO_OUT,  NODE_NO_OUT, NODE_NO_OUT};

    must(graph_node(g, op, attr, in, n_in, out, name, &err));
    return out[0];
}

/* words = table[tokens], sum = x + words, relu = max(sum, 0), y = relu + z. */
static struct graph *build(void)
{
    const union node_attr act = {.act.kind = ACT_RELU};
    struct graph *g = graph_new(ROWS, 0);
    const int x = graph_input(g, DTYPE_F32, SHAPE(ROWS, COLS), "x");
    const int z = graph_input(g, DTYPE_F32, SHAPE(ROWS, COLS), "z");
    const int t = graph_const(g, DTYPE_F32, SHAPE(WORDS, COLS), table, "table");
    const int k = graph_const(g, DTYPE_I32, SHAPE(1, ROWS), tokens, "tokens");
    const int words = node(g, OP_embedding, NULL, (int[]){t, k}, 2, "words");
    const int sum = node(g, OP_add, NULL, (int[]){words, x}, 2, "sum");
    const int relu = node(g, OP_activation, &act, &sum, 1, "relu");
    const int y = node(g, OP_add, NULL, (int[]){relu, z}, 2, "y");

    graph_output(g, sum, "sum");
    graph_output(g, relu, "relu");
    graph_output(g, y, "y");
    return g;
}

struct run {
    struct backend *b;
    struct program *p;
    void *arena;
    size_t n_bytes;
};

static void open_run(struct run *r, struct backend *b, struct graph *g)
{
    const struct program_spaces none = {0};

    r->b = b;
    must(program_new(b, g, NULL, &r->p, &err));
    r->n_bytes = program_arena_bytes(r->p);
    must(backend_alloc(b, r->n_bytes, "arena", &r->arena, &err));
    must(program_bind(r->p, &none, r->arena, &err));
}

/* Another program has used the arena; then the inputs come, and the program runs. */
static void run(struct run *r, const float *x, const float *z)
{
    memset(r->arena, 0xff, r->n_bytes);
    memcpy(program_input(r->p, 0), x, ROWS * COLS * sizeof *x);
    memcpy(program_input(r->p, 1), z, ROWS * COLS * sizeof *z);
    for (int i = 0; i < program_n_stages(r->p); i++)
        must(program_run_stage(r->p, i, &err));
}

static void close_run(struct run *r)
{
    program_free(r->p);
    backend_free(r->b, r->arena);
    backend_close(r->b);
}

/* Check an output against numbers; `tol` is relative to the number. */
static void expect(const struct run *r, const char *name, const float *want, float tol)
{
    const struct value *v;
    const void *seen = program_output(r->p, name, &v);

    assert_non_null(seen);
    assert_int_equal(shape_elements(&v->shape), ROWS * COLS);
    for (int i = 0; i < ROWS * COLS; i++) {
        const float off = real_get(seen, v->dtype, i) - want[i];

        if (!(off <= tol * 16 && off >= -tol * 16))
            fail_msg("%s[%d] is off by %g", name, i, (double)off);
    }
}

static void check(struct backend *b, enum dtype type)
{
    const struct program_precision p = {.compute = type, .grad = DTYPE_F32};
    const float tol = type == DTYPE_F32 ? 0 : 0x1p-8F;
    float x[ROWS * COLS], z[ROWS * COLS], sum[ROWS * COLS], relu[ROWS * COLS], y[ROWS * COLS];
    struct graph *g = build();
    struct run r;

    must(program_set_precision(g, p, &err));
    open_run(&r, b, g);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < ROWS * COLS; i++) {
            x[i] = (float)(i % 5 + turn) - 2;
            z[i] = (float)(i % 3) / 2;
            sum[i] = x[i] + table[tokens[i / COLS] * COLS + i % COLS];
            relu[i] = sum[i] > 0 ? sum[i] : 0;
            y[i] = relu[i] + z[i];
        }
        run(&r, x, z);
        expect(&r, "sum", sum, tol);
        expect(&r, "relu", relu, tol);
        expect(&r, "y", y, tol);
    }
    assert_null(program_output(r.p, "words", NULL));
    close_run(&r);
}

static void outputs_and_constants(void **state)
{
    struct backend *b;

    (void)state;
    must(ref_open(REF_FUSE_ALL, &b));
    check(b, DTYPE_F32);
    must(backend_open_cpu(1, &b, &err));
    check(b, DTYPE_F32);
    must(backend_open_cpu(1, &b, &err));
    check(b, DTYPE_BF16);
}

/* A weight that is a constant is not trained, and a training program keeps its outputs, too. */
static void constant_weight(void **state)
{
    const struct param_info info = {.init = PARAM_CONST, .bound = 1};
    struct graph *g = graph_new(ROWS, 1);
    const int x = graph_input(g, DTYPE_F32, SHAPE(ROWS, COLS), "x");
    const int target = graph_input(g, DTYPE_F32, SHAPE(ROWS, WORDS), "target");
    const int scale = graph_param(g, SHAPE(COLS), info, "scale");
    const int w = graph_const(g, DTYPE_F32, SHAPE(WORDS, COLS), table, "w");
    const int h = node(g, OP_bias, NULL, (int[]){x, scale}, 2, "h");
    const int y = node(g, OP_linear, NULL, (int[]){h, w}, 2, "y");

    (void)state;
    (void)node(g, OP_pointwise_loss, NULL, (int[]){y, target, g->metrics}, 3, "loss");
    g->logits = y;
    graph_output(g, h, "h");
    must(program_differentiate(g, &err));
    for (int k = 0; k < g->n_nodes; k++)
        assert_int_not_equal(g->node[k].op, OP_linear_grad_w);
    assert_true(graph_is_output(g, h));
    graph_free(g);
}

/* Memory for constants may be short; nothing is left open then. */
static void no_memory(void **state)
{
    const struct program_spaces none = {0};
    struct program *p;
    struct backend *b;
    void *arena;
    int n_failed = 0;

    (void)state;
    must(ref_open(REF_FUSE_NONE, &b));
    must(program_new(b, build(), NULL, &p, &err));
    must(backend_alloc(b, program_arena_bytes(p), "arena", &arena, &err));
    for (uint64_t fail = 1;; fail++) {
        int rc;

        alloc_fail_at(fail);
        rc = program_bind(p, &none, arena, &err);
        alloc_fail_at(0);
        if (rc == 0)
            break;
        assert_int_equal(rc, ERR_NOMEM);
        n_failed++;
    }
    assert_true(n_failed > 0);
    backend_free(b, arena);
    program_free(p);
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_and_constants),
        cmocka_unit_test(constant_weight),
        cmocka_unit_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
