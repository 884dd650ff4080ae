/* muon - the update of Muon for one matrix: the momentum, its Newton-Schulz iterations, the move.
 *
 * op/muon.c has the formula, and op/muon.h its element-wise parts; the twin is cuda/muon.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/product.h"
#include "backend/cpu/update.h"
#include "base/util.h"
#include "op/muon.h"

/* The matrix as the iterations see it: x [m,n] with m <= n.  All lie in the scratch. */
struct iteration {
    int64_t m, n;
    int is_transposed;       /* x is the parameter's matrix, transposed */
    float *x, *next, *s, *t; /* next is as large as x; s, t [m,m] */
    double *squares;         /* [blocks]: sums of the squares of u */
};

static int64_t cpu_muon_n_blocks(int64_t n) { return ceil_div_i64(n, UPDATE_BLOCK); }

static struct iteration cpu_muon_iteration_of(const struct plain *p)
{
    const int64_t rows = (int64_t)p->attr.number[MUON_ATTR_ROWS], columns = p->c / rows;
    const int64_t m = min_i64(rows, columns), n = max_i64(rows, columns);
    double *squares = p->scratch;
    float *x = (float *)(squares + cpu_muon_n_blocks(m * n));

    return (struct iteration){.m = m,
                              .n = n,
                              .is_transposed = rows > columns,
                              .squares = squares,
                              .x = x,
                              .next = x + m * n,
                              .s = x + 2 * m * n,
                              .t = x + 2 * m * n + m * m};
}

static size_t cpu_muon_scratch_bytes(int64_t rows, int64_t columns)
{
    const int64_t m = min_i64(rows, columns), all = rows * columns;

    return (size_t)cpu_muon_n_blocks(all) * sizeof(double) +
           (size_t)(2 * all + 2 * m * m) * sizeof(float);
}

/* u is in `next`, as the parameter's matrix. */
CPU_CLONES static void cpu_muon_move_momentum(float momentum, int nesterov, int64_t n,
                                              const float *restrict grad, float *restrict avg,
                                              float *restrict u)
{
    for (int64_t i = 0; i < n; i++)
        u[i] = muon_forward(momentum, nesterov, grad[i], &avg[i]);
}

static void begin_blocks(const struct plain *p, int part, int64_t first, int64_t last)
{
    const struct iteration at = cpu_muon_iteration_of(p);
    struct cpu_update u = update_of(p);
    float grad[UPDATE_BLOCK];

    (void)part;
    for (int64_t b = first; b < last; b++) {
        u.from = b * UPDATE_BLOCK;
        u.n = min_i64(UPDATE_BLOCK, p->c - u.from);
        update_gradient(p, &u, grad);
        cpu_muon_move_momentum((float)p->attr.number[MUON_ATTR_MOMENTUM],
                               p->attr.number[MUON_ATTR_NESTEROV] != 0, u.n, grad,
                               update_at(p->out[MUON_NEW_EXP_AVG], &u), at.next + u.from);
        at.squares[b] = update_squares(at.next + u.from, u.n);
    }
}

/* x = u / its norm, rows [from, to) of x. */
static void scale_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct iteration at = cpu_muon_iteration_of(p);
    const float least = 1e-7f;
    double sum = 0;
    float norm;

    (void)part;
    for (int64_t b = 0; b < cpu_muon_n_blocks(p->c); b++)
        sum += at.squares[b];
    norm = fmaxf((float)sqrt(sum), least);
    for (int64_t i = from; i < to; i++)
        for (int64_t j = 0; j < at.n; j++)
            at.x[i * at.n + j] = at.next[at.is_transposed ? j * at.m + i : i * at.n + j] / norm;
}

/* ---- products ---- */

/* s = x x^T */
static struct product cpu_muon_gram(const struct plain *p)
{
    const struct iteration at = cpu_muon_iteration_of(p);

    return (struct product){.m = at.m,
                            .n = at.m,
                            .k = at.n,
                            .a = at.x,
                            .b = at.x,
                            .b_row = 1,
                            .b_column = at.n,
                            .alpha = 1,
                            .c = at.s};
}

/* t = b s + c (s s) */
static struct product cpu_muon_polynomial(const struct plain *p)
{
    const struct iteration at = cpu_muon_iteration_of(p);

    return (struct product){.m = at.m,
                            .n = at.m,
                            .k = at.m,
                            .a = at.s,
                            .b = at.s,
                            .b_row = at.m,
                            .b_column = 1,
                            .alpha = (float)p->attr.number[MUON_ATTR_C],
                            .add = at.s,
                            .beta = (float)p->attr.number[MUON_ATTR_B],
                            .c = at.t};
}

/* next = a x + t x */
static struct product cpu_muon_advance(const struct plain *p)
{
    const struct iteration at = cpu_muon_iteration_of(p);

    return (struct product){.m = at.m,
                            .n = at.n,
                            .k = at.m,
                            .a = at.t,
                            .b = at.x,
                            .b_row = at.n,
                            .b_column = 1,
                            .alpha = 1,
                            .add = at.x,
                            .beta = (float)p->attr.number[MUON_ATTR_A],
                            .c = at.next};
}

static void run_gram(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct product x = cpu_muon_gram(p);

    product_run(p, &x, part, from, to);
}

static void run_polynomial(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct product x = cpu_muon_polynomial(p);

    product_run(p, &x, part, from, to);
}

static void run_advance(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct product x = cpu_muon_advance(p);

    product_run(p, &x, part, from, to);
}

static void cpu_muon_split(const struct plain *p, struct product x, plain_part *part)
{
    plain_split(p, product_panels(&x), product_work(&x), part);
}

static void cpu_muon_copy_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct iteration at = cpu_muon_iteration_of(p);

    (void)part;
    memcpy(at.x + from * at.n, at.next + from * at.n, sizeof(float) * (size_t)((to - from) * at.n));
}

/* ---- the move ---- */

static void move_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct iteration at = cpu_muon_iteration_of(p);
    const int64_t columns = at.is_transposed ? at.m : at.n;
    const struct step_scalars *s = p->in[MUON_SCALARS];
    const struct muon_terms m =
        muon_terms(p->attr.number[MUON_ATTR_RATIO], s->rate, p->in[MUON_SEGMENTS]);
    float *param = p->out[MUON_NEW_PARAM];

    (void)part;
    for (int64_t i = from; i < to; i++)
        for (int64_t j = 0; j < columns; j++) {
            const float x = at.x[at.is_transposed ? j * at.n + i : i * at.n + j];

            const float before = param[i * columns + j];

            param[i * columns + j] = before * m.keep - m.step * x;
            update_keep(p, &before, i * columns + j, 1);
        }
    update_copies(p, from * columns, to * columns);
}

static void cpu_muon_run(const struct plain *p)
{
    const struct iteration at = cpu_muon_iteration_of(p);

    if (!control_applies(p->in[UPDATE_CHECK], p->in[UPDATE_CONTROL]))
        return;
    plain_split(p, cpu_muon_n_blocks(p->c), p->c, begin_blocks);
    plain_split(p, at.m, p->c, scale_rows);
    for (int k = 0; k < (int)p->attr.number[MUON_ATTR_STEPS]; k++) {
        cpu_muon_split(p, cpu_muon_gram(p), run_gram);
        cpu_muon_split(p, cpu_muon_polynomial(p), run_polynomial);
        cpu_muon_split(p, cpu_muon_advance(p), run_advance);
        plain_split(p, at.m, p->c / 16, cpu_muon_copy_rows);
    }
    plain_split(p, (int64_t)p->attr.number[MUON_ATTR_ROWS], p->c, move_rows);
}

int cpu_make_muon(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err)
{
    const int64_t rows = (int64_t)n->attr.number[MUON_ATTR_ROWS];
    const int64_t columns = shape_elements(cpu_in(g, n, UPDATE_PARAM)) / rows;

    return plain_new_split(b, g, n, cpu_muon_run, cpu_muon_scratch_bytes(rows, columns),
                           product_part_bytes(max_i64(rows, columns)), out, err);
}
