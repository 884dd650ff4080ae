/* adasum - combines gradients pair by pair.
 *
 * A part is some tensors of some pairs.  Each tensor's products are added in LANES lanes, so the
 * number of threads changes no bits.  op/adasum.c has the formulas; the twin is cuda/adasum.cu. */
#include "op/adasum.h"

#include "backend/cpu/plain.h"

enum { LANES = 8 };

/* One tensor of one pair. */
struct tensor {
    float *a, *b;
    int64_t n;
    double *dots; /* [ADASUM_N_DOTS] */
};

static int64_t n_tensors(const struct plain *p) { return p->in_shape[ADASUM_DOTS_ENDS].dim[0]; }

static int64_t n_items(const struct plain *p)
{
    const int64_t stride = (int64_t)p->attr.number[ADASUM_DOTS_ATTR_STRIDE];

    return adasum_pairs(p->in_shape[ADASUM_DOTS_ROWS].dim[0], stride) * n_tensors(p);
}

/* Item i of all pairs' tensors; `dots` holds the products of all. */
static struct tensor tensor_at(const struct plain *p, int64_t i, double *dots)
{
    const int64_t stride = (int64_t)p->attr.number[ADASUM_DOTS_ATTR_STRIDE];
    const int64_t pair = i / n_tensors(p), t = i % n_tensors(p);
    const int64_t *ends = p->in[ADASUM_DOTS_ENDS];
    const int64_t from = t > 0 ? ends[t - 1] : 0;
    float *a = (float *)p->in[ADASUM_DOTS_ROWS] + 2 * pair * stride * p->c + from;

    return (struct tensor){a, a + stride * p->c, ends[t] - from, dots + i * ADASUM_N_DOTS};
}

CPU_CLONES static void cpu_adasum_add_dots(const float *a, const float *b, int64_t n, double *dots)
{
    double lane[ADASUM_N_DOTS][LANES] = {{0}};

    for (int64_t from = 0; from < n; from += LANES)
        for (int64_t k = 0; k < LANES && from + k < n; k++) {
            const double x = (double)a[from + k], y = (double)b[from + k];

            lane[ADASUM_AB][k] += x * y;
            lane[ADASUM_AA][k] += x * x;
            lane[ADASUM_BB][k] += y * y;
        }
    for (int i = 0; i < ADASUM_N_DOTS; i++) {
        dots[i] = 0;
        for (int k = 0; k < LANES; k++)
            dots[i] += lane[i][k];
    }
}

static void dots_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    (void)part;
    for (int64_t i = from; i < to; i++) {
        const struct tensor t = tensor_at(p, i, p->out[ADASUM_DOTS_DOTS]);

        cpu_adasum_add_dots(t.a, t.b, t.n, t.dots);
    }
}

static void cpu_adasum_run_dots(const struct plain *p)
{
    plain_split(p, n_items(p), p->rows * p->c / 4, dots_part);
}

CPU_CLONES static void cpu_adasum_combine(float *a, const float *b, int64_t n, double of_a,
                                          double of_b)
{
    for (int64_t i = 0; i < n; i++)
        a[i] = (float)(of_a * (double)a[i] + of_b * (double)b[i]);
}

static void combine_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    (void)part;
    for (int64_t i = from; i < to; i++) {
        const struct tensor t = tensor_at(p, i, p->in[ADASUM_COMBINE_DOTS]);

        cpu_adasum_combine(t.a, t.b, t.n, adasum_factor(t.dots[ADASUM_AB], t.dots[ADASUM_AA]),
                           adasum_factor(t.dots[ADASUM_AB], t.dots[ADASUM_BB]));
    }
}

static void cpu_adasum_run_combine(const struct plain *p)
{
    plain_split(p, n_items(p), p->rows * p->c / 4, combine_part);
}

int cpu_make_adasum_dots(struct cpu *b, const struct graph *g, const struct node *n,
                         struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_adasum_run_dots, 0, 0, out, err);
}

int cpu_make_adasum_combine(struct cpu *b, const struct graph *g, const struct node *n,
                            struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_adasum_run_combine, 0, 0, out, err);
}
