/* ref_recurrent - the naive kernels of recurrent layers, in double. */
#include <math.h>
#include <stdlib.h>

#include "ref_kernels.h"

/* One sample of a node of either operator. */
struct ref_sample {
    enum recurrent kind;
    int64_t at, T, H, G; /* which sample; time steps, units, gates */
    int reverse;
    const float *w;
};

static double ref_sigmoid(double x) { return 1 / (1 + exp(-x)); }

static struct ref_sample ref_sample_of(const struct ref_node *n, int64_t at, int w)
{
    const enum recurrent kind = n->attr.recurrent.kind;

    return (struct ref_sample){kind,
                               at,
                               n->attr.recurrent.length,
                               n->in_shape[w].dim[1],
                               kind == RECURRENT_LSTM  ? 4
                               : kind == RECURRENT_GRU ? 3
                                                       : 1,
                               n->attr.recurrent.reverse,
                               n->in[w]};
}

/* The row of the k-th step. */
static int64_t ref_row(const struct ref_sample *s, int64_t k)
{
    return s->at * s->T + (s->reverse ? s->T - 1 - k : k);
}

/* gh = h w^T + b */
static void ref_product(const struct ref_sample *s, const float *b, const double *h, double *gh)
{
    for (int64_t o = 0; o < s->G * s->H; o++) {
        gh[o] = b ? b[o] : 0;
        for (int64_t j = 0; j < s->H; j++)
            gh[o] += h[j] * s->w[o * s->H + j];
    }
}

/* One unit of one step; saved: its 4 numbers, H apart, or NULL. */
static void ref_unit(const struct ref_sample *s, const float *gx, const double *gh, double *h,
                     double *c, float *saved)
{
    const int64_t H = s->H;
    double v[4] = {0};

    if (s->kind == RECURRENT_LSTM) {
        for (int k = 0; k < 4; k++)
            v[k] = k == 2 ? tanh(gx[k * H] + gh[k * H]) : ref_sigmoid(gx[k * H] + gh[k * H]);
        *c = v[1] * *c + v[0] * v[2];
        *h = v[3] * tanh(*c);
    } else if (s->kind == RECURRENT_GRU) {
        v[0] = ref_sigmoid(gx[0] + gh[0]);
        v[1] = ref_sigmoid(gx[H] + gh[H]);
        v[2] = tanh(gx[2 * H] + v[0] * gh[2 * H]);
        v[3] = gh[2 * H];
        *h = (1 - v[1]) * v[2] + v[1] * *h;
    } else {
        *h = s->kind == RECURRENT_TANH ? tanh(gx[0] + gh[0]) : fmax(gx[0] + gh[0], 0);
    }
    for (int k = 0; k < 4 && saved; k++)
        saved[k * H] = (float)v[k];
}

void ref_recurrent(const struct ref_node *n)
{
    const float *gx = n->in[RECURRENT_GX], *h0 = n->in[RECURRENT_H0], *c0 = n->in[RECURRENT_C0];
    float *y = n->out[RECURRENT_Y], *cell = n->out[RECURRENT_CELL];
    float *saved = n->out[RECURRENT_SAVED];
    const int64_t N = n->in_shape[RECURRENT_GX].dim[0] / n->attr.recurrent.length;

    for (int64_t at = 0; at < N; at++) {
        const struct ref_sample s = ref_sample_of(n, at, RECURRENT_W);
        double *h = ref_sums(s.H), *c = ref_sums(s.H), *gh = ref_sums(s.G * s.H);

        for (int64_t j = 0; j < s.H; j++) {
            h[j] = h0 ? h0[at * s.H + j] : 0;
            c[j] = c0 ? c0[at * s.H + j] : 0;
        }
        for (int64_t k = 0; k < s.T; k++) {
            const int64_t row = ref_row(&s, k);

            ref_product(&s, n->in[RECURRENT_B], h, gh);
            for (int64_t j = 0; j < s.H; j++) {
                ref_unit(&s, gx + row * s.G * s.H + j, gh + j, &h[j], &c[j],
                         saved ? saved + row * 4 * s.H + j : NULL);
                y[row * s.H + j] = (float)h[j];
                if (cell)
                    cell[row * s.H + j] = (float)c[j];
            }
        }
        free(h);
        free(c);
        free(gh);
    }
}

/* The operands of the gradient of a unit at one step: its 4 saved numbers, H apart; h and c before.
 */
struct ref_place {
    const float *saved;
    double y, cell, h_before, c_before;
};

/* dx, dgh: G numbers, H apart.  dh and dc become what goes on to the step before; dh lacks the
 * product with w. */
static void ref_unit_grad(const struct ref_sample *s, const struct ref_place *p, double *dh,
                          double *dc, double *dx, double *dgh)
{
    const int64_t H = s->H;
    double v[4] = {0};

    for (int k = 0; k < 4 && p->saved; k++)
        v[k] = p->saved[k * H];
    if (s->kind == RECURRENT_LSTM) {
        const double t = tanh(p->cell), d = *dc + *dh * v[3] * (1 - t * t);

        dx[0] = d * v[2] * v[0] * (1 - v[0]);
        dx[H] = d * p->c_before * v[1] * (1 - v[1]);
        dx[2 * H] = d * v[0] * (1 - v[2] * v[2]);
        dx[3 * H] = *dh * t * v[3] * (1 - v[3]);
        *dc = d * v[1];
        *dh = 0;
    } else if (s->kind == RECURRENT_GRU) {
        dx[2 * H] = *dh * (1 - v[1]) * (1 - v[2] * v[2]);
        dx[H] = *dh * (p->h_before - v[2]) * v[1] * (1 - v[1]);
        dx[0] = dx[2 * H] * v[3] * v[0] * (1 - v[0]);
        *dh *= v[1];
    } else {
        dx[0] = s->kind == RECURRENT_TANH ? *dh * (1 - p->y * p->y) : p->y > 0 ? *dh : 0;
        *dh = 0;
    }
    for (int64_t k = 0; k < s->G; k++)
        dgh[k * H] = dx[k * H] * (s->kind == RECURRENT_GRU && k == 2 ? v[0] : 1);
}

/* dh += dgh w */
static void ref_product_grad(const struct ref_sample *s, const double *dgh, double *dh)
{
    for (int64_t o = 0; o < s->G * s->H; o++)
        for (int64_t j = 0; j < s->H; j++)
            dh[j] += dgh[o] * s->w[o * s->H + j];
}

static double ref_before(const struct ref_node *n, const struct ref_sample *s, int in, int initial,
                         int64_t k, int64_t j)
{
    const float *x = n->in[in], *first = n->in[initial];

    return k > 0 ? x ? x[ref_row(s, k - 1) * s->H + j] : 0 : first ? first[s->at * s->H + j] : 0;
}

static double ref_at(const void *x, int64_t i) { return x ? ((const float *)x)[i] : 0; }

static void ref_step_grad(const struct ref_node *n, const struct ref_sample *s, int64_t k,
                          double *dh, double *dc)
{
    const int64_t row = ref_row(s, k), H = s->H;
    const float *saved = n->in[RECURRENT_GRAD_SAVED];
    double *dx = ref_sums(s->G * H), *dgh = ref_sums(s->G * H);
    float *prev = n->out[RECURRENT_GRAD_PREV];

    for (int64_t j = 0; j < H; j++) {
        const struct ref_place p = {saved ? saved + row * 4 * H + j : NULL,
                                    ref_at(n->in[RECURRENT_GRAD_Y], row * H + j),
                                    ref_at(n->in[RECURRENT_GRAD_CELL], row * H + j),
                                    ref_before(n, s, RECURRENT_GRAD_Y, RECURRENT_GRAD_H0, k, j),
                                    ref_before(n, s, RECURRENT_GRAD_CELL, RECURRENT_GRAD_C0, k, j)};

        dh[j] += ref_at(n->in[RECURRENT_GRAD_DY], row * H + j);
        dc[j] += ref_at(n->in[RECURRENT_GRAD_DCELL], row * H + j);
        ref_unit_grad(s, &p, &dh[j], &dc[j], dx + j, dgh + j);
        if (prev)
            prev[row * H + j] = (float)p.h_before;
    }
    ref_product_grad(s, dgh, dh);
    ref_round(dx, s->G * H, (float *)n->out[RECURRENT_GRAD_DGX] + row * s->G * H);
    if (n->out[RECURRENT_GRAD_DGH])
        ref_round(dgh, s->G * H, (float *)n->out[RECURRENT_GRAD_DGH] + row * s->G * H);
    free(dx);
    free(dgh);
}

void ref_recurrent_grad(const struct ref_node *n)
{
    const int64_t N = n->in_shape[RECURRENT_GRAD_Y].dim[0] / n->attr.recurrent.length;

    for (int64_t at = 0; at < N; at++) {
        const struct ref_sample s = ref_sample_of(n, at, RECURRENT_GRAD_W);
        double *dh = ref_sums(s.H), *dc = ref_sums(s.H);

        for (int64_t k = s.T - 1; k >= 0; k--)
            ref_step_grad(n, &s, k, dh, dc);
        if (n->out[RECURRENT_GRAD_DH0])
            ref_round(dh, s.H, (float *)n->out[RECURRENT_GRAD_DH0] + at * s.H);
        if (n->out[RECURRENT_GRAD_DC0])
            ref_round(dc, s.H, (float *)n->out[RECURRENT_GRAD_DC0] + at * s.H);
        free(dh);
        free(dc);
    }
}
