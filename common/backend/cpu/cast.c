/* cast - converts numbers from one type to another.
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

static int32_t cpu_cast_cut(float x)
{
    return x != x ? 0 : x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : (int32_t)x;
}

/* Parts of a cast from I32, and of one to I32. */
static void cpu_cast_from_int(const struct plain *p, int part, int64_t from, int64_t to)
{
    const size_t size = dtype_size(p->out_type[CAST_Y]);
    const int32_t *x = p->in[CAST_X];
    float room[PLAIN_PIECE];

    (void)part;
    for (int64_t at = from; at < to; at += PLAIN_PIECE) {
        const int64_t n = min_i64(to - at, PLAIN_PIECE);

        for (int64_t i = 0; i < n; i++)
            room[i] = (float)((int64_t)x[at + i] - p->attr.cast.minus);
        cast_piece(p, room, (char *)p->out[CAST_Y] + (size_t)at * size, n);
    }
}

static void cpu_cast_to_int(const struct plain *p, int part, int64_t from, int64_t to)
{
    int32_t *y = p->out[CAST_Y];
    float room[PLAIN_PIECE];

    (void)part;
    for (int64_t at = from; at < to; at += PLAIN_PIECE) {
        const int64_t n = min_i64(to - at, PLAIN_PIECE);
        const float *x = plain_read(p, CAST_X, at, n, room);

        for (int64_t i = 0; i < n; i++)
            y[at + i] = cpu_cast_cut(x[i]);
    }
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
    plain_split(p, p->rows * p->c, p->rows * p->c / 8,
                p->in_type[CAST_X] == DTYPE_I32    ? cpu_cast_from_int
                : p->out_type[CAST_Y] == DTYPE_I32 ? cpu_cast_to_int
                                                   : cast_part);
}

int cpu_make_cast(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err)
{
    return plain_new_split(b, g, n, cpu_cast_run, 0, 0, out, err);
}
