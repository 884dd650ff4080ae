/* cast - converts numbers from one floating-point type to another.
 *
 * op/cast.c has the formula; the twin is cuda/cast.cu. */
#include "backend/cpu/convert.h"
#include "backend/cpu/plain.h"
#include "base/util.h"

static void cast_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    float room[PLAIN_PIECE];

    (void)part;
    for (int64_t at = from; at < to; at += PLAIN_PIECE) {
        const int64_t n = min_i64(to - at, PLAIN_PIECE);
        const size_t size = dtype_size(p->out_type[CAST_Y]);

        convert_from_f32((char *)p->out[CAST_Y] + (size_t)at * size,
                         plain_read(p, CAST_X, at, n, room), p->out_type[CAST_Y], n);
    }
}

static void run(const struct plain *p)
{
    plain_split(p, p->rows * p->c, p->rows * p->c / 8, cast_part);
}

int cpu_make_cast(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err)
{
    return plain_new_split(b, g, n, run, 0, 0, out, err);
}
