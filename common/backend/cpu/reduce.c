/* reduce - sums, means, extremes and variances over any dimensions.
 *
 * The kept dimensions and the reduced ones are two maps into x (op/strided.h): element o of y is
 * made of the elements at kept(o) + reduced(r).  A block of neighbouring elements of y is computed
 * together, and if they are neighbours in x, too, the inner loop runs along them; else it runs
 * along x's last reduced dimension.  Sums are made in double, in the order of r, so that neither
 * the parts nor the blocks change a bit.
 *
 * op/reduce.c has the formulas; the twin is cuda/reduce.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/plain.h"
#include "base/util.h"
#include "op/strided.h"
#include "tensor/half.h"

enum { BLOCK = 64 }; /* elements of y, and elements of x that are widened at once */

struct maps {
    struct strided kept, reduced;
    int64_t n_reduced, row; /* row: the last dimension of reduced */
};

static struct maps maps_of(const struct plain *p)
{
    const struct shape *x = &p->in_shape[REDUCE_X];
    struct maps m = {.kept = strided_axes(x, ~p->attr.reduce.axes),
                     .reduced = strided_axes(x, p->attr.reduce.axes)};

    m.n_reduced = strided_elements(&m.reduced);
    m.row = m.reduced.dim[m.reduced.n - 1];
    return m;
}

/* x[from], x[from + step] ... as F32. */
static const float *read_row(const struct plain *p, int64_t from, int64_t step, int64_t n,
                             float *room)
{
    if (step == 1)
        return plain_read(p, REDUCE_X, from, n, room);
    for (int64_t i = 0; i < n; i++)
        room[i] = real_get(p->in[REDUCE_X], p->in_type[REDUCE_X], from + i * step);
    return room;
}

/* Take x[0 .. n) into acc[0 .. n). */
CPU_CLONES static void cpu_reduce_add(const float *x, int64_t n, double *acc)
{
    for (int64_t i = 0; i < n; i++)
        acc[i] += (double)x[i];
}

CPU_CLONES static void cpu_reduce_add_squares(const float *x, int64_t n, const double *mean,
                                              double *acc)
{
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)x[i] - mean[i];

        acc[i] += d * d;
    }
}

/* sign -1: the smallest.  A NaN stays. */
CPU_CLONES static void take_largest(const float *x, int64_t n, double sign, double *acc)
{
    for (int64_t i = 0; i < n; i++) {
        const double v = sign * (double)x[i], most = acc[i];

        acc[i] = v > most || v != v ? v : most;
    }
}

/* The way in which the elements of x go into acc. */
enum turn { ADD, ADD_SQUARES, LARGEST, SMALLEST };

static void cpu_reduce_take(enum turn turn, const float *x, int64_t n, const double *mean,
                            double *acc)
{
    if (turn == ADD)
        cpu_reduce_add(x, n, acc);
    else if (turn == ADD_SQUARES)
        cpu_reduce_add_squares(x, n, mean, acc);
    else
        take_largest(x, n, turn == LARGEST ? 1 : -1, acc);
}

/* Take all that belongs to n neighbouring elements of y, which begin at place `at` of x. */
static void take_columns(const struct plain *p, const struct maps *m, enum turn turn, int64_t at,
                         int64_t n, const double *mean, double *acc)
{
    float room[BLOCK];

    for (int64_t r = 0; r < m->n_reduced; r++)
        cpu_reduce_take(turn, read_row(p, at + strided_at(&m->reduced, r), 1, n, room), n, mean,
                        acc);
}

/* Take all that belongs to one element of y: element i of a row goes into lane i % BLOCK, and the
 * lanes are put together in their order. */
static void cpu_reduce_take_rows(const struct plain *p, const struct maps *m, enum turn turn,
                                 int64_t at, const double *mean, double *acc)
{
    const int64_t step = m->reduced.step[m->reduced.n - 1], n_lanes = min_i64(BLOCK, m->row);
    double lane[BLOCK], means[BLOCK];
    float room[BLOCK];

    for (int64_t i = 0; i < n_lanes; i++) {
        lane[i] = *acc;
        means[i] = *mean;
    }
    for (int64_t r = 0; r < m->n_reduced; r += m->row)
        for (int64_t i = 0; i < m->row; i += BLOCK) {
            const int64_t n = min_i64(BLOCK, m->row - i);
            const int64_t from = at + strided_at(&m->reduced, r) + i * step;

            cpu_reduce_take(turn, read_row(p, from, step, n, room), n, means, lane);
        }
    for (int64_t i = 0; i < n_lanes; i++)
        if (turn == LARGEST || turn == SMALLEST)
            *acc = lane[i] > *acc || lane[i] != lane[i] ? lane[i] : *acc;
        else
            *acc += lane[i];
}

/* Elements [o, o + n) of y; they are neighbours in x unless n is 1. */
static void cpu_reduce(const struct plain *p, const struct maps *m, enum turn turn, int64_t o,
                       int64_t n, const double *mean, double *acc)
{
    const int64_t at = strided_at(&m->kept, o);

    for (int64_t i = 0; i < n; i++)
        acc[i] = turn == LARGEST || turn == SMALLEST ? -INFINITY : 0;
    if (n > 1)
        take_columns(p, m, turn, at, n, mean, acc);
    else
        cpu_reduce_take_rows(p, m, turn, at, mean, acc);
}

static void cpu_reduce_finish(enum reduction kind, double divisor, int64_t n, const double *acc,
                              float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(kind == REDUCE_MIN ? -acc[i] : acc[i] / divisor);
}

static void cpu_reduce_block(const struct plain *p, const struct maps *m, int64_t o, int64_t n)
{
    static const enum turn turns[] = {[REDUCE_SUM] = ADD,
                                      [REDUCE_MEAN] = ADD,
                                      [REDUCE_MAX] = LARGEST,
                                      [REDUCE_MIN] = SMALLEST,
                                      [REDUCE_VAR] = ADD_SQUARES};
    const enum reduction kind = p->attr.reduce.kind;
    const double count = (double)m->n_reduced;
    double mean[BLOCK] = {0}, acc[BLOCK];
    float y[BLOCK];

    if (kind == REDUCE_VAR) {
        cpu_reduce(p, m, ADD, o, n, mean, acc);
        for (int64_t i = 0; i < n; i++)
            mean[i] = acc[i] / count;
    }
    cpu_reduce(p, m, turns[kind], o, n, mean, acc);
    cpu_reduce_finish(kind,
                      kind == REDUCE_VAR    ? count - p->attr.reduce.correction
                      : kind == REDUCE_MEAN ? count
                                            : 1,
                      n, acc, y);
    for (int64_t i = 0; i < n; i++)
        real_put(p->out[REDUCE_Y], p->out_type[REDUCE_Y], o + i, y[i]);
}

static void reduce_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct maps m = maps_of(p);
    const int last = m.kept.n - 1;
    const int64_t run = m.kept.step[last] == 1 ? m.kept.dim[last] : 1;

    (void)part;
    for (int64_t o = from, n; o < to; o += n) {
        n = min_i64(BLOCK, min_i64(to - o, run - o % run));
        cpu_reduce_block(p, &m, o, n);
    }
}

static void cpu_reduce_run(const struct plain *p)
{
    plain_split(p, shape_elements(&p->out_shape[REDUCE_Y]), p->rows * p->c / 4, reduce_part);
}

int cpu_make_reduce(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    return plain_new_split(b, g, n, cpu_reduce_run, 0, 0, out, err);
}
