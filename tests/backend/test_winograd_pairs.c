/* winograd_pairs - convolutions of BF16 by pairs of rounded points.  A twin in double rounds the
 * same points, so what is left of a difference is the rounding of sums.  Beside the plain sums in
 * double the errors stay within what winograd.h says of rounded points. */
#include "../test.h"

#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/outer.h"
#include "backend/cpu/winograd.h"
#include "backend/cpu/winograd_transform.h"
#include "base/alloc.h"
#include "base/util.h"
#include "kernels.h"
#include "tensor/half.h"

enum { MOST = 4, THREADS = 3 };

/* A row has these beside the convolution, and y gets them in this order.  SUMS: dw and db are added
 * to numbers that are there. */
enum { BIAS = 1, ADD = 2, RELU = 4, SUMS = 8 };

/* A convolution whose filter is [K,C,3,3]: x [N,H,W,C] -> y [N,P,Q,K]. */
struct row {
    int64_t N, H, W, C, K;
    int pad[2], more;
};

static const struct row rows[] = {
    {5, 14, 13, 128, 64, {1, 1}, 0}, /* 49 tiles a sample, some cut at the edge; several blocks */
    {7, 7, 9, 64, 128, {0, 2}, 0},   /* 18 tiles a sample, the last ones of a row beyond its end */
    {97, 2, 2, 64, 64, {1, 1}, 0},   /* an image is a tile, and a last one has no partner */
    {8, 5, 7, 64, 64, {1, 1}, BIAS}, /* 96 tiles, the least for three threads */
    {8, 5, 7, 64, 64, {1, 1}, ADD},  /* tiles that are cut, so some of its pixels are absent */
    {8, 5, 7, 64, 128, {1, 1}, BIAS | ADD | RELU}, /* a block of a ResNet that is in use */
    {8, 5, 7, 128, 64, {1, 1}, SUMS},              /* a second micro-batch */
};

/* The matrices of winograd_transform.h: B^T, G and A. */
static const double B_T[4][MOST] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
static const double G[4][MOST] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
static const double A[4][MOST] = {{1, 0}, {1, 1}, {1, -1}, {0, -1}};

struct tensors {
    uint16_t *x, *w, *b, *add, *dy, *y, *dx; /* BF16 */
    float *dw, *db;
};

static int64_t extent(int64_t n, int pad) { return n + 2 * pad - 2; }
static int64_t n_x(const struct row *r) { return r->N * r->H * r->W * r->C; }
static int64_t n_w(const struct row *r) { return r->K * r->C * TAPS; }
static int64_t n_y(const struct row *r)
{
    return r->N * extent(r->H, r->pad[0]) * extent(r->W, r->pad[1]) * r->K;
}

/* Number i that dw or db holds before a pass. */
static float before(int64_t i) { return (float)(i % 7 - 3); }

static struct tensors tensors_new(const struct row *r)
{
    return (struct tensors){.x = bf16_numbers(n_x(r), 1),
                            .w = bf16_numbers(n_w(r), 2),
                            .dy = bf16_numbers(n_y(r), 3),
                            .b = bf16_numbers(r->K, 4),
                            .add = bf16_numbers(n_y(r), 5),
                            .y = xcalloc((size_t)n_y(r), sizeof(uint16_t)),
                            .dx = xcalloc((size_t)n_x(r), sizeof(uint16_t)),
                            .dw = xcalloc((size_t)n_w(r), sizeof(float)),
                            .db = xcalloc((size_t)r->K, sizeof(float))};
}

static void tensors_free(struct tensors *t)
{
    void *const all[] = {t->x, t->w, t->b, t->add, t->dy, t->y, t->dx, t->dw, t->db};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
}

static void run(struct cpu *b, const struct graph *g, const struct node *n, void *const *in,
                void *const *out)
{
    struct kernel *k;
    struct err err;

    assert_true(winograd_fits(b, g, n));
    assert_int_equal(winograd_make(b, g, n, &k, &err), 0);
    run_kernel(&b->base, k, in, out);
}

/* Nodes: y, dx, dw. */
static struct graph *graph_of(const struct row *r)
{
    const union node_attr attr = {.conv = {.stride = {1, 1},
                                           .pad = {r->pad[0], r->pad[1]},
                                           .dilation = {1, 1},
                                           .groups = 1,
                                           .in_image = {r->H, r->W},
                                           .kernel = {3, 3}}};
    union node_attr of_y = attr;
    const struct shape y = SHAPE(r->N, extent(r->H, r->pad[0]), extent(r->W, r->pad[1]), r->K);
    struct graph *g = graph_new(r->N, 1);
    const int x = graph_value(g, VALUE_INPUT, DTYPE_BF16, SHAPE(r->N, r->H, r->W, r->C), "x");
    const int w = graph_value(g, VALUE_INPUT, DTYPE_BF16, SHAPE(r->K, r->C, 3, 3), "w");
    const int b = graph_value(g, VALUE_INPUT, DTYPE_BF16, SHAPE(r->K), "b");
    const int add = graph_value(g, VALUE_INPUT, DTYPE_BF16, y, "add");
    const int dy = graph_value(g, VALUE_INPUT, DTYPE_BF16, y, "dy");
    const int in[] = {x, w, r->more & BIAS ? b : NO_VALUE, r->more & ADD ? add : NO_VALUE};
    int grads[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NEW_OUT, NODE_NO_OUT};
    struct err err;

    of_y.conv.act = r->more & RELU ? ACT_RELU : ACT_NONE;
    assert_int_equal(graph_node(g, OP_conv2d, &of_y, in, 4, NULL, "y", &err), 0);
    assert_int_equal(graph_node(g, OP_conv2d_grad_x, &attr, (int[]){w, dy}, 2, NULL, "dx", &err),
                     0);
    assert_int_equal(graph_node(g, OP_conv2d_grad_w, &attr, (int[]){x, dy}, 2, grads, "dw", &err),
                     0);
    for (int i = 0; i < 2; i++)
        g->value[grads[i]].dtype = DTYPE_F32;
    if (r->more & SUMS)
        g->node[2].adds = 1u << CONV2D_GRAD_W_DW | 1u << CONV2D_GRAD_W_DB;
    return g;
}

static void run_passes(struct cpu *b, const struct row *r, struct tensors *t)
{
    struct graph *g = graph_of(r);

    for (int64_t i = 0; i < n_w(r); i++)
        t->dw[i] = before(i);
    for (int64_t i = 0; i < r->K; i++)
        t->db[i] = before(i);
    run(b, g, &g->node[0],
        (void *[NODE_MAX_IN]){t->x, t->w, r->more & BIAS ? t->b : NULL,
                              r->more & ADD ? t->add : NULL},
        (void *[NODE_MAX_OUT]){t->y});
    run(b, g, &g->node[1], (void *[NODE_MAX_IN]){t->w, t->dy}, (void *[NODE_MAX_OUT]){t->dx});
    run(b, g, &g->node[2], (void *[NODE_MAX_IN]){t->x, t->dy},
        (void *[NODE_MAX_OUT]){t->dw, t->db});
    graph_free(g);
}

/* ---- the twin: [..][..][16] points in double ---- */

/* to [4,4] = m [4,k] d [k,k] m^T */
static void to_points(const double m[4][MOST], int k, const double *d, int is_rounded, double *to)
{
    for (int i = 0; i < POINTS; i++) {
        to[i] = 0;
        for (int j = 0; j < k * k; j++)
            to[i] += m[i / 4][j / k] * d[j] * m[i % 4][j % k];
        if (is_rounded)
            to[i] = (double)bf16_to_float(bf16_from_float((float)to[i]));
    }
}

/* The way back: element i of m^T d m, which has k columns. */
static double from_points(const double m[4][MOST], int k, const double *d, int i)
{
    double sum = 0;

    for (int j = 0; j < POINTS; j++)
        sum += m[j / 4][i / k] * d[j] * m[j % 4][i % k];
    return sum;
}

/* Images [N,H,W,C], and where their tiles begin. */
struct images {
    const uint16_t *at;
    int64_t N, H, W, C, pad[2], tiles_h, tiles_w;
};

/* Channel c of a pixel of tile `tile`; 0 outside of the image. */
static double pixel_of(const struct images *x, int64_t tile, int i, int j, int64_t c)
{
    const int64_t n = tile / (x->tiles_h * x->tiles_w);
    const int64_t h = tile / x->tiles_w % x->tiles_h * 2 + i - x->pad[0];
    const int64_t w = tile % x->tiles_w * 2 + j - x->pad[1];

    if (h < 0 || h >= x->H || w < 0 || w >= x->W)
        return 0;
    return (double)bf16_to_float(x->at[((n * x->H + h) * x->W + w) * x->C + c]);
}

static int64_t n_tiles(const struct images *x) { return x->N * x->tiles_h * x->tiles_w; }

/* [tiles][C][16], of blocks of k x k pixels */
static double *tiles_of(const struct images *x, const double m[4][MOST], int k, int is_rounded)
{
    double *to = xcalloc((size_t)(n_tiles(x) * x->C * POINTS), sizeof *to);

    for (int64_t at = 0; at < n_tiles(x) * x->C; at++) {
        double d[MOST * MOST];

        for (int i = 0; i < k * k; i++)
            d[i] = pixel_of(x, at / x->C, i / k, i % k, at % x->C);
        to_points(m, k, d, is_rounded, to + at * POINTS);
    }
    return to;
}

/* [K][C][16], or for grad_x [C][K][16] of the turned filter */
static double *filter_of(const struct row *r, const uint16_t *w, int is_turned, int is_rounded)
{
    double *to = xcalloc((size_t)(r->K * r->C * POINTS), sizeof *to);

    for (int64_t k = 0; k < r->K; k++)
        for (int64_t c = 0; c < r->C; c++) {
            double d[TAPS];

            for (int i = 0; i < TAPS; i++)
                d[is_turned ? TAPS - 1 - i : i] =
                    (double)bf16_to_float(w[(k * r->C + c) * TAPS + i]);
            to_points(G, 3, d, is_rounded, to + (is_turned ? c * r->K + k : k * r->C + c) * POINTS);
        }
    return to;
}

/* y [N,P,Q,K] of tiles [..][C][16] and a filter [K][C][16] */
static double *forward_twin(const struct images *x, const double *tiles, const double *filter,
                            const struct images *y)
{
    double *to = xcalloc((size_t)(y->N * y->H * y->W * y->C), sizeof *to);

    for (int64_t t = 0; t < n_tiles(x); t++)
        for (int64_t k = 0; k < y->C; k++) {
            double m[POINTS] = {0};

            for (int64_t c = 0; c < x->C * POINTS; c++)
                m[c % POINTS] += tiles[t * x->C * POINTS + c] * filter[k * x->C * POINTS + c];
            for (int i = 0; i < 4; i++) {
                const int64_t h = t / x->tiles_w % x->tiles_h * 2 + i / 2;
                const int64_t w = t % x->tiles_w * 2 + i % 2;

                if (h < y->H && w < y->W)
                    to[((t / (x->tiles_h * x->tiles_w) * y->H + h) * y->W + w) * y->C + k] =
                        from_points(A, 2, m, i);
            }
        }
    return to;
}

/* dw [K,C,3,3] of tiles of x [..][C][16] and of dy [..][K][16] */
static double *grad_w_twin(const struct images *x, const double *of_x, const struct images *dy,
                           const double *of_dy)
{
    double *to = xcalloc((size_t)(dy->C * x->C * TAPS), sizeof *to);

    for (int64_t at = 0; at < dy->C * x->C; at++) {
        const int64_t k = at / x->C, c = at % x->C;
        double u[POINTS] = {0};

        for (int64_t t = 0; t < n_tiles(x); t++)
            for (int i = 0; i < POINTS; i++)
                u[i] += of_x[(t * x->C + c) * POINTS + i] * of_dy[(t * dy->C + k) * POINTS + i];
        for (int i = 0; i < TAPS; i++)
            to[at * TAPS + i] = from_points(G, 3, u, i);
    }
    return to;
}

struct twin {
    double *y, *dx, *dw, *db;
};

/* Add to the convolutions whatever else the row has. */
static void finish(const struct row *r, const struct tensors *t, struct twin *to)
{
    for (int64_t i = 0; i < n_y(r); i++) {
        if (r->more & BIAS)
            to->y[i] += (double)bf16_to_float(t->b[i % r->K]);
        if (r->more & ADD)
            to->y[i] += (double)bf16_to_float(t->add[i]);
        if (r->more & RELU)
            to->y[i] = fmax(to->y[i], 0);
    }
    for (int64_t i = 0; r->more & SUMS && i < n_w(r); i++)
        to->dw[i] += (double)before(i);
    for (int64_t i = 0; r->more & SUMS && i < r->K; i++)
        to->db[i] += (double)before(i);
}

static struct twin twin_new(const struct row *r, const struct tensors *t, int is_rounded)
{
    const int64_t P = extent(r->H, r->pad[0]), Q = extent(r->W, r->pad[1]);
    const int64_t th = ceil_div_i64(P, 2), tw = ceil_div_i64(Q, 2);
    const struct images x = {t->x, r->N, r->H, r->W, r->C, {r->pad[0], r->pad[1]}, th, tw};
    const struct images dy = {t->dy, r->N, P, Q, r->K, {0, 0}, th, tw};
    const struct images back = {t->dy,
                                r->N,
                                P,
                                Q,
                                r->K,
                                {2 - r->pad[0], 2 - r->pad[1]},
                                ceil_div_i64(r->H, 2),
                                ceil_div_i64(r->W, 2)};
    double *part[] = {tiles_of(&x, B_T, 4, is_rounded), tiles_of(&dy, A, 2, is_rounded),
                      tiles_of(&back, B_T, 4, is_rounded), filter_of(r, t->w, 0, is_rounded),
                      filter_of(r, t->w, 1, is_rounded)};
    struct twin twin = {
        forward_twin(&x, part[0], part[3], &dy), forward_twin(&back, part[2], part[4], &x),
        grad_w_twin(&x, part[0], &dy, part[1]), xcalloc((size_t)r->K, sizeof(double))};

    for (size_t i = 0; i < ARRAY_LEN(part); i++)
        free(part[i]);
    for (int64_t i = 0; i < n_y(r); i++)
        twin.db[i % r->K] += (double)bf16_to_float(t->dy[i]);
    finish(r, t, &twin);
    return twin;
}

static void twin_free(struct twin *t)
{
    free(t->y);
    free(t->dx);
    free(t->dw);
    free(t->db);
}

/* ---- */

/* Each number is the twin's but for the rounding of F32's sums, and for its own rounding. */
static void want_near(const char *what, const void *x, enum dtype type, const double *want,
                      int64_t n)
{
    double largest = 0;

    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) {
        const double seen = (double)real_get(x, type, i);

        if (!(fabs(seen - want[i]) <=
              1e-5 * largest + (type == DTYPE_BF16 ? 0x1p-8 * fabs(want[i]) : 0)))
            fail_msg("%s[%d] is %.9g, want %.9g", what, (int)i, seen, want[i]);
    }
}

/* The errors' root mean square, as a part of that of the numbers. */
static void want_errors(const char *what, const void *x, enum dtype type, const double *want,
                        int64_t n, double most)
{
    double error = 0, size = 0;

    for (int64_t i = 0; i < n; i++) {
        const double e = (double)real_get(x, type, i) - want[i];

        error += e * e;
        size += want[i] * want[i];
    }
    printf("%s: errors are %.5f of the numbers\n", what, sqrt(error / size));
    assert_true(sqrt(error / size) <= most);
}

static void check(const struct row *r, const struct tensors *t, const struct twin *rounded,
                  const struct twin *plain)
{
    want_near("y", t->y, DTYPE_BF16, rounded->y, n_y(r));
    want_near("dx", t->dx, DTYPE_BF16, rounded->dx, n_x(r));
    want_near("dw", t->dw, DTYPE_F32, rounded->dw, n_w(r));
    want_near("db", t->db, DTYPE_F32, rounded->db, r->K);
    want_errors("y", t->y, DTYPE_BF16, plain->y, n_y(r), 0x1p-7);
    want_errors("dx", t->dx, DTYPE_BF16, plain->dx, n_x(r), 0x1p-7);
    want_errors("dw", t->dw, DTYPE_F32, plain->dw, n_w(r), 0x1p-7);
}

static void test_rows(void **state)
{
    struct backend *b;
    struct err err;

    (void)state;
    if (!outer_has_pairs())
        skip();
    assert_int_equal(backend_open_cpu(1, &b, &err), 0);
    container_of(b, struct cpu, base)->widens_bf16 = 0;
    container_of(b, struct cpu, base)->least_work = 1;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tensors t = tensors_new(&rows[i]);
        struct twin rounded = twin_new(&rows[i], &t, 1), plain = twin_new(&rows[i], &t, 0);

        for (int threads = 1; threads <= THREADS; threads++) {
            backend_set_threads(b, threads);
            run_passes(container_of(b, struct cpu, base), &rows[i], &t);
            check(&rows[i], &t, &rounded, &plain);
        }
        tensors_free(&t);
        twin_free(&rounded);
        twin_free(&plain);
    }
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
