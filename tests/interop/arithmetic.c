/* arithmetic - all kinds of ir/elementwise.h, all activations and all arithmetic of whole numbers
 * as one model of ONNX, and the numbers that our formulas give.
 *
 *   arithmetic MODEL.onnx NUMBERS
 *
 * The model has the inputs a, b, c [batch,LENGTH] and an output [batch,LENGTH] for each kind, by
 * its name.  NUMBERS are raw floats: a, b, c [ROWS,LENGTH], and then the outputs in their order. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "export/emit.h"
#include "ir/integers.h"
#include "op/compose.h"

enum { ROWS = 4, LENGTH = 64, NUMBER = -3, MOST = EW_COUNT + 16 + 2 * INTEGERS_COUNT };

static const float p = 0.7f, q = 1.3f;

struct operands {
    float a[ROWS * LENGTH], b[ROWS * LENGTH], c[ROWS * LENGTH];
};

/* Numbers around 0, many of them whole, halves, equal or tiny. */
static void draw(struct operands *x)
{
    for (int i = 0; i < ROWS * LENGTH; i++) {
        x->a[i] = (float)((i * 37) % 65 - 32) / 8.0f;
        x->b[i] = i % 3 ? (float)((i * 23) % 33 - 16) / 4.0f + 0.125f : x->a[i];
        x->c[i] = (float)(i % 4 - 1);
        if (i % 16 == 5)
            x->a[i] *= 1e-4f;
    }
}

static float arithmetic_of(enum elementwise kind, float a, float b, float c)
{
    switch (kind) {
#define X(kind, name, n, y, da, db) \
    case EW_##kind:                 \
        return (y);
        ELEMENTWISE_LIST(X)
#undef X
    default:
        return 0;
    }
}

static double activation(enum activation kind, double x)
{
    switch (kind) {
    case ACT_RELU:
        return x > 0 ? x : 0;
    case ACT_TANH:
        return tanh(x);
    case ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case ACT_GELU:
        return x / 2 * (1 + erf(x / sqrt(2)));
    case ACT_GELU_TANH:
        return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACT_SILU:
        return x / (1 + exp(-x));
    case ACT_LEAKY_RELU:
        return x > 0 ? x : 0.01 * x;
    default:
        return x;
    }
}

static const struct {
    const char *name;
    int n_in;
} kinds[] = {
#define X(kind, name, n, y, da, db) {name, n},
    ELEMENTWISE_LIST(X)
#undef X
};

/* a times `by` as whole numbers, 0.5 away from the next one at most. */
static int whole(struct compose *c, int a, float by)
{
    const union node_attr times = {.elementwise = {EW_AFFINE, by, 0}},
                          round = {.elementwise = {EW_ROUND, 0, 0}};

    a = compose_append(c, OP_elementwise, &times, &a, 1);
    return compose_cast(c, compose_append(c, OP_elementwise, &round, &a, 1), DTYPE_I32);
}

/* Element i of the arithmetic of whole numbers, of a and b or, where has_b is 0, of the number. */
static float integers_of(enum integers kind, const struct operands *x, int i, int has_b)
{
    const int64_t a = (int64_t)rintf(x->a[i] * 8), b = has_b ? (int64_t)rintf(x->b[i] * 4) : NUMBER;
    int64_t sum = 0;

    for (int k = i / LENGTH * LENGTH; k <= i && kind == INTEGERS_PREFIX; k++)
        sum += (int64_t)rintf(x->a[k] * 8);
    return (float)(kind == INTEGERS_PREFIX ? sum : INTEGERS_LIMIT(INTEGERS_OF(kind, a, b)));
}

/* Appends the outputs of whole numbers: each kind of two operands, and of one and a number. */
static int build_integers(struct compose *c, const int *in, int *value)
{
    const int a = whole(c, in[0], 8), b = whole(c, in[1], 4);
    int n = 0;

    for (int k = 0; k < INTEGERS_COUNT; k++)
        for (int has_b = 1; has_b >= 0; has_b--)
            value[n++] =
                compose_cast(c,
                             compose_integers(c, (enum integers)k, a,
                                              has_b && k != INTEGERS_PREFIX ? b : NO_VALUE, NUMBER),
                             DTYPE_F32);
    return n;
}

/* The outputs' values in value[]: the kinds, the activations but ACT_NONE, and whole numbers. */
static int build(struct graph *g, int *value, struct err *err)
{
    struct compose c = {.g = g, .name = "kind", .err = err};
    int n = 0, in[3];

    for (int i = 0; i < 3; i++)
        in[i] =
            graph_input(g, DTYPE_F32, SHAPE(g->batch, LENGTH), (const char *[]){"a", "b", "c"}[i]);
    for (int k = 0; k < EW_COUNT; k++) {
        const union node_attr attr = {.elementwise = {(enum elementwise)k, p, q}};

        value[n++] = compose_append(&c, OP_elementwise, &attr, in, kinds[k].n_in);
    }
    for (enum activation k = ACT_NONE + 1; activation_names[k]; k++)
        value[n++] = compose_activation(&c, k, in[0]);
    n += build_integers(&c, in, value + n);
    return c.rc < 0 ? c.rc : n;
}

static int write_model(const char *path, struct err *err)
{
    static const struct onnx_dim dim[] = {{0, 1}, {LENGTH, 0}};
    struct graph *g[2] = {graph_new(2, 0), graph_new(3, 0)};
    struct onnx o;
    struct emit e = {.o = &o, .g = g[0], .other = g[1], .samples = "a", .err = err};
    int value[MOST], n = build(g[1], value, err), rc;

    n = n < 0 ? n : build(g[0], value, err);
    onnx_init(&o, NULL);
    e.value = xcalloc((size_t)g[0]->n_values + 1, sizeof *e.value);
    for (int i = 0; i < 3; i++) {
        const struct value *v = &g[0]->value[g[0]->input[i]];

        e.value[g[0]->input[i]].name[FORM_PLAIN] = v->name;
        onnx_input(&o, v->name, ONNX_FLOAT, dim, 2);
    }
    rc = n < 0 ? n : emit_graph(&e, value, n);
    for (int i = 0; i < n && rc == 0; i++) {
        const char *y = emit_get(&e, value[i], FORM_PLAIN);
        const int whole_at = i - (n - 2 * INTEGERS_COUNT);
        const char *name =
            i < EW_COUNT ? kinds[i].name
            : whole_at >= 0
                ? arena_printf(&o.arena, "integers_%d_%d", whole_at / 2, whole_at % 2)
                : arena_printf(&o.arena, "activation_%s", activation_names[i - EW_COUNT + 1]);

        onnx_node(&o, "Identity", &y, 1, &name, 1);
        onnx_output(&o, name, dim, 2);
    }
    if (rc == 0)
        rc = onnx_write(&o, path, ONNX_MOST_INLINE, err);
    free(e.value);
    onnx_fini(&o);
    graph_free(g[0]);
    graph_free(g[1]);
    return rc;
}

static void put_number(FILE *f, float v) { fwrite(&v, sizeof v, 1, f); }

static int write_numbers(const char *path)
{
    struct operands x;
    FILE *f = fopen(path, "wb");

    if (!f)
        return -1;
    draw(&x);
    fwrite(&x, sizeof x, 1, f);
    for (int k = 0; k < EW_COUNT; k++)
        for (int i = 0; i < ROWS * LENGTH; i++)
            put_number(f, arithmetic_of((enum elementwise)k, x.a[i], x.b[i], x.c[i]));
    for (enum activation k = ACT_NONE + 1; activation_names[k]; k++)
        for (int i = 0; i < ROWS * LENGTH; i++)
            put_number(f, (float)activation(k, (double)x.a[i]));
    for (int k = 0; k < 2 * INTEGERS_COUNT; k++)
        for (int i = 0; i < ROWS * LENGTH; i++)
            put_number(f, integers_of((enum integers)(k / 2), &x, i, k % 2 == 0));
    return fclose(f);
}

int main(int argc, char **argv)
{
    struct err err;

    if (argc != 3 || write_model(argv[1], &err) < 0 || write_numbers(argv[2]) < 0) {
        fprintf(stderr, "arithmetic: %s\n", argc == 3 ? err.msg : "MODEL.onnx NUMBERS");
        return 1;
    }
    return 0;
}
