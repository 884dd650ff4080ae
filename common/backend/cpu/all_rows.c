/* all_rows - brings a rank's rows to their place among those of all ranks, and takes them from
 * there.
 *
 * op/all_rows.c has the formulas; the twin is cuda/all_rows.cu. */
#include <string.h>

#include "backend/cpu/plain.h"
#include "base/util.h"

/* Elements in front of this rank's rows. */
static int64_t rows_before(const struct step_scalars *s, const struct shape *own)
{
    int64_t before = s ? s->first_position : 0;

    for (int d = 1; d < own->n; d++)
        before *= own->dim[d];
    return before;
}

static void rows_send_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int64_t start = rows_before(p->in[ROWS_SEND_SCALARS], &p->in_shape[ROWS_SEND_X]);
    const int64_t end = start + shape_elements(&p->in_shape[ROWS_SEND_X]);
    double *v = p->out[ROWS_SEND_V];
    float room[PLAIN_PIECE];

    (void)part;
    memset(v + from, 0, (size_t)(to - from) * sizeof *v);
    from = max_i64(from, start);
    to = min_i64(to, end);
    for (int64_t at = from; at < to; at += PLAIN_PIECE) {
        const int64_t n = min_i64(to - at, PLAIN_PIECE);
        const float *x = plain_read(p, ROWS_SEND_X, at - start, n, room);

        for (int64_t i = 0; i < n; i++)
            v[at + i] = (double)x[i];
    }
}

/* Elements [from, to) of the output, whose first one is v[0]. */
static void rows_take(const struct plain *p, const double *v, int64_t from, int64_t to)
{
    float room[PLAIN_PIECE];

    for (int64_t at = from; at < to; at += PLAIN_PIECE) {
        const int64_t n = min_i64(to - at, PLAIN_PIECE);
        float *y = plain_dest(p, 0, at, room);

        for (int64_t i = 0; i < n; i++)
            y[i] = (float)v[at + i];
        plain_done(p, 0, at, n, room);
    }
}

static void rows_all_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    (void)part;
    rows_take(p, p->in[ROWS_ALL_V], from, to);
}

static void rows_own_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const double *v = p->in[ROWS_OWN_V];

    (void)part;
    rows_take(p, v + rows_before(p->in[ROWS_OWN_SCALARS], &p->out_shape[ROWS_OWN_Y]), from, to);
}

static void rows_split(const struct plain *p, plain_part *part)
{
    const int64_t n = shape_elements(&p->out_shape[0]);

    if (n > 0)
        plain_split(p, n, n / 4, part);
}

static void cpu_rows_send_run(const struct plain *p) { rows_split(p, rows_send_part); }

static void cpu_rows_all_run(const struct plain *p) { rows_split(p, rows_all_part); }

static void cpu_rows_own_run(const struct plain *p) { rows_split(p, rows_own_part); }

int cpu_make_rows_send(struct cpu *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_rows_send_run, 0, 0, out, err);
}

int cpu_make_rows_all(struct cpu *b, const struct graph *g, const struct node *n,
                      struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_rows_all_run, 0, 0, out, err);
}

int cpu_make_rows_own(struct cpu *b, const struct graph *g, const struct node *n,
                      struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_rows_own_run, 0, 0, out, err);
}
