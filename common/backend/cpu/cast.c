/* cast - converts numbers from one floating-point type to another.
 *
 * op/cast.c has the formula; the twin is cuda/cast.cu. */
#include "backend/cpu/convert.h"
#include "backend/cpu/plain.h"
#include "base/util.h"

CPU_CLONES static void cpu_cast_add(const float *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* y = x or, if the node adds, y += x, of n numbers. */
static void cast_piece(const struct plain *p, const float *x, void *y, int64_t n)
{
    float sum[PLAIN_PIECE];

    if (p->adds && p->out_type[CAST_Y] == DTYPE_F32) {
        cpu_cast_add(x, y, n);
        return;
    }
    if (p->adds) {
        convert_to_f32(sum, y, p->out_type[CAST_Y], n);
        cpu_cast_add(x, sum, n);
        x = sum;
    }
    convert_from_f32(y, x, p->out_type[CAST_Y], n);
}

static void cast_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const size_t size = dtype_size(p->out_type[CAST_Y]);
    float room[PLAIN_PIECE];

    (void)part;
    for (int64_t at = from; at < to; at += PLAIN_PIECE) {
        const int64_t n = min_i64(to - at, PLAIN_PIECE);

        cast_piece(p, plain_read(p, CAST_X, at, n, room),
                   (char *)p->out[CAST_Y] + (size_t)at * size, n);
    }
}

static void cpu_cast_run(const struct plain *p)
{
    plain_split(p, p->rows * p->c, p->rows * p->c / 8, cast_part);
}

int cpu_make_cast(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err)
{
    return plain_new_split(b, g, n, cpu_cast_run, 0, 0, out, err);
}
