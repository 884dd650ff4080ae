/* unpack - multiplies codes by the scales of their blocks, or widens BF16.
 *
 * op/unpack.c has the formulas; the twin is cuda/unpack.cu. */
#include <string.h>

#include "backend/cpu/convert.h"
#include "backend/cpu/plain.h"
#include "base/util.h"
#include "tensor/blocks.h"

CPU_CLONES static void cpu_unpack_block(const int8_t *restrict codes, float scale, int64_t n,
                                        float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)codes[i] * scale;
}

/* The numbers [from, from + n) of the codes, to y. */
static void cpu_unpack_numbers(const struct plain *p, int64_t from, int64_t n, float *y)
{
    const int8_t *codes = p->in[UNPACK_CODES];
    const float *scales = p->in[UNPACK_SCALES];
    int64_t done = 0, len;

    if (p->in_type[UNPACK_CODES] != DTYPE_I8) {
        convert_to_f32(y, (const uint16_t *)p->in[UNPACK_CODES] + from, p->in_type[UNPACK_CODES],
                       n);
        return;
    }
    for (; done < n; done += len) {
        const int64_t at = from + done;

        len = min_i64(BLOCKS_LEN - at % BLOCKS_LEN, n - done);
        cpu_unpack_block(codes + at, scales[at / BLOCKS_LEN], len, y + done);
    }
}

static void cpu_unpack_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    float room[PLAIN_PIECE];

    (void)part;
    for (int64_t at = from; at < to; at += PLAIN_PIECE) {
        const int64_t n = min_i64(to - at, PLAIN_PIECE);
        float *y = plain_dest(p, UNPACK_Y, at, room);

        cpu_unpack_numbers(p, at, n, y);
        plain_done(p, UNPACK_Y, at, n, y);
    }
}

static void cpu_unpack_run(const struct plain *p)
{
    plain_split(p, p->rows * p->c, p->rows * p->c / 8, cpu_unpack_part);
}

int cpu_make_unpack(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    return plain_new_split(b, g, n, cpu_unpack_run, 0, 0, out, err);
}

/* ---- rows ---- */

static void cpu_unpack_rows_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct shape *tokens = &p->in_shape[UNPACK_ROWS_TOKENS];
    const int64_t c = p->c, length = tokens->dim[tokens->n - 1];
    const int32_t *token = p->in[UNPACK_ROWS_TOKENS];
    float *room = plain_part_scratch(p, part);

    for (int64_t r = from; r < to; r++) {
        const int64_t row = max_i64(0, min_i64(token[r], p->rows - 1));
        float *y = plain_dest(p, UNPACK_ROWS_Y, r * c, room);

        cpu_unpack_numbers(p, row * c, c, y);
        if (p->in[UNPACK_ROWS_POSITION])
            plain_add(y, plain_read(p, UNPACK_ROWS_POSITION, r % length * c, c, room + c), c);
        plain_done(p, UNPACK_ROWS_Y, r * c, c, y);
    }
}

static void cpu_unpack_run_rows(const struct plain *p)
{
    const int64_t rows = p->out_shape[UNPACK_ROWS_Y].dim[0];

    plain_split(p, rows, rows * p->c / 8, cpu_unpack_rows_part);
}

int cpu_make_unpack_rows(struct cpu *b, const struct graph *g, const struct node *n,
                         struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_unpack_run_rows, 0,
                           (size_t)(2 * cpu_out(g, n, UNPACK_ROWS_Y)->dim[1]) * sizeof(float), out,
                           err);
}
