/* lamb - the update of LAMB: a pass that brings the moments forward and adds up each tensor's
 * norms, and a pass that moves the parameters.  The direction r is computed in both, because
 * storing it would take as much memory as the parameters.
 *
 * op/lamb.h has the formula; the twin is cuda/lamb.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/update.h"
#include "base/util.h"
#include "op/lamb.h"

static struct lamb_terms terms_of(const struct plain *p)
{
    const struct step_scalars *s = p->in[LAMB_SCALARS];

    return lamb_terms(p->attr.number, s->n_updates);
}

/* The scratch: for each block the sums of squares of its parameters and of r, then each row's step,
 * which is rate * f * ratio. */
struct norms {
    double *param, *r, *step;
};

static struct norms norms_of(const struct plain *p)
{
    const int64_t n_rows = p->in_shape[UPDATE_SEGMENTS].dim[0];
    const int64_t n_blocks = update_blocks(p->c, n_rows);
    double *at = p->scratch;

    return (struct norms){.param = at, .r = at + n_blocks, .step = at + 2 * n_blocks};
}

static struct update_block block_at(const struct plain *p, int64_t number)
{
    return update_block_at(p->in[UPDATE_SEGMENTS], p->in_shape[UPDATE_SEGMENTS].dim[0], number);
}

static float decay_of(const struct plain *p, int64_t row)
{
    return (float)((const double *)p->in[UPDATE_SEGMENTS])[row * SEGMENT_COLUMNS + SEGMENT_DECAY];
}

CPU_CLONES static void cpu_lamb_forward_moments(struct lamb_terms m, int64_t n,
                                                const float *restrict grad, float *restrict avg,
                                                float *restrict sq)
{
    for (int64_t i = 0; i < n; i++)
        lamb_forward(&m, grad[i], &avg[i], &sq[i]);
}

CPU_CLONES static void cpu_lamb_direction(struct lamb_terms m, float decay, int64_t n,
                                          const float *restrict param, const float *restrict avg,
                                          const float *restrict sq, float *restrict r)
{
    for (int64_t i = 0; i < n; i++)
        r[i] = lamb_direction(&m, param[i], avg[i], sq[i], decay);
}

CPU_CLONES static void cpu_lamb_move(float step, int64_t n, float *restrict param,
                                     const float *restrict r)
{
    for (int64_t i = 0; i < n; i++)
        param[i] = param[i] - step * r[i];
}

static void cpu_lamb_sum_blocks(const struct plain *p, int part, int64_t first, int64_t last)
{
    const struct lamb_terms m = terms_of(p);
    const struct norms to = norms_of(p);
    struct cpu_update u = update_of(p);
    float r[UPDATE_BLOCK];

    (void)part;
    for (int64_t number = first; number < last; number++) {
        const struct update_block b = block_at(p, number);
        const float *param = (const float *)p->out[LAMB_NEW_PARAM] + b.from;
        float *avg = (float *)p->out[LAMB_NEW_EXP_AVG] + b.from;
        float *sq = (float *)p->out[LAMB_NEW_EXP_AVG_SQ] + b.from;

        if (b.from >= b.to)
            continue;
        u.from = b.from;
        u.n = b.to - b.from;
        update_gradient(p, &u, r);
        cpu_lamb_forward_moments(m, u.n, r, avg, sq);
        cpu_lamb_direction(m, decay_of(p, b.row), u.n, param, avg, sq, r);
        to.param[number] = update_squares(param, u.n);
        to.r[number] = update_squares(r, u.n);
    }
}

/* The step of each row, from the sums of its blocks in order. */
static void cpu_lamb_make_steps(const struct plain *p)
{
    const double *segment = p->in[UPDATE_SEGMENTS];
    const struct step_scalars *s = p->in[UPDATE_SCALARS];
    const double *number = p->attr.number, factor = terms_of(p).rate;
    const struct norms at = norms_of(p);

    for (int64_t row = 0; row < p->in_shape[UPDATE_SEGMENTS].dim[0]; row++) {
        const double *of = segment + row * SEGMENT_COLUMNS;
        const int64_t first = update_first_block(segment, row);
        const int64_t n = (int64_t)of[SEGMENT_END] - update_row_start(segment, row);
        double param = 0, r = 0;

        for (int64_t k = 0; k < ceil_div_i64(n, UPDATE_BLOCK); k++) {
            param += at.param[first + k];
            r += at.r[first + k];
        }
        at.step[row] = (double)(s->rate * (float)of[SEGMENT_RATE]) * factor *
                       lamb_ratio(param, r, number[LAMB_ATTR_LEAST], number[LAMB_ATTR_MOST]);
    }
}

static void move_blocks(const struct plain *p, int part, int64_t first, int64_t last)
{
    const struct lamb_terms m = terms_of(p);
    const struct norms at = norms_of(p);
    float r[UPDATE_BLOCK], before[UPDATE_BLOCK];

    (void)part;
    for (int64_t number = first; number < last; number++) {
        const struct update_block b = block_at(p, number);
        float *param = (float *)p->out[LAMB_NEW_PARAM] + b.from;

        if (b.from >= b.to)
            continue;
        cpu_lamb_direction(m, decay_of(p, b.row), b.to - b.from, param,
                           (const float *)p->out[LAMB_NEW_EXP_AVG] + b.from,
                           (const float *)p->out[LAMB_NEW_EXP_AVG_SQ] + b.from, r);
        memcpy(before, param, (size_t)(b.to - b.from) * sizeof *before);
        cpu_lamb_move((float)at.step[b.row], b.to - b.from, param, r);
        update_keep(p, before, b.from, b.to - b.from);
        update_copies(p, b.from, b.to);
    }
}

static void cpu_lamb_run(const struct plain *p)
{
    const int64_t n_blocks = update_blocks(p->c, p->in_shape[UPDATE_SEGMENTS].dim[0]);

    if (!control_applies(p->in[UPDATE_CHECK], p->in[UPDATE_CONTROL]))
        return;
    plain_split(p, n_blocks, p->c, cpu_lamb_sum_blocks);
    cpu_lamb_make_steps(p);
    plain_split(p, n_blocks, p->c, move_blocks);
}

int cpu_make_lamb(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err)
{
    const int64_t n_rows = cpu_in(g, n, UPDATE_SEGMENTS)->dim[0];
    const int64_t n_blocks = update_blocks(shape_elements(cpu_in(g, n, UPDATE_PARAM)), n_rows);

    return plain_new_split(b, g, n, cpu_lamb_run, (size_t)(2 * n_blocks + n_rows) * sizeof(double),
                           0, out, err);
}
