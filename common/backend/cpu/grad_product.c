/* grad_product - packs blocks of the operands, so that the inner loop reads their numbers one after
 * the other, and adds the product of two blocks to c.
 *
 * A block has up to BLOCK_ROWS rows: of GROUP columns of a, or of CHUNK columns of b.  It is packed
 * as panels of a few columns, row by row.  The block of b (768 KiB) stays in the second-level cache
 * while the panels of a (16 KiB each) pass, each of which stays in the first-level cache while it
 * meets those of b.  With blocks of 256 rows the products took 1.02 of the time. */
#include "backend/cpu/grad_product.h"

#include <string.h>

#include "backend/cpu/onednn.h"
#include "backend/cpu/outer.h"
#include "backend/cpu/parts.h"
#include "backend/cpu/plain.h"
#include "backend/cpu/vector.h"
#include "base/util.h"

enum { A_WIDTH = OUTER_PACKED_I, B_WIDTH = OUTER_PACKED_J }; /* columns of a panel */
enum {
    BLOCK_ROWS = 512,
    GROUP = 32 * B_WIDTH,
    CHUNK = 8 * B_WIDTH,
    LEAST_C = 1 << 17, /* elements of c; with fewer, oneDNN's product took 0.7 to 1.2 of the time */
    SQUARE_ROWS = 16,  /* a square of so many rows and B_WIDTH columns is packed at once */
    PACK_WORK = 8,     /* vector instructions for each row of a square, roughly */
};

/* A block of one operand: n_rows rows, `row` apart, of n columns. */
struct operand {
    const float *at;
    int64_t row, n_rows, n;
    int width;     /* columns of a panel */
    float *panels; /* the packed block */
    float *sum;    /* the sums of its columns, or NULL */
};

/* The product of two blocks, and where it goes. */
struct step {
    struct operand a, b;
    float *c;
    int64_t c_row;
    enum outer_end end;
    int packs_a, n_parts;
};

/* ---- packing ---- */

static inline void pack_panel(const float *from, int64_t row, int64_t n_rows, int width, int64_t n,
                              float *to)
{
    for (int64_t t = 0; t < n_rows; t++)
        memcpy(to + t * width, from + t * row, (size_t)n * sizeof *to);
}

static inline void grad_product_sum(const float *from, int64_t row, int64_t n_rows, int64_t n,
                                    float *sum)
{
    float part[B_WIDTH] = {0};

    for (int64_t t = 0; t < n_rows; t++)
        for (int64_t j = 0; j < n; j++)
            part[j] += from[t * row + j];
    for (int64_t j = 0; j < n; j++)
        sum[j] += part[j];
}

/* The square that begins at row t and column j.  The compiler makes vectors of widths that it
 * knows. */
CPU_CLONES static void pack_square(const struct operand *x, int64_t t, int64_t n_rows, int64_t j)
{
    const int64_t n = min_i64(B_WIDTH, x->n - j);
    const float *from = x->at + t * x->row + j;
    float *to = x->panels + j * x->n_rows + t * x->width;

    for (int64_t k = 0; k < n; k += x->width)
        if (k + x->width > n)
            pack_panel(from + k, x->row, n_rows, x->width, n - k, to + k * x->n_rows);
        else if (x->width == A_WIDTH)
            pack_panel(from + k, x->row, n_rows, A_WIDTH, A_WIDTH, to + k * x->n_rows);
        else
            pack_panel(from, x->row, n_rows, B_WIDTH, B_WIDTH, to);
    if (x->sum && n == B_WIDTH)
        grad_product_sum(from, x->row, n_rows, B_WIDTH, x->sum + j);
    else if (x->sum)
        grad_product_sum(from, x->row, n_rows, n, x->sum + j);
}

static int64_t grad_product_squares(const struct operand *x) { return ceil_div_i64(x->n, B_WIDTH); }

static int64_t squares_to_pack(const struct step *s)
{
    return (s->packs_a ? grad_product_squares(&s->a) : 0) + grad_product_squares(&s->b);
}

/* The squares of b come first, then those of a. */
static void pack_part(const void *task, int part)
{
    const struct step *s = task;
    const int64_t n = squares_to_pack(s), n_b = grad_product_squares(&s->b);

    for (int64_t t = 0; t < s->b.n_rows; t += SQUARE_ROWS)
        for (int64_t i = n * part / s->n_parts; i < n * (part + 1) / s->n_parts; i++)
            pack_square(i < n_b ? &s->b : &s->a, t, min_i64(SQUARE_ROWS, s->b.n_rows - t),
                        (i < n_b ? i : i - n_b) * B_WIDTH);
}

/* ---- products ---- */

/* The product of the panels that begin at column i of a and column j of b. */
static void multiply_panels(const struct step *s, int64_t i, int64_t j)
{
    const int64_t n = s->a.n_rows;
    const float *a = s->a.panels + i * n, *b = s->b.panels + j * n;
    float *c = s->c + i * s->c_row + j;
    struct outer o = {.n1 = 1,
                      .n2 = n,
                      .a2 = A_WIDTH,
                      .b2 = B_WIDTH,
                      .n_i = (int)min_i64(A_WIDTH, s->a.n - i),
                      .n_j = (int)min_i64(B_WIDTH, s->b.n - j),
                      .end = s->end};

    if (o.n_i == A_WIDTH && o.n_j == B_WIDTH) {
        outer_run_packed(n, a, b, s->end, c, s->c_row);
        return;
    }
    for (int k = 0; k < o.n_i; k++) {
        o.a_off[k] = k;
        o.to_off[k] = k * s->c_row;
    }
    outer_run(&o, a, b, c);
}

static int64_t pairs_of_panels(const struct step *s)
{
    return ceil_div_i64(s->a.n, A_WIDTH) * ceil_div_i64(s->b.n, B_WIDTH);
}

static void multiply_part(const void *task, int part)
{
    const struct step *s = task;
    const int64_t n = pairs_of_panels(s), across = ceil_div_i64(s->b.n, B_WIDTH);

    for (int64_t i = n * part / s->n_parts; i < n * (part + 1) / s->n_parts; i++)
        multiply_panels(s, i / across * A_WIDTH, i % across * B_WIDTH);
}

static void grad_product_step(struct step *s, int n_threads, int64_t least_work)
{
    const int64_t n_rows = s->a.n_rows, squares = squares_to_pack(s);

    s->n_parts = parts_of(n_threads, least_work, squares, squares * n_rows * PACK_WORK);
    parts_run(s->n_parts, pack_part, s);
    s->n_parts =
        parts_of(n_threads, least_work, pairs_of_panels(s), n_rows * s->a.n * s->b.n / LANES);
    parts_run(s->n_parts, multiply_part, s);
}

/* Floats of a packed block, of at most `most` of n columns. */
static int64_t grad_product_packed(int64_t M, int64_t n, int64_t most)
{
    return min_i64(M, BLOCK_ROWS) * min_i64(most, round_up_i64(n, B_WIDTH));
}

/* Rows [from, to), the group of a's columns from i on, and the chunk of b's from j on. */
static struct step grad_product_block(const struct grad_product *g, int64_t from, int64_t to,
                                      int64_t i, int64_t j, float *scratch)
{
    return (struct step){.a = {.at = g->a + from * g->R + i,
                               .row = g->R,
                               .n_rows = to - from,
                               .n = min_i64(GROUP, g->R - i),
                               .width = A_WIDTH,
                               .panels = scratch,
                               .sum = g->a_sum ? g->a_sum + i : NULL},
                         .b = {.at = g->b + from * g->C + j,
                               .row = g->C,
                               .n_rows = to - from,
                               .n = min_i64(CHUNK, g->C - j),
                               .width = B_WIDTH,
                               .panels = scratch + grad_product_packed(g->M, g->R, GROUP),
                               .sum = g->b_sum && i == 0 ? g->b_sum + j : NULL},
                         .c = g->c + i * g->C + j,
                         .c_row = g->C,
                         .end = g->adds || from > 0 ? OUTER_ADD : OUTER_STORE,
                         .packs_a = j == 0};
}

void grad_product_run(const struct grad_product *g, float *scratch, int n_threads,
                      int64_t least_work)
{
    const int64_t n_blocks = ceil_div_i64(g->M, BLOCK_ROWS);

    if (g->a_sum)
        memset(g->a_sum, 0, (size_t)g->R * sizeof *g->a_sum);
    if (g->b_sum)
        memset(g->b_sum, 0, (size_t)g->C * sizeof *g->b_sum);
    for (int64_t i = 0; i < g->R; i += GROUP)
        for (int64_t k = 0; k < n_blocks; k++)
            for (int64_t j = 0; j < g->C; j += CHUNK) {
                struct step s = grad_product_block(g, g->M * k / n_blocks,
                                                   g->M * (k + 1) / n_blocks, i, j, scratch);

                grad_product_step(&s, n_threads, least_work);
            }
}

int64_t grad_product_scratch(int64_t M, int64_t R, int64_t C)
{
    return grad_product_packed(M, R, GROUP) + grad_product_packed(M, C, CHUNK);
}

int grad_product_pays(int64_t M, int64_t R, int64_t C)
{
    return outer_available() && dn_is_intel() && M >= BLOCK_ROWS && R * C >= LEAST_C;
}
