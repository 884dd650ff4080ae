/* softmax - line by line: a line is what lies along the dimension.
 *
 * Lines are made dense and F32 first, computed where they then lie, and written back.
 * op/softmax.c has the formulas; the twin is cuda/softmax.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/plain.h"
#include "base/util.h"
#include "tensor/half.h"

/* A line of a tensor: its first element, its length, and the step from one element to the next. */
struct line {
    int64_t at, n, step;
};

static struct line line_at(const struct plain *p, int64_t line)
{
    const struct shape *s = &p->in_shape[0];
    struct line l = {.n = s->dim[p->attr.softmax.dim], .step = 1};

    for (int d = p->attr.softmax.dim + 1; d < s->n; d++)
        l.step *= s->dim[d];
    l.at = line / l.step * l.n * l.step + line % l.step;
    return l;
}

static int64_t n_lines(const struct plain *p)
{
    return p->rows * p->c / p->in_shape[0].dim[p->attr.softmax.dim];
}

static void cpu_softmax_read_line(const struct plain *p, int in, const struct line *l, float *to)
{
    for (int64_t i = 0; i < l->n; i++)
        to[i] = real_get(p->in[in], p->in_type[in], l->at + i * l->step);
}

static void write_line(const struct plain *p, const struct line *l, const float *from)
{
    for (int64_t i = 0; i < l->n; i++)
        real_put(p->out[0], p->out_type[0], l->at + i * l->step, from[i]);
}

static void cpu_softmax(float *x, int64_t n, int is_log, int is_safe)
{
    float most = x[0], factor;
    double sum = 0;

    for (int64_t i = 1; i < n; i++)
        most = x[i] > most || x[i] != x[i] ? x[i] : most;
    if (is_safe && most == -INFINITY) {
        memset(x, 0, (size_t)n * sizeof *x);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        sum += (double)expf(x[i] - most);
    factor = (float)(is_log ? log(sum) : 1 / sum);
    for (int64_t i = 0; i < n; i++)
        x[i] = is_log ? x[i] - most - factor : expf(x[i] - most) * factor;
}

/* Leaves dx in dy. */
static void cpu_softmax_grad_row(const float *y, float *dy, int64_t n, int is_log)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)dy[i] * (is_log ? 1.0 : (double)y[i]);
    for (int64_t i = 0; i < n; i++)
        dy[i] = is_log ? dy[i] - expf(y[i]) * (float)sum : y[i] * (dy[i] - (float)sum);
}

static void softmax_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    float *x = plain_part_scratch(p, part);

    for (int64_t i = from; i < to; i++) {
        const struct line l = line_at(p, i);

        cpu_softmax_read_line(p, SOFTMAX_X, &l, x);
        cpu_softmax(x, l.n, p->attr.softmax.log, p->attr.softmax.safe);
        write_line(p, &l, x);
    }
}

static void cpu_softmax_grad_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    float *y = plain_part_scratch(p, part);

    for (int64_t i = from; i < to; i++) {
        const struct line l = line_at(p, i);
        float *dy = y + l.n;

        cpu_softmax_read_line(p, SOFTMAX_GRAD_Y, &l, y);
        cpu_softmax_read_line(p, SOFTMAX_GRAD_DY, &l, dy);
        cpu_softmax_grad_row(y, dy, l.n, p->attr.softmax.log);
        write_line(p, &l, dy);
    }
}

static void cpu_softmax_run(const struct plain *p)
{
    plain_split(p, n_lines(p), p->rows * p->c * 4, softmax_part);
}

static void cpu_softmax_run_grad(const struct plain *p)
{
    plain_split(p, n_lines(p), p->rows * p->c * 4, cpu_softmax_grad_part);
}

static int cpu_softmax_make(struct cpu *b, const struct graph *g, const struct node *n,
                            void (*run_all)(const struct plain *p), struct kernel **out,
                            struct err *err)
{
    const size_t line = (size_t)cpu_in(g, n, 0)->dim[n->attr.softmax.dim] * sizeof(float);

    return plain_new_split(b, g, n, run_all, 0, 2 * line, out, err);
}

int cpu_make_softmax(struct cpu *b, const struct graph *g, const struct node *n,
                     struct kernel **out, struct err *err)
{
    return cpu_softmax_make(b, g, n, cpu_softmax_run, out, err);
}

int cpu_make_softmax_grad(struct cpu *b, const struct graph *g, const struct node *n,
                          struct kernel **out, struct err *err)
{
    return cpu_softmax_make(b, g, n, cpu_softmax_run_grad, out, err);
}
