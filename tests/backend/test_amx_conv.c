/* amx_conv - convolutions of BF16 and their grad_x beside the plain sums in double, by tiles where
 * the processor has them and else by plain loops: strides, padding, odd images, lines of both
 * kinds, blocks that are many samples or a part of one, and several threads, whose bits are equal.
 * And which passes of ResNets' convolutions are computed so. */
#include "../test.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/amx.h"
#include "backend/cpu/amx_conv.h"
#include "base/alloc.h"
#include "base/util.h"
#include "kernels.h"
#include "op/op.h"
#include "tensor/half.h"

enum { BIAS = 1, ADD = 2, RELU = 4, IN_PLACE = 8, MOST_THREADS = 3 };

/* x [N,H,W,C], w [K,C,R,S] -> y, which then gets `more` in this order. */
struct row {
    int64_t N, H, W, C, K, R, S;
    int stride[2], pad[2], more;
};

static const struct row rows[] = {
    {5, 4, 4, 32, 32, 3, 3, {1, 1}, {1, 1}, 0},    /* a sample is a tile; an odd number */
    {3, 8, 8, 32, 64, 3, 3, {1, 1}, {1, 1}, BIAS}, /* two panels */
    {2, 7, 9, 64, 48, 3, 3, {1, 1}, {1, 1}, RELU}, /* a panel and a half; no dx */
    {2, 7, 9, 48, 64, 3, 3, {1, 1}, {1, 1}, 0},    /* the same of dx; no y */

    {2, 5, 33, 32, 32, 3, 3, {1, 1}, {1, 1}, BIAS | RELU},       /* long lines */
    {1, 3, 18, 32, 16, 2, 3, {1, 1}, {0, 2}, ADD},               /* each dimension for itself */
    {2, 9, 11, 32, 64, 3, 3, {2, 2}, {1, 1}, BIAS | ADD | RELU}, /* classes of unequal sizes */
    {2, 8, 8, 32, 32, 1, 1, {2, 2}, {0, 0}, ADD | IN_PLACE},     /* pixels of dx that are zero */
    {3, 6, 5, 64, 64, 1, 1, {1, 1}, {0, 0}, 0},                  /* no taps beside the pixel */
    {2, 7, 40, 32, 32, 5, 3, {2, 1}, {2, 1}, 0},                 /* rows apart, lines whole */
    {2, 9, 9, 32, 32, 2, 5, {1, 2}, {1, 4}, RELU},               /* more padding than pixels */
    {1, 1, 2, 32, 32, 3, 3, {1, 1}, {1, 1}, 0},                  /* taps that meet no pixel */
    {1, 110, 70, 32, 32, 3, 3, {2, 2}, {1, 1}, 0},               /* a part of a sample is a block */
    {1, 100, 70, 96, 32, 3, 3, {1, 1}, {1, 1}, ADD},
};

struct tensors {
    int64_t n_x, n_w, n_y;
    uint16_t *x, *w, *b, *add, *dy, *y, *dx, *y1, *dx1; /* y1, dx1: by one thread */
};

static int64_t y_extent(const struct row *r, int i)
{
    return conv_extent(i ? r->W : r->H, i ? r->S : r->R, r->stride[i], r->pad[i]);
}

static struct tensors tensors_new(const struct row *r)
{
    struct tensors t = {.n_x = r->N * r->H * r->W * r->C,
                        .n_w = r->K * r->C * r->R * r->S,
                        .n_y = r->N * y_extent(r, 0) * y_extent(r, 1) * r->K};

    t.x = bf16_numbers(t.n_x, 1);
    t.w = bf16_numbers(t.n_w, 2);
    t.dy = bf16_numbers(t.n_y, 3);
    t.b = bf16_numbers(r->K, 4);
    t.add = bf16_numbers(t.n_y, 5);
    t.y = xcalloc((size_t)t.n_y, sizeof *t.y);
    t.y1 = xcalloc((size_t)t.n_y, sizeof *t.y1);
    t.dx = xcalloc((size_t)t.n_x, sizeof *t.dx);
    t.dx1 = xcalloc((size_t)t.n_x, sizeof *t.dx1);
    return t;
}

static void tensors_free(struct tensors *t)
{
    uint16_t *const all[] = {t->x, t->w, t->b, t->add, t->dy, t->y, t->dx, t->y1, t->dx1};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

/* Nodes: y, dx. */
static struct graph *graph_of(const struct row *r)
{
    union node_attr attr = {.conv = {.stride = {r->stride[0], r->stride[1]},
                                     .pad = {r->pad[0], r->pad[1]},
                                     .dilation = {1, 1},
                                     .groups = 1,
                                     .in_image = {r->H, r->W},
                                     .kernel = {r->R, r->S}}};
    const struct shape y = SHAPE(r->N, y_extent(r, 0), y_extent(r, 1), r->K);
    struct graph *g = graph_new(r->N, 1);
    const int x = graph_value(g, VALUE_INPUT, DTYPE_BF16, SHAPE(r->N, r->H, r->W, r->C), "x");
    const int w = graph_value(g, VALUE_INPUT, DTYPE_BF16, SHAPE(r->K, r->C, r->R, r->S), "w");
    const int b = graph_value(g, VALUE_INPUT, DTYPE_BF16, SHAPE(r->K), "b");
    const int add = graph_value(g, VALUE_INPUT, DTYPE_BF16, y, "add");
    const int dy = graph_value(g, VALUE_INPUT, DTYPE_BF16, y, "dy");
    const int in[] = {x, w, r->more & BIAS ? b : NO_VALUE, r->more & ADD ? add : NO_VALUE};
    struct err err;

    assert_int_equal(graph_node(g, OP_conv2d_grad_x, &attr, (int[]){w, dy}, 2, NULL, "dx", &err),
                     0);
    attr.conv.act = r->more & RELU ? ACT_RELU : ACT_NONE;
    assert_int_equal(graph_node(g, OP_conv2d, &attr, in, 4, NULL, "y", &err), 0);
    return g;
}

static void run(struct cpu *b, const struct graph *g, const struct node *n, void *const *in,
                void *const *out)
{
    struct kernel *k;
    struct err err;

    if (!amx_conv_can(g, n))
        return;
    assert_int_equal(amx_conv_make(b, g, n, &k, &err), 0);
    run_kernel(&b->base, k, in, out);
}

static void run_passes(struct cpu *b, const struct row *r, struct tensors *t)
{
    struct graph *g = graph_of(r);
    const uint16_t *add = r->more & IN_PLACE ? t->y : t->add;

    memcpy(t->y, t->add, (size_t)t->n_y * sizeof *t->y);
    run(b, g, &g->node[0], (void *[NODE_MAX_IN]){t->w, t->dy}, (void *[NODE_MAX_OUT]){t->dx});
    run(b, g, &g->node[1],
        (void *[NODE_MAX_IN]){t->x, t->w, r->more & BIAS ? t->b : NULL,
                              r->more & ADD ? (void *)add : NULL},
        (void *[NODE_MAX_OUT]){t->y});
    graph_free(g);
}

/* ---- plain sums ---- */

struct sum {
    double value, size; /* size: of the terms' absolute values */
};

static void add_term(struct sum *s, uint16_t a, uint16_t b)
{
    const double term = (double)bf16_to_float(a) * (double)bf16_to_float(b);

    s->value += term;
    s->size += fabs(term);
}

static uint16_t w_at(const struct row *r, const struct tensors *t, int64_t k, int64_t c,
                     int64_t tap)
{
    return t->w[(k * r->C + c) * r->R * r->S + tap];
}

/* Number i of y, before what it then gets. */
static struct sum y_of(const struct row *r, const struct tensors *t, int64_t i)
{
    const int64_t k = i % r->K, q = i / r->K % y_extent(r, 1);
    const int64_t row = i / r->K / y_extent(r, 1), p = row % y_extent(r, 0);
    const int64_t n = row / y_extent(r, 0);
    struct sum s = {0};

    for (int64_t tap = 0; tap < r->R * r->S; tap++) {
        const int64_t h = p * r->stride[0] + tap / r->S - r->pad[0];
        const int64_t v = q * r->stride[1] + tap % r->S - r->pad[1];

        for (int64_t c = 0; c < r->C && h >= 0 && h < r->H && v >= 0 && v < r->W; c++)
            add_term(&s, t->x[((n * r->H + h) * r->W + v) * r->C + c], w_at(r, t, k, c, tap));
    }
    return s;
}

/* The pixel of dy along one axis that tap t brings to pixel h of dx; -1: none. */
static int64_t dy_pixel(const struct row *r, int axis, int64_t h, int64_t tap)
{
    const int64_t at = h + r->pad[axis] - tap, p = at / r->stride[axis];

    return at < 0 || at % r->stride[axis] || p >= y_extent(r, axis) ? -1 : p;
}

static struct sum dx_of(const struct row *r, const struct tensors *t, int64_t i)
{
    const int64_t c = i % r->C, v = i / r->C % r->W, h = i / r->C / r->W % r->H;
    const int64_t n = i / r->C / r->W / r->H;
    struct sum s = {0};

    for (int64_t tap = 0; tap < r->R * r->S; tap++) {
        const int64_t p = dy_pixel(r, 0, h, tap / r->S), q = dy_pixel(r, 1, v, tap % r->S);

        for (int64_t k = 0; k < r->K && p >= 0 && q >= 0; k++)
            add_term(&s, t->dy[((n * y_extent(r, 0) + p) * y_extent(r, 1) + q) * r->K + k],
                     w_at(r, t, k, c, tap));
    }
    return s;
}

/* `got` is `want` with the error of sums in F32, rounded once. */
static void check_number(const struct row *r, const char *name, int64_t i, uint16_t got,
                         struct sum want)
{
    const double is = (double)bf16_to_float(got);

    if (!(fabs(is - want.value) <= fabs(want.value) / 256 + 1e-6 * want.size))
        fail_msg("row %td, %s[%d]: %.9g, want %.9g", r - rows, name, (int)i, is, want.value);
}

/* A pass sums whole tiles of terms. */
static int has_y(const struct row *r) { return r->C % AMX_TERMS == 0; }
static int has_dx(const struct row *r) { return r->K % AMX_TERMS == 0; }

static void check_sums(const struct row *r, const struct tensors *t)
{
    for (int64_t i = 0; has_y(r) && i < t->n_y; i++) {
        struct sum s = y_of(r, t, i);

        s.value += r->more & BIAS ? (double)bf16_to_float(t->b[i % r->K]) : 0;
        s.value += r->more & ADD ? (double)bf16_to_float(t->add[i]) : 0;
        if (r->more & RELU && s.value < 0)
            s.value = 0;
        check_number(r, "y", i, t->y[i], s);
    }
    for (int64_t i = 0; has_dx(r) && i < t->n_x; i++)
        check_number(r, "dx", i, t->dx[i], dx_of(r, t, i));
}

static void check_row(struct backend *b, const struct row *r)
{
    struct tensors t = tensors_new(r);

    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        backend_set_threads(b, threads);
        run_passes(container_of(b, struct cpu, base), r, &t);
        if (threads == 1) {
            check_sums(r, &t);
            memcpy(t.y1, t.y, (size_t)t.n_y * sizeof *t.y);
            memcpy(t.dx1, t.dx, (size_t)t.n_x * sizeof *t.dx);
        }
        assert_memory_equal(t.y, t.y1, (size_t)t.n_y * sizeof *t.y);
        assert_memory_equal(t.dx, t.dx1, (size_t)t.n_x * sizeof *t.dx);
    }
    tensors_free(&t);
}

static void test_all_rows(void **state)
{
    struct backend *b;
    struct err err;

    (void)state;
    print_message("by %s\n", amx_available() ? "tiles" : "plain loops");
    assert_int_equal(backend_open_cpu(1, &b, &err), 0);
    container_of(b, struct cpu, base)->least_work = 1;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check_row(b, &rows[i]);
    backend_close(b);
}

/* The shapes of ResNets: which passes are computed here. */
static void test_choice(void **state)
{
    static const struct {
        struct row row;
        int y, dx;
    } choices[] = {
        {{16, 4, 4, 512, 512, 3, 3, {1, 1}, {1, 1}, 0}, 1, 1},
        {{16, 8, 8, 256, 256, 3, 3, {1, 1}, {1, 1}, 0}, 0, 1},
        {{16, 14, 14, 256, 256, 3, 3, {1, 1}, {1, 1}, 0}, 0, 0},
        {{16, 16, 16, 128, 256, 3, 3, {2, 2}, {1, 1}, 0}, 1, 1},
        {{16, 16, 16, 128, 256, 1, 1, {2, 2}, {0, 0}, 0}, 0, 1},
        {{16, 32, 32, 64, 64, 3, 3, {1, 1}, {1, 1}, 0}, 0, 0},
    };

    const struct cpu b = {0}, widens = {.widens_bf16 = 1};

    (void)state;
    if (!amx_available())
        skip();
    for (size_t i = 0; i < ARRAY_LEN(choices); i++) {
        struct graph *g = graph_of(&choices[i].row);

        assert_int_equal(amx_conv_fits(&b, g, &g->node[0]), choices[i].dx);
        assert_int_equal(amx_conv_fits(&b, g, &g->node[1]), choices[i].y);
        assert_false(amx_conv_fits(&widens, g, &g->node[0]));
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_rows),
                                       cmocka_unit_test(test_choice)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
