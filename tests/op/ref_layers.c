/* ref_layers - the naive kernels with weights or windows: convolution, linear, pooling.  Each is
 * the formula in op/NAME.c, with sums in double. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "ref_kernels.h"

/* A convolution; of the three arrays one is NULL, whose elements are added up in `sum`. */
struct conv {
    const struct ref_node *n;
    const struct shape *x, *w, *y;
    const float *of_x, *of_w, *of_y;
    double *sum;
};

/* One product of a convolution, of these elements of x, w and y. */
static void add_product(const struct conv *v, int64_t x, int64_t w, int64_t y)
{
    if (!v->of_y)
        v->sum[y] += (double)v->of_x[x] * v->of_w[w];
    else if (!v->of_x)
        v->sum[x] += (double)v->of_w[w] * v->of_y[y];
    else
        v->sum[w] += (double)v->of_x[x] * v->of_y[y];
}

/* The products for element y of [N,H',W',K], which is that of filter k at (p,q). */
static void add_products(const struct conv *v, int64_t y, int64_t p, int64_t q, int64_t k)
{
    const int *stride = v->n->attr.conv.stride, *pad = v->n->attr.conv.pad,
              *dilation = v->n->attr.conv.dilation;
    const int64_t H = v->x->dim[1], W = v->x->dim[2], C = v->x->dim[3];
    const int64_t K = v->w->dim[0], Cg = v->w->dim[1], R = v->w->dim[2], S = v->w->dim[3];
    const int64_t sample = y / v->y->dim[1] / v->y->dim[2] / K;
    const int64_t first = k / (K / v->n->attr.conv.groups) * Cg;

    for (int64_t c = 0; c < Cg; c++)
        for (int64_t r = 0; r < R; r++)
            for (int64_t s = 0; s < S; s++) {
                const int64_t h = p * stride[0] - pad[0] + r * dilation[0];
                const int64_t w = q * stride[1] - pad[1] + s * dilation[1];

                if (h >= 0 && h < H && w >= 0 && w < W) /* else x lies in the padding */
                    add_product(v, ((sample * H + h) * W + w) * C + first + c,
                                ((k * Cg + c) * R + r) * S + s, y);
            }
}

static void convolve(const struct conv *v)
{
    int64_t y = 0;

    for (int64_t sample = 0; sample < v->y->dim[0]; sample++)
        for (int64_t p = 0; p < v->y->dim[1]; p++)
            for (int64_t q = 0; q < v->y->dim[2]; q++)
                for (int64_t k = 0; k < v->y->dim[3]; k++)
                    add_products(v, y++, p, q, k);
}

void ref_conv2d(const struct ref_node *n)
{
    const struct shape *shape = &n->out_shape[CONV2D_Y];
    const float *b = n->in[CONV2D_B], *add = n->in[CONV2D_ADD];
    const int64_t n_y = shape_elements(shape);
    double *sum = ref_sums(n_y);
    float *y = n->out[CONV2D_Y];

    convolve(&(struct conv){.n = n,
                            .x = &n->in_shape[CONV2D_X],
                            .w = &n->in_shape[CONV2D_W],
                            .y = shape,
                            .of_x = n->in[CONV2D_X],
                            .of_w = n->in[CONV2D_W],
                            .sum = sum});
    for (int64_t i = 0; i < n_y; i++)
        y[i] = (float)ref_activate(n->attr.conv.act,
                                   sum[i] + (b ? b[i % shape->dim[3]] : 0) + (add ? add[i] : 0));
    free(sum);
}

void ref_conv2d_grad_x(const struct ref_node *n)
{
    const struct shape *x = &n->out_shape[CONV2D_GRAD_X_DX];
    double *sum = ref_sums(shape_elements(x));

    convolve(&(struct conv){.n = n,
                            .x = x,
                            .w = &n->in_shape[CONV2D_GRAD_X_W],
                            .y = &n->in_shape[CONV2D_GRAD_X_DY],
                            .of_w = n->in[CONV2D_GRAD_X_W],
                            .of_y = n->in[CONV2D_GRAD_X_DY],
                            .sum = sum});
    ref_round(sum, shape_elements(x), n->out[CONV2D_GRAD_X_DX]);
    free(sum);
}

/* Column sums of dy [rows, c]. */
static void sum_rows(const float *dy, int64_t n, int64_t c, float *db)
{
    double *sum = ref_sums(c);

    for (int64_t i = 0; i < n; i++)
        sum[i % c] += dy[i];
    ref_round(sum, c, db);
    free(sum);
}

void ref_conv2d_grad_w(const struct ref_node *n)
{
    const struct shape *w = &n->out_shape[CONV2D_GRAD_W_DW], *y = &n->in_shape[CONV2D_GRAD_W_DY];
    const float *dy = n->in[CONV2D_GRAD_W_DY];
    double *sum = ref_sums(shape_elements(w));

    convolve(&(struct conv){.n = n,
                            .x = &n->in_shape[CONV2D_GRAD_W_X],
                            .w = w,
                            .y = y,
                            .of_x = n->in[CONV2D_GRAD_W_X],
                            .of_y = dy,
                            .sum = sum});
    ref_round(sum, shape_elements(w), n->out[CONV2D_GRAD_W_DW]);
    if (n->out[CONV2D_GRAD_W_DB])
        sum_rows(dy, shape_elements(y), y->dim[3], n->out[CONV2D_GRAD_W_DB]);
    free(sum);
}

/* The element of a sample of x that column i of w is multiplied with. */
static int64_t linear_column(const struct ref_node *n, int64_t i)
{
    const int64_t *image = n->attr.linear.image, H = image[0], W = image[1], C = image[2];

    return H ? (i / W % H * W + i % W) * C + i / W / H : i;
}

/* The mask's bit for column c of a sample. */
static int32_t bit_of(int64_t c) { return (int32_t)(1u << c % 32); }

static void save(const struct ref_node *n, int64_t i, double pre)
{
    const int64_t k = n->out_shape[LINEAR_Y].dim[1],
                  words = n->out[LINEAR_MASK] ? n->out_shape[LINEAR_MASK].dim[1] : 0;
    int32_t *row = words ? (int32_t *)n->out[LINEAR_MASK] + i / k * words : NULL;

    if (row && i % k == 0)
        memset(row, 0, (size_t)words * sizeof *row);
    if (row && pre > 0)
        row[i % k / 32] |= bit_of(i % k);
    if (n->out[LINEAR_PRE])
        ((float *)n->out[LINEAR_PRE])[i] = (float)pre;
}

/* The fused activation's derivative for element i of dx [rows,c]; 1 if none is fused. */
static double through(const struct ref_node *n, int64_t i, int64_t c)
{
    const int32_t *mask = n->in[LINEAR_GRAD_X_MASK];
    const float *pre = n->in[LINEAR_GRAD_X_PRE];

    if (mask)
        return (mask[i / c * n->in_shape[LINEAR_GRAD_X_MASK].dim[1] + i % c / 32] &
                bit_of(i % c)) != 0;
    return pre ? ref_activate_grad(n->attr.linear.act, (double)pre[i], 0) : 1;
}

/* Output k and input c of a layer in its weight of K outputs and C inputs. */
static int64_t in_weight(const struct ref_node *n, int64_t k, int64_t c, int64_t K, int64_t C)
{
    return n->attr.linear.transposed ? c * K + k : k * C + c;
}

void ref_linear(const struct ref_node *n)
{
    const int64_t N = n->out_shape[LINEAR_Y].dim[0], K = n->out_shape[LINEAR_Y].dim[1],
                  C = shape_elements(&n->in_shape[LINEAR_W]) / K;
    const float *x = n->in[LINEAR_X], *w = n->in[LINEAR_W], *b = n->in[LINEAR_B];
    float *y = n->out[LINEAR_Y];

    for (int64_t i = 0; i < N * K; i++) {
        double sum = b ? b[i % K] : 0;

        for (int64_t c = 0; c < C; c++)
            sum += (double)x[i / K * C + linear_column(n, c)] * w[in_weight(n, i % K, c, K, C)];
        y[i] = (float)ref_activate(n->attr.linear.act, sum);
        save(n, i, sum);
    }
}

void ref_linear_grad_x(const struct ref_node *n)
{
    const int64_t N = n->in_shape[LINEAR_GRAD_X_DY].dim[0],
                  K = n->in_shape[LINEAR_GRAD_X_DY].dim[1],
                  C = shape_elements(&n->in_shape[LINEAR_GRAD_X_W]) / K;
    const float *w = n->in[LINEAR_GRAD_X_W], *dy = n->in[LINEAR_GRAD_X_DY];
    float *dx = n->out[LINEAR_GRAD_X_DX];

    for (int64_t i = 0; i < N * C; i++) {
        double sum = 0;

        for (int64_t k = 0; k < K; k++)
            sum += (double)dy[i / C * K + k] * w[in_weight(n, k, i % C, K, C)];
        dx[i / C * C + linear_column(n, i % C)] = (float)(sum * through(n, i, C));
    }
}

void ref_linear_grad_w(const struct ref_node *n)
{
    const int64_t N = n->in_shape[LINEAR_GRAD_W_DY].dim[0],
                  K = n->in_shape[LINEAR_GRAD_W_DY].dim[1],
                  C = shape_elements(&n->out_shape[LINEAR_GRAD_W_DW]) / K;
    const float *x = n->in[LINEAR_GRAD_W_X], *dy = n->in[LINEAR_GRAD_W_DY];
    float *dw = n->out[LINEAR_GRAD_W_DW];

    for (int64_t k = 0; k < K; k++)
        for (int64_t c = 0; c < C; c++) {
            double sum = 0;

            for (int64_t s = 0; s < N; s++)
                sum += (double)dy[s * K + k] * x[s * C + linear_column(n, c)];
            dw[in_weight(n, k, c, K, C)] = (float)sum;
        }
    if (n->out[LINEAR_GRAD_W_DB])
        sum_rows(dy, N * K, K, n->out[LINEAR_GRAD_W_DB]);
}

/* A window of a pool: rows [h0,h1), columns [w0,w1) inside the image, and the divisor. */
struct window {
    int64_t h0, h1, w0, w1, base, step; /* element (h,w) is base + (h*W + w)*step */
    double divisor;
};

static struct window pool_window(const struct ref_node *n, const struct shape *x,
                                 const struct shape *y, int64_t i)
{
    const int64_t C = y->dim[3], q = i / C % y->dim[2], p = i / C / y->dim[2] % y->dim[1];
    const int64_t sample = i / C / y->dim[2] / y->dim[1];
    const int64_t h = p * n->attr.pool.stride[0] - n->attr.pool.pad[0];
    const int64_t w = q * n->attr.pool.stride[1] - n->attr.pool.pad[1];
    struct window v = {
        .h0 = max_i64(h, 0),
        .h1 = min_i64(h + n->attr.pool.kernel[0], x->dim[1]),
        .w0 = max_i64(w, 0),
        .w1 = min_i64(w + n->attr.pool.kernel[1], x->dim[2]),
        .base = sample * x->dim[1] * x->dim[2] * C + i % C,
        .step = C,
    };

    v.divisor = n->attr.pool.count_pad ? n->attr.pool.kernel[0] * n->attr.pool.kernel[1]
                                       : (double)((v.h1 - v.h0) * (v.w1 - v.w0));
    return v;
}

void ref_pool2d(const struct ref_node *n)
{
    const struct shape *x_shape = &n->in_shape[POOL2D_X], *y_shape = &n->out_shape[POOL2D_Y];
    const float *x = n->in[POOL2D_X];
    float *y = n->out[POOL2D_Y];
    int32_t *which = n->out[POOL2D_WHICH];

    for (int64_t i = 0; i < shape_elements(y_shape); i++) {
        struct window v = pool_window(n, x_shape, y_shape, i);
        double sum = 0, most = 0;
        int64_t best = -1;

        for (int64_t h = v.h0; h < v.h1; h++)
            for (int64_t w = v.w0; w < v.w1; w++) {
                const int64_t at = h * x_shape->dim[2] + w;
                const float e = x[v.base + at * v.step];

                sum += e;
                if (best < 0 || e > most || (isnan(e) && !isnan(most))) {
                    most = e;
                    best = at;
                }
            }
        y[i] = (float)(n->attr.pool.kind == POOL_MAX ? most : sum / v.divisor);
        if (which)
            which[i] = (int32_t)best;
    }
}

void ref_pool2d_grad(const struct ref_node *n)
{
    const struct shape *x_shape = &n->out_shape[POOL2D_GRAD_DX],
                       *y_shape = &n->in_shape[POOL2D_GRAD_DY];
    const float *dy = n->in[POOL2D_GRAD_DY], *y_act = n->in[POOL2D_GRAD_Y_ACT];
    const int32_t *which = n->in[POOL2D_GRAD_WHICH];
    float *dx = n->out[POOL2D_GRAD_DX];
    double *sum = ref_sums(shape_elements(x_shape));

    for (int64_t i = 0; i < shape_elements(y_shape); i++) {
        struct window v = pool_window(n, x_shape, y_shape, i);

        if (which)
            sum[v.base + which[i] * v.step] += dy[i];
        for (int64_t h = v.h0; !which && h < v.h1; h++)
            for (int64_t w = v.w0; w < v.w1; w++)
                sum[v.base + (h * x_shape->dim[2] + w) * v.step] += dy[i] / v.divisor;
    }
    for (int64_t i = 0; i < shape_elements(x_shape); i++)
        dx[i] = (float)(sum[i] * (y_act ? ref_activate_grad(n->attr.pool.act, 0, y_act[i]) : 1));
    free(sum);
}
