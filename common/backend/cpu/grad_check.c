/* grad_check - the sum of squares of all gradients, and whether one of them is not finite.
 *
 * Only the number of elements decides the order of the sum: blocks of BLOCK elements, in which
 * element i goes to lane i % LANES; lanes and blocks are added in order.  In double nothing
 * overflows (the largest float squared is 1e77), so the sum is finite exactly if every element is.
 * op/grad_check.c has the formula; the twin is cuda/grad_check.cu. */
#include <math.h>

#include "backend/cpu/plain.h"
#include "base/util.h"

enum { LANES = 16, BLOCK = 4096 };

CPU_CLONES static double sum_block(const float *restrict x, int64_t n)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; i < n; i++, j++)
        lane[j] += (double)x[i] * (double)x[i];
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

static int64_t n_blocks(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

static void sum_blocks(const struct plain *p, int part, int64_t from, int64_t to)
{
    double *sums = p->scratch;
    float room[BLOCK];

    (void)part;
    for (int64_t i = from; i < to; i++) {
        const int64_t n = min_i64(p->c - i * BLOCK, BLOCK);

        sums[i] = sum_block(plain_read(p, GRAD_CHECK_GRAD, i * BLOCK, n, room), n);
    }
}

static void run(const struct plain *p)
{
    const double *sums = p->scratch;
    double *check = p->out[GRAD_CHECK_CHECK], sum = 0;

    plain_split(p, n_blocks(p->c), p->c / 8, sum_blocks);
    for (int64_t i = 0; i < n_blocks(p->c); i++)
        sum += sums[i];
    check[0] = sum;
    check[1] = !isfinite(sum);
}

int cpu_make_grad_check(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    const size_t sums =
        (size_t)n_blocks(shape_elements(cpu_in(g, n, GRAD_CHECK_GRAD))) * sizeof(double);

    return plain_new_split(b, g, n, run, sums, 0, out, err);
}
