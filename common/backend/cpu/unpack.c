/* unpack - multiplies codes by the scales of their blocks, or widens BF16.
 *
 * A product with a packed weight goes over tiles of its rows, which oneDNN multiplies as soon as
 * they are unpacked, so they are still in the cache, and no room for the whole weight is needed.
 *
 * op/unpack.c has the formulas; the twin is cuda/unpack.cu. */
#include <oneapi/dnnl/dnnl.h>

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

/* The numbers [from, from + n) of the operand `of` to y; its scales are the operand behind it. */
static void cpu_unpack_numbers(const struct plain *p, int of, int64_t from, int64_t n, float *y)
{
    const int8_t *codes = p->in[of];
    const float *scales = p->in[of + 1];
    int64_t done = 0, len;

    if (p->in_type[of] != DTYPE_I8) {
        convert_to_f32(y, (const uint16_t *)p->in[of] + from, p->in_type[of], n);
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

        cpu_unpack_numbers(p, UNPACK_CODES, at, n, y);
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

        cpu_unpack_numbers(p, UNPACK_ROWS_CODES, row * c, c, y);
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

/* ---- products ---- */

enum { TILE = 1 << 20 }; /* elements */

_Static_assert(UNPACK_SCALES == UNPACK_CODES + 1 && UNPACK_ROWS_SCALES == UNPACK_ROWS_CODES + 1 &&
                   UNPACK_LINEAR_SCALES == UNPACK_LINEAR_CODES + 1,
               "cpu_unpack_numbers finds the scales");
_Static_assert((int)UNPACK_LINEAR_X == (int)UNPACK_LINEAR_GRAD_X_DY &&
                   (int)UNPACK_LINEAR_CODES == (int)UNPACK_LINEAR_GRAD_X_CODES &&
                   (int)UNPACK_LINEAR_Y == (int)UNPACK_LINEAR_GRAD_X_DX,
               "cpu_unpack_product serves both");

/* Rows of the weight as it is stored, [s,l], that a tile has: it begins where a block does. */
static int64_t cpu_unpack_tile(const struct shape *w)
{
    return round_up_i64(max_i64(1, TILE / max_i64(w->dim[1], 1)), BLOCKS_LEN);
}

static size_t cpu_unpack_tile_bytes(const struct shape *w)
{
    return (size_t)(min_i64(cpu_unpack_tile(w), w->dim[0]) * w->dim[1]) * sizeof(float);
}

static void cpu_unpack_tile_part(const struct plain *tile, int part, int64_t from, int64_t to)
{
    (void)part;
    cpu_unpack_numbers(tile, UNPACK_LINEAR_CODES, from, to - from, (float *)tile->scratch + from);
}

/* Unpack rows [row, row + n) of the weight to the scratch. */
static void cpu_unpack_rows_of(const struct plain *p, int64_t row, int64_t n)
{
    const int64_t l = p->in_shape[UNPACK_LINEAR_CODES].dim[1], at = row * l;
    struct plain tile = *p;

    ASSERT(at % BLOCKS_LEN == 0);
    tile.in[UNPACK_LINEAR_CODES] = (char *)tile.in[UNPACK_LINEAR_CODES] +
                                   (size_t)at * dtype_size(p->in_type[UNPACK_LINEAR_CODES]);
    if (tile.in[UNPACK_LINEAR_SCALES])
        tile.in[UNPACK_LINEAR_SCALES] = (float *)tile.in[UNPACK_LINEAR_SCALES] + at / BLOCKS_LEN;
    plain_split(&tile, n * l, n * l / 8, cpu_unpack_tile_part);
}

/* x times the rows in the scratch.  spreads: they give columns of y; else y is the sum over the
 * tiles. */
static dnnl_status_t cpu_unpack_multiply(const struct plain *p, int spreads, int64_t row, int64_t n)
{
    const struct shape *x = &p->in_shape[UNPACK_LINEAR_X], *w = &p->in_shape[UNPACK_LINEAR_CODES];
    const int64_t r = x->dim[0], s = w->dim[0], l = w->dim[1];
    const float *from = p->in[UNPACK_LINEAR_X], *tile = p->scratch;
    float *y = p->out[UNPACK_LINEAR_Y];

    return spreads ? dnnl_sgemm('N', 'T', r, n, l, 1.0f, from, l, tile, l, 0.0f, y + row, s)
                   : dnnl_sgemm('N', 'N', r, l, n, 1.0f, from + row, s, tile, l,
                                row > 0 ? 1.0f : 0.0f, y, l);
}

static void cpu_unpack_product(const struct plain *p, int spreads)
{
    const struct shape *w = &p->in_shape[UNPACK_LINEAR_CODES];
    const int64_t most = cpu_unpack_tile(w);

    for (int64_t row = 0; row < w->dim[0]; row += most) {
        const int64_t n = min_i64(most, w->dim[0] - row);

        cpu_unpack_rows_of(p, row, n);
        plain_multiplied(p, (int)cpu_unpack_multiply(p, spreads, row, n));
    }
}

static void cpu_unpack_bias_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int64_t c = p->out_shape[UNPACK_LINEAR_Y].dim[1];

    (void)part;
    for (int64_t r = from; r < to; r++)
        plain_add((float *)p->out[UNPACK_LINEAR_Y] + r * c, p->in[UNPACK_LINEAR_B], c);
}

static void cpu_unpack_run_linear(const struct plain *p)
{
    const struct shape *y = &p->out_shape[UNPACK_LINEAR_Y];

    cpu_unpack_product(p, !p->attr.linear.transposed);
    if (p->in[UNPACK_LINEAR_B])
        plain_split(p, y->dim[0], shape_elements(y) / 8, cpu_unpack_bias_part);
}

static void cpu_unpack_run_linear_grad_x(const struct plain *p)
{
    cpu_unpack_product(p, p->attr.linear.transposed);
}

int cpu_make_unpack_linear(struct cpu *b, const struct graph *g, const struct node *n,
                           struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_unpack_run_linear,
                           cpu_unpack_tile_bytes(cpu_in(g, n, UNPACK_LINEAR_CODES)), 0, out, err);
}

int cpu_make_unpack_linear_grad_x(struct cpu *b, const struct graph *g, const struct node *n,
                                  struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_unpack_run_linear_grad_x,
                           cpu_unpack_tile_bytes(cpu_in(g, n, UNPACK_LINEAR_GRAD_X_CODES)), 0, out,
                           err);
}
