/* average - averaged weights (op/average.c).
 *
 * The twin is cuda/average.cu. */
#include "op/average.h"

#include <string.h>

#include "backend/cpu/plain.h"
#include "op/control.h"

static float cpu_average_weight(const struct plain *p)
{
    const double *number = p->attr.number;

    if (!control_applies(p->in[AVERAGE_CHECK], p->in[AVERAGE_CONTROL]))
        return 0;
    return average_weight(p->in[AVERAGE_SCALARS], (int64_t)number[AVERAGE_ATTR_FIRST],
                          (int64_t)number[AVERAGE_ATTR_EVERY], number[AVERAGE_ATTR_DECAY]);
}

CPU_CLONES static void cpu_average_mix(float *restrict average, const float *restrict param,
                                       float w, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        average[i] = average[i] + w * (param[i] - average[i]);
}

static void average_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const float *param = (const float *)p->in[AVERAGE_PARAM] + from;
    float *average = (float *)p->out[AVERAGE_NEW_AVERAGE] + from;
    const float w = cpu_average_weight(p);

    (void)part;
    if (w == 1.0f)
        memcpy(average, param, sizeof *average * (size_t)(to - from));
    else
        cpu_average_mix(average, param, w, to - from);
}

static void cpu_average_run(const struct plain *p)
{
    if (cpu_average_weight(p) != 0.0f)
        plain_split(p, p->c, p->c / 8, average_part);
}

int cpu_make_average(struct cpu *b, const struct graph *g, const struct node *n,
                     struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_average_run, 0, 0, out, err);
}
