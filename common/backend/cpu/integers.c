/* integers - exact arithmetic of whole numbers.
 *
 * op/integers.c has the formulas; the twin is cuda/integers.cu. */
#include "ir/integers.h"
#include "backend/cpu/plain.h"

static void cpu_integers_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int kind = (int)p->attr.integers.kind;
    const int32_t *a = p->in[INTEGERS_A], *b = p->in[INTEGERS_B];
    int32_t *y = p->out[INTEGERS_Y];

    (void)part;
    for (int64_t i = from; i < to; i++) {
        const int64_t v = a[i], w = b ? b[i] : p->attr.integers.number, u = INTEGERS_OF(kind, v, w);

        y[i] = (int32_t)INTEGERS_LIMIT(u);
    }
}

static void cpu_integers_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int32_t *a = p->in[INTEGERS_A];
    int32_t *y = p->out[INTEGERS_Y];

    (void)part;
    for (int64_t r = from; r < to; r++) {
        int64_t sum = 0;

        for (int64_t i = r * p->c; i < (r + 1) * p->c; i++) {
            sum = INTEGERS_LIMIT(sum + a[i]);
            y[i] = (int32_t)sum;
        }
    }
}

static void cpu_integers_run(const struct plain *p)
{
    const int64_t n = p->rows * p->c;

    if (p->attr.integers.kind == INTEGERS_PREFIX)
        plain_split(p, p->rows, n, cpu_integers_rows);
    else
        plain_split(p, n, n / 8, cpu_integers_part);
}

int cpu_make_integers(struct cpu *b, const struct graph *g, const struct node *n,
                      struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_integers_run, 0, 0, out, err);
}
