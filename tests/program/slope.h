/* slope - gradients against central differences of the loss. */
#ifndef TESTS_PROGRAM_SLOPE_H
#define TESTS_PROGRAM_SLOPE_H

#include "../test.h"

#include <math.h>

#include "rig.h"

/* The derivative of the loss by *param, by a central difference of width h. */
static inline double slope(struct rig *r, float *param, double h)
{
    const float was = *param;
    float up, down;
    double high, low;

    *param = up = (float)(was + h);
    high = rig_loss(r);
    *param = down = (float)(was - h);
    low = rig_loss(r);
    *param = was;
    return (high - low) / ((double)up - (double)down);
}

static inline double largest(const float *v, int64_t n)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(v[i]));
    return most;
}

/* The distance of the gradient `seen` from the nearest of several central differences.  A wide
 * difference may straddle a kink of relu or of the maximum; a narrow one loses digits. */
static inline double distance(struct rig *r, float *param, double h, double seen, double enough)
{
    double nearest = INFINITY;

    for (int i = 0; i < 3 && !(nearest <= enough); i++, h /= 5)
        nearest = fmin(nearest, fabs(seen - slope(r, param, h)));
    return nearest;
}

/* Check some elements of every parameter. */
static inline void check_all(struct rig *r, int per_param, double h, double tol, const char *what)
{
    for (int i = 0; i < r->layout->n_params; i++) {
        const struct segment *s = &r->layout->param[i];
        float *param = rig_param(r, s->name, NULL), *grad = rig_grad(r, s->name);
        const int64_t stride = max_i64(1, s->length / per_param);
        double most;

        if (s->info.frozen)
            continue;
        rig_run(r);
        most = largest(grad, s->length) + 1e-3;
        for (int64_t e = 0; e < s->length; e += stride) {
            const double seen = grad[e], off = distance(r, &param[e], h, seen, tol * most);

            if (!(off <= tol * most))
                fail_msg("%s: %s[%lld]: gradient %g is off by %g (largest %g)", what, s->name,
                         (long long)e, seen, off, most);
            rig_run(r);
        }
    }
}

#endif
