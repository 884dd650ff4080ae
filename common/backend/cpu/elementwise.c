/* elementwise - arithmetic with broadcasting, piece by piece of the result.
 *
 * The operands of a piece are made dense and F32 first: an operand of the result's shape is read as
 * it lies, others are gathered.  So each formula of ir/elementwise.h is compiled once, as a plain
 * loop.  op/elementwise.c has the semantics; the twin is cuda/elementwise.cu. */
#include <math.h>

#include "backend/cpu/convert.h"
#include "backend/cpu/plain.h"
#include "backend/cpu/strided.h"
#include "backend/cpu/vector.h"
#include "base/util.h"

/* In vector instructions, which expf has none of. */
#undef EW_SIGMOID
#define EW_SIGMOID(a) sigmoid_of(a)

/* The operands of a piece; b and c are a if the kind has none. */
struct piece {
    const float *a, *b, *c, *dy;
    float p, q;
};

typedef void formula(const struct piece *x, float *to, int64_t n);

/* One loop for one expression of a row.  `result` is the row's y, which only gradients read. */
#define FORMULA(name, expression, result)                                                   \
    CPU_CLONES static void name(const struct piece *x, float *restrict to, int64_t n)       \
    {                                                                                       \
        const float *restrict in_a = x->a, *restrict in_b = x->b, *restrict in_c = x->c;    \
        const float *restrict in_dy = x->dy;                                                \
        const float p = x->p, q = x->q;                                                     \
                                                                                            \
        (void)p, (void)q;                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                   \
            const float a = in_a[i], b = in_b[i], c = in_c[i], dy = in_dy[i], y = (result); \
                                                                                            \
            (void)a, (void)b, (void)c, (void)dy, (void)y;                                   \
            to[i] = (expression);                                                           \
        }                                                                                   \
    }

#define X(kind, name, n, y, da, db) \
    FORMULA(result_of_##kind, y, 0) \
    FORMULA(da_of_##kind, da, y)    \
    FORMULA(db_of_##kind, db, y)
ELEMENTWISE_LIST(X)
#undef X

/* In the order of elementwise's y and elementwise_grad's da and db. */
static formula *const formulas[EW_COUNT][3] = {
#define X(kind, name, n, y, da, db) {result_of_##kind, da_of_##kind, db_of_##kind},
    ELEMENTWISE_LIST(X)
#undef X
};

/* Room for the operands and the result of a piece. */
struct rooms {
    float in[4][PLAIN_PIECE], out[PLAIN_PIECE];
    uint16_t half[PLAIN_PIECE];
    int has_numbers; /* 1: after the first piece, the longest: operands of one number fill theirs */
};

/* Elements [from, from + n) of in[i] broadcast to the result's shape, as F32. */
static const float *cpu_elementwise_operand(const struct plain *p, int i,
                                            const struct shape *result, int64_t from, int64_t n,
                                            struct rooms *r)
{
    const enum dtype type = p->in_type[i];
    float *room = r->in[i];
    struct strided s;

    if (r->has_numbers && shape_elements(&p->in_shape[i]) == 1)
        return room;
    s = strided_broadcast(&p->in_shape[i], result);
    if (strided_is_dense(&s))
        return plain_read(p, i, from, n, room);
    if (type == DTYPE_F32) {
        strided_gather(&s, p->in[i], sizeof *room, from, n, room);
        return room;
    }
    strided_gather(&s, p->in[i], sizeof *r->half, from, n, r->half);
    convert_to_f32(room, r->half, type, n);
    return room;
}

static void read_operands(const struct plain *p, const struct shape *result, int64_t from,
                          int64_t n, struct rooms *r, struct piece *x)
{
    const float *a = cpu_elementwise_operand(p, ELEMENTWISE_A, result, from, n, r),
                *in[3] = {a, a, a};

    for (int i = 1; i < 3; i++)
        if (p->in_shape[i].n >= 0)
            in[i] = cpu_elementwise_operand(p, i, result, from, n, r);
    *x = (struct piece){in[0], in[1], in[2], in[0], p->attr.elementwise.p, p->attr.elementwise.q};
}

static void result_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    formula *f = formulas[p->attr.elementwise.kind][0];
    struct piece x;
    struct rooms r;

    (void)part;
    r.has_numbers = 0;
    for (int64_t at = from; at < to; at += PLAIN_PIECE) {
        const int64_t n = min_i64(to - at, PLAIN_PIECE);

        read_operands(p, &p->out_shape[ELEMENTWISE_Y], at, n, &r, &x);
        r.has_numbers = 1;
        f(&x, plain_dest(p, ELEMENTWISE_Y, at, r.out), n);
        plain_done(p, ELEMENTWISE_Y, at, n, r.out);
    }
}

static void cpu_elementwise_grad_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    struct piece x;
    struct rooms r;

    (void)part;
    r.has_numbers = 0;
    for (int64_t at = from; at < to; at += PLAIN_PIECE) {
        const int64_t n = min_i64(to - at, PLAIN_PIECE);

        read_operands(p, &p->in_shape[ELEMENTWISE_GRAD_DY], at, n, &r, &x);
        r.has_numbers = 1;
        x.dy = plain_read(p, ELEMENTWISE_GRAD_DY, at, n, r.in[ELEMENTWISE_GRAD_DY]);
        for (int i = ELEMENTWISE_GRAD_DA; i <= ELEMENTWISE_GRAD_DB; i++)
            if (p->out[i]) {
                formulas[p->attr.elementwise.kind][1 + i](&x, plain_dest(p, i, at, r.out), n);
                plain_done(p, i, at, n, r.out);
            }
    }
}

enum { A_FORMULA = 4 }; /* vector instructions for 8 elements, roughly */

static void cpu_elementwise_run(const struct plain *p)
{
    const int64_t n = shape_elements(&p->out_shape[ELEMENTWISE_Y]);

    plain_split(p, n, n * A_FORMULA / 8, result_part);
}

static void cpu_elementwise_run_grad(const struct plain *p)
{
    const int64_t n = shape_elements(&p->in_shape[ELEMENTWISE_GRAD_DY]);

    plain_split(p, n, 2 * n * A_FORMULA / 8, cpu_elementwise_grad_part);
}

int cpu_make_elementwise(struct cpu *b, const struct graph *g, const struct node *n,
                         struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_elementwise_run, 0, 0, out, err);
}

int cpu_make_elementwise_grad(struct cpu *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_elementwise_run_grad, 0, 0, out, err);
}
