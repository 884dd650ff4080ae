/* Comparing the ranks' busy times over a window, by the lower median.
 * See straggler.h for the measure. */
#include "session/straggler.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"

static double step_ns(const struct work *w) { return (double)w->busy_ns / (double)w->n_steps; }

static int straggler_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double lower_median(const struct work *w, int n)
{
    double *v = xcalloc((size_t)n, sizeof *v), median;
    ASSERT(n > 0);

    for (int i = 0; i < n; i++)
        v[i] = step_ns(&w[i]);
    qsort(v, (size_t)n, sizeof *v, straggler_by_value);
    median = v[(n - 1) / 2];
    free(v);
    return median;
}

int straggler_compare(struct work *w, int n, double *median_ns)
{
    for (int i = 0; i < n; i++)
        if (w[i].n_steps < STRAGGLER_LEAST_STEPS)
            return 0;
    *median_ns = lower_median(w, n);
    for (int i = 0; i < n; i++)
        w[i].factor = *median_ns > 0 ? step_ns(&w[i]) / *median_ns : 1;
    return 1;
}

int straggler_is(int was, double factor, double limit)
{
    ASSERT(limit > 0);
    return factor >= (was ? (1 + limit) / 2 : limit);
}
