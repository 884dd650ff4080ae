/* grad_check - the sum of squares of all gradients, and whether one of them is not finite.
 *
 * Only the number of elements decides the order of the sum: blocks of BLOCK elements, each added up
 * by update_squares; the blocks are added in order.  In double nothing
 * overflows (the largest float squared is 1e77), so the sum is finite exactly if every element is.
 * op/grad_check.c has the formula; the twin is cuda/grad_check.cu. */
#include <math.h>

#include "backend/cpu/update.h"
#include "base/util.h"

enum { BLOCK = 4096 };

static int64_t cpu_grad_check_n_blocks(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

static void cpu_grad_check_sum_blocks(const struct plain *p, int part, int64_t from, int64_t to)
{
    double *sums = p->scratch;
    float room[BLOCK];

    (void)part;
    for (int64_t i = from; i < to; i++) {
        const int64_t n = min_i64(p->c - i * BLOCK, BLOCK);

        sums[i] = update_squares(plain_read(p, GRAD_CHECK_GRAD, i * BLOCK, n, room), n);
    }
}

static void cpu_grad_check_run(const struct plain *p)
{
    const double *sums = p->scratch;
    double *check = p->out[GRAD_CHECK_CHECK], sum = 0;

    plain_split(p, cpu_grad_check_n_blocks(p->c), p->c / 8, cpu_grad_check_sum_blocks);
    for (int64_t i = 0; i < cpu_grad_check_n_blocks(p->c); i++)
        sum += sums[i];
    check[0] = sum;
    check[1] = !isfinite(sum);
}

int cpu_make_grad_check(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    const size_t sums =
        (size_t)cpu_grad_check_n_blocks(shape_elements(cpu_in(g, n, GRAD_CHECK_GRAD))) *
        sizeof(double);

    return plain_new_split(b, g, n, cpu_grad_check_run, sums, 0, out, err);
}

static void cpu_grad_check_run_sum(const struct plain *p)
{
    const double *checks = p->in[CHECK_SUM_CHECKS];
    double *check = p->out[CHECK_SUM_CHECK];

    check[0] = check[1] = 0;
    for (int64_t i = 0; i < p->rows; i++) {
        check[0] += checks[2 * i];
        check[1] += checks[2 * i + 1];
    }
}

int cpu_make_check_sum(struct cpu *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, cpu_grad_check_run_sum, 0, out, err);
}
