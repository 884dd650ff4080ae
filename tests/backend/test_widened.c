/* widened - products of BF16 operands that are computed in F32 are F32's products of the same
 * numbers, rounded once: bit by bit, by Winograd's transform, by oneDNN's primitives, and in
 * gradients that are added up in place.  This holds on every processor, since the tests choose this
 * way themselves. */
#include "../test.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/outer.h"
#include "backend/cpu/tile.h"
#include "backend/cpu/vector.h"
#include "backend/cpu/winograd.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "kernels.h"
#include "tensor/half.h"

#define CONV(stride_, pad_, act_)             \
    {                                         \
        .conv = {                             \
            .stride = {(stride_), (stride_)}, \
            .pad = {(pad_), (pad_)},          \
            .dilation = {1, 1},               \
            .groups = 1,                      \
            .act = (act_),                    \
            .in_image = {15, 17},             \
            .kernel = {3, 3}                  \
        }                                     \
    }

#define OF(...)                                                                         \
    {                                                                                   \
        .n = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dim = { __VA_ARGS__ } \
    }

struct row {
    const char *name;
    enum op op;
    union node_attr attr;
    struct shape in[4]; /* all zero: absent */
    int n_out, adds;    /* outputs that the node has; whether it adds to them */
    int by_winograd;    /* with AVX-512 or AVX2 */
    int in_place;       /* the input in whose place y is, or 0 */
};

/* clang-format off */
static const struct row rows[] = {
    {"conv", OP_conv2d, CONV(1, 1, ACT_NONE),
     {OF(2, 15, 17, 64), OF(128, 64, 3, 3)}, .n_out = 1, .by_winograd = 1},
    {"conv_bias_add_relu", OP_conv2d, CONV(1, 1, ACT_RELU),
     {OF(2, 15, 17, 64), OF(64, 64, 3, 3), OF(64), OF(2, 15, 17, 64)},
     .n_out = 1, .by_winograd = 1},
    {"conv_add_in_place", OP_conv2d, CONV(1, 2, ACT_NONE),
     {OF(2, 15, 17, 64), OF(64, 64, 3, 3), {0}, OF(2, 17, 19, 64)},
     .n_out = 1, .by_winograd = 1, .in_place = CONV2D_ADD},
    {"conv_grad_x", OP_conv2d_grad_x, CONV(1, 1, ACT_NONE),
     {OF(64, 128, 3, 3), OF(2, 15, 17, 64)}, .n_out = 1, .by_winograd = 1},
    {"conv_grad_w", OP_conv2d_grad_w, CONV(1, 1, ACT_NONE),
     {OF(2, 15, 17, 128), OF(2, 15, 17, 64)}, .n_out = 2, .by_winograd = 1},
    {"conv_grad_w_adds", OP_conv2d_grad_w, CONV(1, 1, ACT_NONE),
     {OF(2, 15, 17, 64), OF(2, 15, 17, 64)}, .n_out = 2, .adds = 1, .by_winograd = 1},
    {"conv_stride", OP_conv2d, CONV(2, 1, ACT_RELU),
     {OF(2, 15, 17, 32), OF(48, 32, 3, 3), OF(48), OF(2, 8, 9, 48)}, .n_out = 1},
    {"conv_stride_grad_x", OP_conv2d_grad_x, CONV(2, 1, ACT_NONE),
     {OF(48, 32, 3, 3), OF(2, 8, 9, 48)}, .n_out = 1},
    {"conv_stride_grad_w", OP_conv2d_grad_w, CONV(2, 1, ACT_NONE),
     {OF(2, 15, 17, 32), OF(2, 8, 9, 48)}, .n_out = 1},
    {"conv_stride_grad_w_adds", OP_conv2d_grad_w, CONV(2, 1, ACT_NONE),
     {OF(2, 15, 17, 32), OF(2, 8, 9, 48)}, .n_out = 2, .adds = 1},
    {"linear", OP_linear, {.linear.act = ACT_GELU},
     {OF(37, 48), OF(51, 48), OF(51)}, .n_out = 1},
    {"linear_grad_x", OP_linear_grad_x, {0}, {OF(51, 48), OF(37, 51)}, .n_out = 1},
    {"linear_grad_w", OP_linear_grad_w, {0}, {OF(37, 48), OF(37, 51)}, .n_out = 2},
    {"linear_grad_w_adds", OP_linear_grad_w, {0}, {OF(37, 48), OF(37, 51)},
     .n_out = 1, .adds = 1},
    {"linear_transposed_grad_w_adds", OP_linear_grad_w, {.linear.transposed = 1},
     {OF(37, 48), OF(37, 51)}, .n_out = 1, .adds = 1},
    {"linear_long_grad_w", OP_linear_grad_w, {0}, {OF(513, 410), OF(513, 322)}, .n_out = 2},
    {"linear_long_grad_w_adds", OP_linear_grad_w, {0}, {OF(513, 410), OF(513, 322)},
     .n_out = 1, .adds = 1},
};
/* clang-format on */

/* The node of a row, with operands of this type, and memory for them. */
struct world {
    struct graph *g;
    struct node *n;
    void *in[NODE_MAX_IN], *out[NODE_MAX_OUT];
    int64_t n_out[NODE_MAX_OUT]; /* elements */
};

static void *numbers(const struct shape *s, enum dtype type, uint64_t step)
{
    const int64_t n = shape_elements(s);
    void *x = xcalloc((size_t)n, dtype_size(type));
    struct rng_stream r;

    rng_stream_init(&r, 1, RNG_TEST, step);
    for (int64_t i = 0; i < n; i++) /* numbers that BF16 has */
        real_put(x, type, i, bf16_to_float(bf16_from_float((float)rng_next_normal(&r))));
    return x;
}

static void world_init(struct world *w, const struct row *row, enum dtype type)
{
    int in[4], out[NODE_MAX_OUT], n_in = 0;
    struct err err;

    memset(w, 0, sizeof *w);
    w->g = graph_new(2, 1);
    for (int i = 0; i < 4; i++) {
        in[i] = row->in[i].n ? graph_value(w->g, VALUE_INPUT, type, row->in[i], "in") : NO_VALUE;
        n_in = row->in[i].n ? i + 1 : n_in;
    }
    for (int i = 0; i < NODE_MAX_OUT; i++)
        out[i] = i < row->n_out ? NODE_NEW_OUT : NODE_NO_OUT;
    assert_int_equal(graph_node(w->g, row->op, &row->attr, in, n_in, out, row->name, &err), 0);
    w->n = &w->g->node[0];
    w->n->adds = row->adds ? (1u << row->n_out) - 1 : 0;
    for (int i = 0; i < n_in; i++)
        if (in[i] != NO_VALUE)
            w->in[i] = numbers(&row->in[i], type, (uint64_t)i + 1);
    for (int i = 0; i < row->n_out; i++) {
        struct value *v = &w->g->value[out[i]];

        v->dtype = op_get(row->op)->typed_out >> i & 1 ? type : DTYPE_F32;
        w->n_out[i] = shape_elements(&v->shape);
        w->out[i] =
            row->in_place ? w->in[row->in_place] : numbers(&v->shape, v->dtype, (uint64_t)i + 11);
    }
}

static void world_fini(struct world *w, const struct row *row)
{
    for (int i = 0; i < NODE_MAX_OUT; i++)
        if (!row->in_place)
            free(w->out[i]);
    for (int i = 0; i < NODE_MAX_IN; i++)
        free(w->in[i]);
    graph_free(w->g);
}

static void run(struct backend *b, const struct world *w)
{
    struct kernel *k;
    struct err err;

    if (w->n->adds) /* by its own kernel */
        assert_true(backend_can_fuse(b, w->g, w->n, FUSE_ADDS, ACT_NONE));
    assert_int_equal(backend_make_kernel(b, w->g, w->n, &k, &err), 0);
    run_kernel(b, k, w->in, w->out);
}

/* Of a BF16 output the bits are those of F32's output, rounded; of an F32 output the same. */
static void want_equal(const struct row *row, const struct world *half, const struct world *full)
{
    for (int i = 0; i < row->n_out; i++) {
        const enum dtype type = half->g->value[half->n->out[i]].dtype;

        for (int64_t j = 0; j < full->n_out[i]; j++) {
            const float want = ((const float *)full->out[i])[j];
            const float rounded = type == DTYPE_F32 ? want : bf16_to_float(bf16_from_float(want));
            const float seen = real_get(half->out[i], type, j);

            if (half_bits(seen) != half_bits(rounded))
                fail_msg("%s, output %d, element %d is %.9g, want %.9g", row->name, i, (int)j,
                         (double)seen, (double)rounded);
        }
    }
}

static void check_row(struct backend *b, const struct row *row)
{
    struct cpu *cpu = container_of(b, struct cpu, base);
    struct world half, full;

    world_init(&half, row, DTYPE_BF16);
    world_init(&full, row, DTYPE_F32);
    if (row->by_winograd && (outer_available() || tile_available())) {
        assert_true(winograd_fits(cpu, half.g, half.n));
        cpu->widens_bf16 = 0;
        assert_int_equal(winograd_fits(cpu, half.g, half.n), outer_has_pairs());
        cpu->widens_bf16 = 1;
    }
    run(b, &half);
    run(b, &full);
    want_equal(row, &half, &full);
    world_fini(&half, row);
    world_fini(&full, row);
}

static void test_rows(void **state)
{
    struct backend *b;
    struct err err;

    (void)state;
    assert_int_equal(backend_open_cpu(1, &b, &err), 0);
    container_of(b, struct cpu, base)->widens_bf16 = 1;
    container_of(b, struct cpu, base)->least_work = 1;
    for (int threads = 1; threads <= 3; threads++) {
        backend_set_threads(b, threads);
        for (size_t i = 0; i < ARRAY_LEN(rows); i++)
            check_row(b, &rows[i]);
    }
    backend_close(b);
}

/* Every upper half, with lower halves about the half of a unit; infinities and NaN among them. */
static void test_rounding(void **state)
{
    static const uint32_t low[LANES] = {0,      1,      0x7fff, 0x8000, 0x8001, 0xffff,
                                        0x4000, 0xc000, 0x7ffe, 0x8002, 0x1234, 0xabcd,
                                        2,      0xfffe, 0x5555, 0xaaaa};

    (void)state;
    for (uint32_t high = 0; high <= 0xffff; high++) {
        uint16_t seen[LANES], same[LANES];
        float of[LANES];
        lanes x;

        for (int i = 0; i < LANES; i++) {
            of[i] = half_of_bits(high << 16 | low[i]);
            same[i] = (uint16_t)(high ^ (uint32_t)i);
        }
        x = *(const lanes *)of;
        lanes_to_bf16(seen, &x);
        for (int i = 0; i < LANES; i++)
            assert_int_equal(seen[i], bf16_from_float(of[i]));
        lanes_from_bf16(&x, same);
        *(lanes *)of = x;
        for (int i = 0; i < LANES; i++)
            assert_int_equal(half_bits(of[i]), half_bits(bf16_to_float(same[i])));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rounding),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
