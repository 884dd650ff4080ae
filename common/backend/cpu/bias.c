/* bias - adds a vector to each row, by oneDNN; the bias' gradient is plain C, row by row.
 *
 * op/bias.c has the formulas; the twin is cuda/bias.cu. */
#include <string.h>

#include "backend/cpu/chain.h"
#include "backend/cpu/plain.h"

/* The layout of x [..,C] as a matrix [rows,C]. */
static struct dn_layout matrix(const struct shape *x)
{
    const int64_t c = x->dim[x->n - 1];

    return dn_row_major(2, (int64_t[]){shape_elements(x) / c, c});
}

int cpu_make_bias(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err)
{
    struct chain *c = chain_new(b->dn, err);
    int x = chain_tensor(c, CHAIN_IN, BIAS_X, matrix(cpu_in(g, n, BIAS_X)));
    int v = chain_tensor(c, CHAIN_IN, BIAS_B, matrix(cpu_in(g, n, BIAS_B)));
    int y = chain_tensor(c, CHAIN_OUT, BIAS_Y, matrix(cpu_out(g, n, BIAS_Y)));

    chain_sum(c, x, v, y);
    return chain_finish(c, out);
}

/* db[c] = sum over rows of dy[row,c].  Blocks of rows are summed first, so that rounding errors
 * grow less with the number of rows. */
CPU_CLONES static void run_grad(const struct plain *p)
{
    enum { BLOCK = 256 };
    const float *restrict dy = p->in[BIAS_GRAD_DY];
    float *restrict db = p->out[BIAS_GRAD_DB], *restrict part = p->scratch;
    const int64_t c = p->c;

    memset(db, 0, (size_t)c * sizeof *db);
    for (int64_t from = 0; from < p->rows; from += BLOCK) {
        const int64_t to = from + BLOCK < p->rows ? from + BLOCK : p->rows;

        memset(part, 0, (size_t)c * sizeof *part);
        for (int64_t r = from; r < to; r++)
            for (int64_t i = 0; i < c; i++)
                part[i] += dy[r * c + i];
        for (int64_t i = 0; i < c; i++)
            db[i] += part[i];
    }
}

int cpu_make_bias_grad(struct cpu *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err)
{
    const size_t scratch = (size_t)shape_elements(cpu_out(g, n, BIAS_GRAD_DB)) * sizeof(float);

    (void)b;
    return plain_new(g, n, run_grad, scratch, out, err);
}
