/* product - blocks of four rows by two vectors, whose sums stay in registers over all terms.
 * A panel, the columns of b that a block reads, is copied so that its rows are neighbours. */
#include "backend/cpu/product.h"

#include <string.h>

#include "backend/cpu/vector.h"
#include "base/util.h"

enum { BLOCK_ROWS = 4, BLOCK_COLUMNS = 2 * LANES };

size_t product_part_bytes(int64_t k) { return (size_t)k * BLOCK_COLUMNS * sizeof(float); }

int64_t product_panels(const struct product *x) { return ceil_div_i64(x->n, BLOCK_COLUMNS); }

int64_t product_work(const struct product *x) { return x->m * x->n * x->k / (LANES / 2); }

/* Columns beyond the last one are zeros. */
static void copy_panel(const struct product *x, int64_t column, int64_t n, float *panel)
{
    for (int64_t t = 0; t < x->k; t++) {
        const float *from = x->b + t * x->b_row + column * x->b_column;
        float *to = panel + t * BLOCK_COLUMNS;

        for (int64_t j = 0; j < n; j++)
            to[j] = from[j * x->b_column];
        for (int64_t j = n; j < BLOCK_COLUMNS; j++)
            to[j] = 0;
    }
}

/* sum[r] = row a[r], of k elements, times the panel. */
CPU_CLONES static void sum_block(const float *const a[BLOCK_ROWS], int64_t k,
                                 const float *restrict panel, float sum[BLOCK_ROWS][BLOCK_COLUMNS])
{
    const float *a0 = a[0], *a1 = a[1], *a2 = a[2], *a3 = a[3];
    lanes s00 = {0}, s01 = {0}, s10 = {0}, s11 = {0}, s20 = {0}, s21 = {0}, s30 = {0}, s31 = {0};

    for (int64_t t = 0; t < k; t++) {
        const lanes left = *(const lanes *)(panel + t * BLOCK_COLUMNS);
        const lanes right = *(const lanes *)(panel + t * BLOCK_COLUMNS + LANES);

        s00 += a0[t] * left;
        s01 += a0[t] * right;
        s10 += a1[t] * left;
        s11 += a1[t] * right;
        s20 += a2[t] * left;
        s21 += a2[t] * right;
        s30 += a3[t] * left;
        s31 += a3[t] * right;
    }
    *(lanes *)sum[0] = s00;
    *(lanes *)(sum[0] + LANES) = s01;
    *(lanes *)sum[1] = s10;
    *(lanes *)(sum[1] + LANES) = s11;
    *(lanes *)sum[2] = s20;
    *(lanes *)(sum[2] + LANES) = s21;
    *(lanes *)sum[3] = s30;
    *(lanes *)(sum[3] + LANES) = s31;
}

static void store_row(const struct product *x, int64_t row, int64_t column, int64_t n,
                      const float *sum)
{
    const float *add = x->add ? x->add + row * x->n + column : NULL;
    float *c = x->c + row * x->n + column;

    for (int64_t j = 0; j < n; j++)
        c[j] = add ? x->beta * add[j] + x->alpha * sum[j] : x->alpha * sum[j];
}

/* Rows beyond the last one are computed as the last one, and not stored. */
static void run_panel(const struct product *x, int64_t column, int64_t n, const float *panel)
{
    float sum[BLOCK_ROWS][BLOCK_COLUMNS];
    const float *a[BLOCK_ROWS];

    for (int64_t row = 0; row < x->m; row += BLOCK_ROWS) {
        for (int r = 0; r < BLOCK_ROWS; r++)
            a[r] = x->a + min_i64(row + r, x->m - 1) * x->k;
        sum_block(a, x->k, panel, sum);
        for (int r = 0; r < BLOCK_ROWS && row + r < x->m; r++)
            store_row(x, row + r, column, n, sum[r]);
    }
}

void product_run(const struct plain *p, const struct product *x, int i, int64_t from, int64_t to)
{
    float *panel = plain_part_scratch(p, i);

    for (int64_t k = from; k < to; k++) {
        const int64_t column = k * BLOCK_COLUMNS, n = min_i64(BLOCK_COLUMNS, x->n - column);

        copy_panel(x, column, n, panel);
        run_panel(x, column, n, panel);
    }
}
