/* bias - adds a vector to each row, by oneDNN; the bias' gradient is plain C, row by row.
 *
 * op/bias.c has the formulas; the twin is cuda/bias.cu. */
#include <string.h>

#include "backend/cpu/chain.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/plain.h"
#include "base/util.h"

/* The layout of x [..,C] as a matrix [rows,C]. */
static struct dn_layout cpu_bias_matrix(const struct shape *x)
{
    const int64_t c = x->dim[x->n - 1];

    return dn_row_major(2, (int64_t[]){shape_elements(x) / c, c});
}

int cpu_make_bias(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err)
{
    struct chain *c = chain_new(b, g, n, err);
    int x = chain_tensor(c, CHAIN_IN, BIAS_X, cpu_bias_matrix(cpu_in(g, n, BIAS_X)));
    int v = chain_tensor(c, CHAIN_IN, BIAS_B, cpu_bias_matrix(cpu_in(g, n, BIAS_B)));
    int y = chain_tensor(c, CHAIN_OUT, BIAS_Y, cpu_bias_matrix(cpu_out(g, n, BIAS_Y)));

    chain_sum(c, x, v, y);
    return chain_finish(c, out);
}

enum { BLOCK = 256 }; /* rows */

CPU_CLONES static void cpu_bias_add_rows(const float *restrict x, float *restrict sum, int64_t rows,
                                         int64_t c)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < c; i++)
            sum[i] += x[r * c + i];
}

/* db[c] = sum over rows of dy[row,c].  Blocks of rows are summed first, so that rounding errors
 * grow less with the number of rows. */
static void cpu_bias_run_grad(const struct plain *p)
{
    const int64_t c = p->c, piece = plain_piece_rows(c);
    float *db = p->scratch, *sum = db + c, *room = sum + c;

    memset(db, 0, (size_t)c * sizeof *db);
    for (int64_t from = 0; from < p->rows; from += BLOCK) {
        const int64_t to = min_i64(from + BLOCK, p->rows);

        memset(sum, 0, (size_t)c * sizeof *sum);
        for (int64_t r = from; r < to; r += piece) {
            const int64_t n = min_i64(to - r, piece);

            cpu_bias_add_rows(plain_read(p, BIAS_GRAD_DY, r * c, n * c, room), sum, n, c);
        }
        for (int64_t i = 0; i < c; i++)
            db[i] += sum[i];
    }
    convert_from_f32(p->out[BIAS_GRAD_DB], db, p->out_type[BIAS_GRAD_DB], c);
}

int cpu_make_bias_grad(struct cpu *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err)
{
    const size_t sums = 2 * (size_t)shape_elements(cpu_out(g, n, BIAS_GRAD_DB)) * sizeof(float);

    (void)b;
    return plain_new(g, n, cpu_bias_run_grad, sums + plain_room_of(g, n->in[BIAS_GRAD_DY]), out,
                     err);
}
