/* filter_grad - checks a kernel of BF16 filters' gradients beside the plain sum in double.
 *
 * Threads: any. */
#ifndef TESTS_BACKEND_FILTER_GRAD_H
#define TESTS_BACKEND_FILTER_GRAD_H

#include <math.h>

#include "backend/cpu/cpu.h"
#include "base/util.h"
#include "kernels.h"

struct filter_row {
    int64_t N, H, W, C, K, R, S, stride[2], pad[2];
};

typedef int filter_make(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err);

struct filter_case {
    const struct filter_row *row;
    int64_t P, Q;
    uint16_t *x, *dy;
    float *dw, *db; /* db NULL: the kernel makes none */
    unsigned adds;  /* 1: dw is added to what is there; 2: db is; 3: both are */
};

static inline struct filter_case filter_case_of(const struct filter_row *row, int with_db)
{
    struct filter_case c = {.row = row,
                            .P = conv_extent(row->H, row->R, row->stride[0], row->pad[0]),
                            .Q = conv_extent(row->W, row->S, row->stride[1], row->pad[1])};

    c.x = bf16_numbers(row->N * row->H * row->W * row->C, 1);
    c.dy = bf16_numbers(row->N * c.P * c.Q * row->K, 2);
    c.dw = xcalloc((size_t)(row->K * row->C * row->R * row->S), sizeof *c.dw);
    c.db = with_db ? xcalloc((size_t)row->K, sizeof *c.db) : NULL;
    return c;
}

static inline void filter_case_free(struct filter_case *c)
{
    free(c->x);
    free(c->dy);
    free(c->dw);
    free(c->db);
}

/* dw[k][c][r][s] of at = {k, c, r, s}, and the sum of its terms' absolute values. */
static inline double filter_sum_of(const struct filter_case *c, const int64_t at[4], double *size)
{
    const struct filter_row *w = c->row;
    double sum = 0;

    *size = 0;
    for (int64_t i = 0; i < w->N * c->P * c->Q; i++) {
        const int64_t h = i / c->Q % c->P * w->stride[0] + at[2] - w->pad[0];
        const int64_t v = i % c->Q * w->stride[1] + at[3] - w->pad[1];
        double term;

        if (h < 0 || h >= w->H || v < 0 || v >= w->W)
            continue;
        term =
            (double)bf16_to_float(c->dy[i * w->K + at[0]]) *
            (double)bf16_to_float(c->x[((i / (c->P * c->Q) * w->H + h) * w->W + v) * w->C + at[1]]);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static inline double filter_bias_of(const struct filter_case *c, int64_t k, double *size)
{
    double sum = 0;

    *size = 0;
    for (int64_t i = 0; i < c->row->N * c->P * c->Q; i++) {
        const double term = (double)bf16_to_float(c->dy[i * c->row->K + k]);

        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static inline void want_filter(const struct filter_case *c, int row)
{
    const struct filter_row *w = c->row;
    const int64_t taps = w->R * w->S;
    double size;

    for (int64_t i = 0; i < w->K * w->C * taps; i++) {
        const int64_t at[4] = {i / (w->C * taps), i / taps % w->C, i / w->S % w->R, i % w->S};
        const double want = filter_sum_of(c, at, &size);

        if (!(fabs((double)c->dw[i] - want) <= 1e-5 * size))
            fail_msg("row %d, dw[%d]: %.9g, want %.9g", row, (int)i, (double)c->dw[i], want);
    }
    for (int64_t k = 0; c->db && k < w->K; k++) {
        const double want = filter_bias_of(c, k, &size);

        if (!(fabs((double)c->db[k] - want) <= 1e-5 * size))
            fail_msg("row %d, db[%d]: %.9g, want %.9g", row, (int)k, (double)c->db[k], want);
    }
}

static inline void run_filter(struct cpu *b, const struct filter_case *c, filter_make *make)
{
    const struct filter_row *w = c->row;
    const union node_attr attr = {.conv = {.stride = {(int)w->stride[0], (int)w->stride[1]},
                                           .pad = {(int)w->pad[0], (int)w->pad[1]},
                                           .dilation = {1, 1},
                                           .groups = 1,
                                           .in_image = {w->H, w->W},
                                           .kernel = {(int)w->R, (int)w->S}}};
    struct graph *g = graph_new(w->N, 1);
    const int in[] = {graph_value(g, VALUE_INPUT, DTYPE_BF16, SHAPE(w->N, w->H, w->W, w->C), "x"),
                      graph_value(g, VALUE_INPUT, DTYPE_BF16, SHAPE(w->N, c->P, c->Q, w->K), "dy")};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, c->db ? NODE_NEW_OUT : NODE_NO_OUT, NODE_NO_OUT};
    struct kernel *k;
    struct err err;

    assert_int_equal(graph_node(g, OP_conv2d_grad_w, &attr, in, 2, out, "dw", &err), 0);
    g->value[out[0]].dtype = DTYPE_F32;
    if (c->db)
        g->value[out[1]].dtype = DTYPE_F32;
    g->node[0].adds = (c->adds & 1u) << CONV2D_GRAD_W_DW | (c->adds >> 1 & 1u) << CONV2D_GRAD_W_DB;
    assert_int_equal(make(b, g, &g->node[0], &k, &err), 0);
    run_kernel(&b->base, k, (void *[NODE_MAX_IN]){c->x, c->dy},
               (void *[NODE_MAX_OUT]){c->dw, c->db});
    graph_free(g);
}

#endif
