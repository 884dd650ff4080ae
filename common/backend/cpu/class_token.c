/* class_token - puts the class token's row before the rows of each sample and adds the positions.
 *
 * The gradient is cut into columns, so that each element has one thread, which adds sample by
 * sample: the bits do not depend on the number of threads.  op/class_token.c has the formulas; the
 * twin is cuda/class_token.cu. */
#include <string.h>

#include "backend/cpu/plain.h"
#include "base/util.h"

static void cpu_class_token_forward_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int64_t c = p->c, length = p->attr.class_token.length;
    float *room = plain_part_scratch(p, part);

    for (int64_t r = from; r < to; r++) {
        const int64_t sample = r / length, t = r % length;
        const float *row =
            t ? plain_read(p, CLASS_TOKEN_X, (sample * (length - 1) + t - 1) * c, c, room)
              : plain_read(p, CLASS_TOKEN_TOKEN, 0, c, room);
        float *y = plain_dest(p, CLASS_TOKEN_Y, r * c, room + 2 * c);

        plain_sum(y, row, plain_read(p, CLASS_TOKEN_POSITION, t * c, c, room + c), c);
        plain_done(p, CLASS_TOKEN_Y, r * c, c, y);
    }
}

static void cpu_class_token_run(const struct plain *p)
{
    const int64_t rows = p->out_shape[CLASS_TOKEN_Y].dim[0];

    plain_split(p, rows, rows * p->c / 8, cpu_class_token_forward_part);
}

int cpu_make_class_token(struct cpu *b, const struct graph *g, const struct node *n,
                         struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_class_token_run, 0,
                           (size_t)(3 * cpu_out(g, n, CLASS_TOKEN_Y)->dim[1]) * sizeof(float), out,
                           err);
}

/* Columns [from, to) of the sum over the samples of their row t, in `sum`. */
static void cpu_class_token_sum_samples(const struct plain *p, int64_t t, int64_t from, int64_t to,
                                        float *room, float *sum)
{
    const int64_t length = p->attr.class_token.length;

    memset(sum, 0, (size_t)(to - from) * sizeof *sum);
    for (int64_t r = t; r < p->rows; r += length)
        plain_add(sum, plain_read(p, CLASS_TOKEN_GRAD_DY, r * p->c + from, to - from, room),
                  to - from);
}

/* Columns [from, to) of dx, row by row. */
static void cpu_class_token_copy_rows(const struct plain *p, int64_t from, int64_t to, float *room,
                                      float *dest)
{
    const int64_t c = p->c, length = p->attr.class_token.length;

    for (int64_t r = 0; r < p->rows; r++) {
        const int64_t at = (r - r / length - 1) * c + from;
        float *dx;

        if (r % length == 0)
            continue;
        dx = plain_dest(p, CLASS_TOKEN_GRAD_DX, at, dest);
        memcpy(dx, plain_read(p, CLASS_TOKEN_GRAD_DY, r * c + from, to - from, room),
               (size_t)(to - from) * sizeof *dx);
        plain_done(p, CLASS_TOKEN_GRAD_DX, at, to - from, dx);
    }
}

static void cpu_class_token_grad_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int64_t n = to - from;
    float *room = plain_part_scratch(p, part), *dest = room + p->c;

    if (p->out[CLASS_TOKEN_GRAD_DX])
        cpu_class_token_copy_rows(p, from, to, room, dest);
    for (int64_t t = 0; p->out[CLASS_TOKEN_GRAD_DPOSITION] && t < p->attr.class_token.length; t++) {
        const int64_t at = t * p->c + from;
        float *sum = plain_dest(p, CLASS_TOKEN_GRAD_DPOSITION, at, dest);

        cpu_class_token_sum_samples(p, t, from, to, room, sum);
        plain_done(p, CLASS_TOKEN_GRAD_DPOSITION, at, n, sum);
    }
    if (p->out[CLASS_TOKEN_GRAD_DTOKEN]) {
        float *sum = plain_dest(p, CLASS_TOKEN_GRAD_DTOKEN, from, dest);

        cpu_class_token_sum_samples(p, 0, from, to, room, sum);
        plain_done(p, CLASS_TOKEN_GRAD_DTOKEN, from, n, sum);
    }
}

static void cpu_class_token_run_grad(const struct plain *p)
{
    plain_split(p, p->c, p->rows * p->c / 8, cpu_class_token_grad_part);
}

int cpu_make_class_token_grad(struct cpu *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_class_token_run_grad, 0,
                           (size_t)(2 * cpu_in(g, n, CLASS_TOKEN_GRAD_DY)->dim[1]) * sizeof(float),
                           out, err);
}
