/* recurrent - the steps of LSTM, GRU and RNN, and their gradient: a product with w by oneDNN's
 * dnnl_sgemm at each step, and a loop of ours over the units.
 *
 * The samples are independent of each other, so each thread takes some of them through all steps,
 * BLOCK at a time, whose state stays in the thread's scratch.  A BF16 w is widened once.  A row of
 * an operand, one sample at one step, is widened or rounded by itself.
 * oneDNN has primitives of whole layers, too.  They want the steps outermost and the input's
 * product inside, and their gates in an order of their own.
 * op/recurrent.c has the formulas; the twin is cuda/recurrent.cu. */
#include <oneapi/dnnl/dnnl.h>

#include <math.h>
#include <string.h>

#include "backend/cpu/convert.h"
#include "backend/cpu/plain.h"
#include "backend/cpu/vector.h"
#include "base/util.h"

enum { BLOCK = 64, SAVED = 4 /* times H: a row of `saved` */ };

/* Samples [first, first + n) of a node of either operator, and the thread's scratch. */
struct steps {
    const struct plain *p;
    enum recurrent kind;
    int64_t first, n, T, H, G; /* T time steps, H units, G gates */
    const float *w;            /* [G*H,H] */
    float *h, *c;              /* [n,H]: the state; of the gradient, that of the state */
    float *gates;              /* [n,G*H]: the product with w, or the gradient of its sum */
    float *room;               /* ROOMS rows, for what is widened or rounded */
};

enum { ROOMS = 16 /* times H */ };

/* ---- arithmetic ---- */

/* Near 0 the quotient would lose digits. */
static inline float tanh_of(float x)
{
    const float e = exp_of(x < 0 ? 2 * x : -2 * x), s = x * x;
    const float far = (1.0f - e) / (1.0f + e);
    const float near =
        x * (1.0f +
             s * (-0.333333333f + s * (0.133333333f + s * (-0.0539682540f + s * 0.0218694885f))));

    return s < 0.0625f ? near : x < 0 ? -far : far;
}

/* All rows here are of H elements; none overlaps another. */

CPU_CLONES static void lstm_step(const float *restrict gx, float *restrict gate, float *restrict c,
                                 float *restrict h, int64_t H)
{
    CPU_INDEPENDENT
    for (int64_t j = 0; j < H; j++) {
        const float i = sigmoid_of(gx[j] + gate[j]);
        const float f = sigmoid_of(gx[H + j] + gate[H + j]);
        const float g = tanh_of(gx[2 * H + j] + gate[2 * H + j]);
        const float o = sigmoid_of(gx[3 * H + j] + gate[3 * H + j]);

        c[j] = f * c[j] + i * g;
        h[j] = o * tanh_of(c[j]);
        gate[j] = i;
        gate[H + j] = f;
        gate[2 * H + j] = g;
        gate[3 * H + j] = o;
    }
}

/* saved: r, z, n and the third part of the product. */
CPU_CLONES static void gru_step(const float *restrict gx, const float *restrict gh,
                                float *restrict saved, float *restrict h, int64_t H)
{
    CPU_INDEPENDENT
    for (int64_t j = 0; j < H; j++) {
        const float r = sigmoid_of(gx[j] + gh[j]), z = sigmoid_of(gx[H + j] + gh[H + j]);
        const float n = tanh_of(gx[2 * H + j] + r * gh[2 * H + j]);

        h[j] = (1.0f - z) * n + z * h[j];
        saved[j] = r;
        saved[H + j] = z;
        saved[2 * H + j] = n;
        saved[3 * H + j] = gh[2 * H + j];
    }
}

CPU_CLONES static void tanh_step(const float *restrict gx, const float *restrict gh,
                                 float *restrict h, int64_t H)
{
    CPU_INDEPENDENT
    for (int64_t j = 0; j < H; j++)
        h[j] = tanh_of(gx[j] + gh[j]);
}

CPU_CLONES static void relu_step(const float *restrict gx, const float *restrict gh,
                                 float *restrict h, int64_t H)
{
    CPU_INDEPENDENT
    for (int64_t j = 0; j < H; j++) {
        const float x = gx[j] + gh[j];

        h[j] = x < 0 ? 0 : x; /* NaN stays */
    }
}

/* dh is complete; dc comes from the step behind, and becomes that of c before this step. */
CPU_CLONES static void lstm_step_grad(const float *restrict gate, const float *restrict cell,
                                      const float *restrict before, const float *restrict dh,
                                      float *restrict dc, float *restrict d, int64_t H)
{
    CPU_INDEPENDENT
    for (int64_t j = 0; j < H; j++) {
        const float i = gate[j], f = gate[H + j], g = gate[2 * H + j], o = gate[3 * H + j];
        const float t = tanh_of(cell[j]);
        const float in_c = dc[j] + dh[j] * o * (1.0f - t * t);

        d[j] = in_c * g * i * (1.0f - i);
        d[H + j] = in_c * before[j] * f * (1.0f - f);
        d[2 * H + j] = in_c * i * (1.0f - g * g);
        d[3 * H + j] = dh[j] * t * o * (1.0f - o);
        dc[j] = in_c * f;
    }
}

/* dh becomes its part that goes around the gates. */
CPU_CLONES static void gru_step_grad(const float *restrict saved, const float *restrict before,
                                     float *restrict dh, float *restrict dgx, float *restrict dgh,
                                     int64_t H)
{
    CPU_INDEPENDENT
    for (int64_t j = 0; j < H; j++) {
        const float r = saved[j], z = saved[H + j], n = saved[2 * H + j], gh = saved[3 * H + j];
        const float dn = dh[j] * (1.0f - z) * (1.0f - n * n);
        const float dz = dh[j] * (before[j] - n) * z * (1.0f - z);
        const float dr = dn * gh * r * (1.0f - r);

        dgx[j] = dgh[j] = dr;
        dgx[H + j] = dgh[H + j] = dz;
        dgx[2 * H + j] = dn;
        dgh[2 * H + j] = dn * r;
        dh[j] *= z;
    }
}

CPU_CLONES static void rnn_step_grad(const float *restrict y, const float *restrict dh, int is_relu,
                                     float *restrict d, int64_t H)
{
    CPU_INDEPENDENT
    for (int64_t j = 0; j < H; j++)
        d[j] = is_relu ? (y[j] > 0 ? dh[j] : 0.0f) : dh[j] * (1.0f - y[j] * y[j]);
}

/* ---- the parts of both ---- */

static int64_t cpu_recurrent_gates(enum recurrent kind)
{
    return kind == RECURRENT_LSTM ? 4 : kind == RECURRENT_GRU ? 3 : 1;
}

/* The row of sample i of the block at time step t. */
static int64_t cpu_recurrent_row(const struct steps *s, int64_t i, int64_t t)
{
    return (s->first + i) * s->T + t;
}

/* The time step that comes k-th. */
static int64_t cpu_recurrent_time(const struct steps *s, int64_t k)
{
    return s->p->attr.recurrent.reverse ? s->T - 1 - k : k;
}

/* A w that is not F32 is widened in front of the scratch. */
static void cpu_recurrent_widen(const struct plain *p, int w)
{
    if (p->in_type[w] != DTYPE_F32)
        convert_to_f32(p->scratch, p->in[w], p->in_type[w], shape_elements(&p->in_shape[w]));
}

static size_t cpu_recurrent_weight_bytes(const struct graph *g, const struct node *n, int w)
{
    return g->value[n->in[w]].dtype == DTYPE_F32
               ? 0
               : (size_t)shape_elements(cpu_in(g, n, w)) * sizeof(float);
}

/* Scratch of a part: the rooms, the state and the gates. */
static size_t cpu_recurrent_part_bytes(const struct node *n, int64_t H, int64_t rows)
{
    const int64_t N = min_i64(rows / n->attr.recurrent.length, BLOCK);
    const int64_t G = cpu_recurrent_gates(n->attr.recurrent.kind);

    return (size_t)((N * (2 + G) + ROOMS) * H) * sizeof(float);
}

static struct steps cpu_recurrent_steps(const struct plain *p, int part, int w, int64_t n)
{
    struct steps s = {.p = p, .kind = p->attr.recurrent.kind, .T = p->attr.recurrent.length};

    s.H = p->in_shape[w].dim[1];
    s.G = cpu_recurrent_gates(s.kind);
    s.w = p->in_type[w] == DTYPE_F32 ? p->in[w] : p->scratch;
    s.room = plain_part_scratch(p, part);
    s.h = s.room + ROOMS * s.H;
    s.c = s.h + n * s.H;
    s.gates = s.c + n * s.H;
    return s;
}

/* to = in[i] as [N,H], the block's samples; 0 if it is absent. */
static void cpu_recurrent_begin(const struct steps *s, int i, float *to)
{
    const int64_t n = s->n * s->H;
    const float *from;

    if (!s->p->in[i]) {
        memset(to, 0, (size_t)n * sizeof *to);
        return;
    }
    for (int64_t k = 0; k < s->n; k++) {
        from = plain_read(s->p, i, (s->first + k) * s->H, s->H, s->room);
        memcpy(to + k * s->H, from, (size_t)s->H * sizeof *to);
    }
}

/* out[i], as [N,H], = from */
static void cpu_recurrent_give(const struct steps *s, int i, const float *from)
{
    for (int64_t k = 0; s->p->out[i] && k < s->n; k++) {
        const int64_t at = (s->first + k) * s->H;
        float *to = plain_dest(s->p, i, at, s->room);

        memcpy(to, from + k * s->H, (size_t)s->H * sizeof *to);
        plain_done(s->p, i, at, s->H, s->room);
    }
}

/* ---- forward ---- */

/* gates = b, in each row */
static void cpu_recurrent_bias(const struct steps *s)
{
    const int64_t n = s->G * s->H;
    const float *b = s->p->in[RECURRENT_B];

    if (b)
        b = plain_read(s->p, RECURRENT_B, 0, n, s->room);
    for (int64_t i = 0; i < s->n; i++)
        if (b)
            memcpy(s->gates + i * n, b, (size_t)n * sizeof *b);
        else
            memset(s->gates + i * n, 0, (size_t)n * sizeof *b);
}

/* Write a row of an output, which `from` has; it may be absent. */
static void cpu_recurrent_put(const struct steps *s, int i, int64_t at, int64_t n,
                              const float *from, float *room)
{
    if (!s->p->out[i])
        return;
    memcpy(plain_dest(s->p, i, at, room), from, (size_t)n * sizeof *from);
    plain_done(s->p, i, at, n, room);
}

/* Sample i of the block at time step t; its row of gates has the product. */
static void cpu_recurrent_sample(const struct steps *s, int64_t i, int64_t t)
{
    const int64_t row = cpu_recurrent_row(s, i, t), H = s->H, n = s->G * H;
    float *gate = s->gates + i * n, *h = s->h + i * H, *c = s->c + i * H;
    float *room = s->room, *other = room + 8 * H;
    const float *gx = plain_read(s->p, RECURRENT_GX, row * n, n, room);

    if (s->kind == RECURRENT_LSTM) {
        lstm_step(gx, gate, c, h, H);
        cpu_recurrent_put(s, RECURRENT_CELL, row * H, H, c, other);
        cpu_recurrent_put(s, RECURRENT_SAVED, row * n, n, gate, other);
    } else if (s->kind == RECURRENT_GRU) {
        float *saved = room + 4 * H;

        gru_step(gx, gate, saved, h, H);
        cpu_recurrent_put(s, RECURRENT_SAVED, row * SAVED * H, SAVED * H, saved, other);
    } else if (s->kind == RECURRENT_TANH) {
        tanh_step(gx, gate, h, H);
    } else {
        relu_step(gx, gate, h, H);
    }
    cpu_recurrent_put(s, RECURRENT_Y, row * H, H, h, other);
}

static void cpu_recurrent_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    struct steps s = cpu_recurrent_steps(p, part, RECURRENT_W, min_i64(to - from, BLOCK));
    const int64_t n = s.G * s.H;

    for (s.first = from; s.first < to; s.first += BLOCK) {
        s.n = min_i64(to - s.first, BLOCK);
        cpu_recurrent_begin(&s, RECURRENT_H0, s.h);
        cpu_recurrent_begin(&s, RECURRENT_C0, s.c);
        for (int64_t k = 0; k < s.T; k++) {
            cpu_recurrent_bias(&s);
            if (k > 0 || p->in[RECURRENT_H0])
                plain_multiplied(p, (int)dnnl_sgemm('N', 'T', s.n, n, s.H, 1.0f, s.h, s.H, s.w, s.H,
                                                    1.0f, s.gates, n));
            for (int64_t i = 0; i < s.n; i++)
                cpu_recurrent_sample(&s, i, cpu_recurrent_time(&s, k));
        }
    }
}

/* The vector instructions of a step's product, for all samples. */
static int64_t cpu_recurrent_work(const struct plain *p, int w, int64_t rows)
{
    return rows * shape_elements(&p->in_shape[w]) / LANES;
}

static void cpu_recurrent_run(const struct plain *p)
{
    const int64_t rows = p->in_shape[RECURRENT_GX].dim[0];

    cpu_recurrent_widen(p, RECURRENT_W);
    plain_split(p, rows / p->attr.recurrent.length, cpu_recurrent_work(p, RECURRENT_W, rows),
                cpu_recurrent_part);
}

int cpu_make_recurrent(struct cpu *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err)
{
    const int64_t rows = cpu_in(g, n, RECURRENT_GX)->dim[0];
    const int64_t H = cpu_in(g, n, RECURRENT_W)->dim[1];

    return plain_new_split(b, g, n, cpu_recurrent_run,
                           cpu_recurrent_weight_bytes(g, n, RECURRENT_W),
                           cpu_recurrent_part_bytes(n, H, rows), out, err);
}

/* ---- gradient ---- */

/* h += dy of sample i at this step; c += dcell. */
static void cpu_recurrent_arrive(const struct steps *s, int in, int64_t at, float *to)
{
    if (s->p->in[in])
        plain_add(to, plain_read(s->p, in, at, s->H, s->room), s->H);
}

/* `in` of the step before: a row of in[i], the initial state, or 0. */
static const float *cpu_recurrent_before(const struct steps *s, int in, int initial, int64_t i,
                                         int64_t k, float *room)
{
    const int64_t H = s->H;

    if (k > 0)
        return plain_read(s->p, in, cpu_recurrent_row(s, i, cpu_recurrent_time(s, k - 1)) * H, H,
                          room);
    if (s->p->in[initial])
        return plain_read(s->p, initial, (s->first + i) * H, H, room);
    memset(room, 0, (size_t)H * sizeof *room);
    return room;
}

/* Sample i of the block at the k-th step: its row of `gates` gets the gradient of gh. */
static void cpu_recurrent_sample_grad(const struct steps *s, int64_t i, int64_t k)
{
    const struct plain *p = s->p;
    const int64_t row = cpu_recurrent_row(s, i, cpu_recurrent_time(s, k)), H = s->H, n = s->G * H;
    float *d = s->gates + i * n, *h = s->h + i * H, *c = s->c + i * H, *dgx = d;
    float *room = s->room, *saved_room = room + H, *other = room + 5 * H, *last = room + 9 * H;
    const float *before, *saved = NULL;

    cpu_recurrent_arrive(s, RECURRENT_GRAD_DY, row * H, h);
    cpu_recurrent_arrive(s, RECURRENT_GRAD_DCELL, row * H, c);
    if (p->in[RECURRENT_GRAD_SAVED])
        saved = plain_read(p, RECURRENT_GRAD_SAVED, row * SAVED * H, SAVED * H, saved_room);
    before = cpu_recurrent_before(s, RECURRENT_GRAD_Y, RECURRENT_GRAD_H0, i, k, last);
    cpu_recurrent_put(s, RECURRENT_GRAD_PREV, row * H, H, before, room);
    if (s->kind == RECURRENT_LSTM) {
        const float *cell = (const float *)p->in[RECURRENT_GRAD_CELL] + row * H;

        before = cpu_recurrent_before(s, RECURRENT_GRAD_CELL, RECURRENT_GRAD_C0, i, k, last);
        lstm_step_grad(saved, cell, before, h, c, d, H);
    } else if (s->kind == RECURRENT_GRU) {
        dgx = last + H;
        gru_step_grad(saved, before, h, dgx, d, H);
        cpu_recurrent_put(s, RECURRENT_GRAD_DGH, row * n, n, d, other);
    } else {
        rnn_step_grad(plain_read(p, RECURRENT_GRAD_Y, row * H, H, room), h,
                      s->kind == RECURRENT_RELU, d, H);
    }
    cpu_recurrent_put(s, RECURRENT_GRAD_DGX, row * n, n, dgx, other);
}

static void cpu_recurrent_grad_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    struct steps s = cpu_recurrent_steps(p, part, RECURRENT_GRAD_W, min_i64(to - from, BLOCK));
    const int64_t n = s.G * s.H;
    const float keeps = s.kind == RECURRENT_GRU ? 1.0f : 0.0f; /* h has a part of its own */

    for (s.first = from; s.first < to; s.first += BLOCK) {
        s.n = min_i64(to - s.first, BLOCK);
        memset(s.h, 0, (size_t)(s.n * s.H) * sizeof *s.h);
        memset(s.c, 0, (size_t)(s.n * s.H) * sizeof *s.c);
        for (int64_t k = s.T - 1; k >= 0; k--) {
            for (int64_t i = 0; i < s.n; i++)
                cpu_recurrent_sample_grad(&s, i, k);
            if (k > 0 || p->out[RECURRENT_GRAD_DH0])
                plain_multiplied(p, (int)dnnl_sgemm('N', 'N', s.n, s.H, n, 1.0f, s.gates, n, s.w,
                                                    s.H, keeps, s.h, s.H));
        }
        cpu_recurrent_give(&s, RECURRENT_GRAD_DH0, s.h);
        cpu_recurrent_give(&s, RECURRENT_GRAD_DC0, s.c);
    }
}

static void cpu_recurrent_run_grad(const struct plain *p)
{
    const int64_t rows = p->in_shape[RECURRENT_GRAD_Y].dim[0];

    cpu_recurrent_widen(p, RECURRENT_GRAD_W);
    plain_split(p, rows / p->attr.recurrent.length, cpu_recurrent_work(p, RECURRENT_GRAD_W, rows),
                cpu_recurrent_grad_part);
}

int cpu_make_recurrent_grad(struct cpu *b, const struct graph *g, const struct node *n,
                            struct kernel **out, struct err *err)
{
    const int64_t rows = cpu_in(g, n, RECURRENT_GRAD_Y)->dim[0];
    const int64_t H = cpu_in(g, n, RECURRENT_GRAD_W)->dim[1];

    return plain_new_split(b, g, n, cpu_recurrent_run_grad,
                           cpu_recurrent_weight_bytes(g, n, RECURRENT_GRAD_W),
                           cpu_recurrent_part_bytes(n, H, rows), out, err);
}
