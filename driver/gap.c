/* gap - reads both tensors block by block, so tensors may be larger than the memory.
 *
 * A difference is taken in double precision, in which float32 numbers are exact. */
#include "driver/gap.h"

#include <math.h>
#include <string.h>

#include "base/util.h"

enum { BLOCK = 1 << 13 };

/* A number that is undefined, or infinite, in one of the tensors alone is infinitely far away. */
static double gap_of(float x, float y)
{
    const double d = fabs((double)x - (double)y);

    if (x == y || (isnan(x) && isnan(y)))
        return 0;
    return isnan(d) ? INFINITY : d;
}

static void gap_add(struct gap *g, const float *x, const float *y, int64_t from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double d = gap_of(x[i], y[i]);

        if (!memcmp(&x[i], &y[i], sizeof *x))
            continue;
        if (g->n_other == 0 || d > g->most) {
            g->at = from + i;
            g->x = x[i];
            g->y = y[i];
            g->most = d;
        }
        g->n_other++;
    }
}

int gap_measure(const struct st_file *a, const struct st_file *b, const char *name, struct gap *out,
                struct err *err)
{
    const struct st_tensor *s = st_find(a, name), *t = st_find(b, name);
    float x[BLOCK], y[BLOCK];
    int rc = 0;

    *out = (struct gap){.n = s ? shape_elements(&s->shape) : 0};
    if (!s || !t || s->dtype != DTYPE_F32 || t->dtype != DTYPE_F32 ||
        !shape_equal(&s->shape, &t->shape))
        return err_set(err, ERR_CONFIG,
                       "%s cannot be compared: want a float32 tensor of the same shape in both",
                       name);
    for (int64_t at = 0; at < out->n && rc == 0; at += BLOCK) {
        const int64_t n = min_i64(BLOCK, out->n - at);

        rc = st_read(a, s, sizeof *x * (size_t)at, x, sizeof *x * (size_t)n, err);
        if (rc == 0)
            rc = st_read(b, t, sizeof *y * (size_t)at, y, sizeof *y * (size_t)n, err);
        if (rc == 0)
            gap_add(out, x, y, at, n);
    }
    return rc;
}

void gap_put(struct buf *out, const struct st_tensor *t, const struct gap *g)
{
    char shape[SHAPE_TEXT_LEN];

    buf_printf(out, "%lld of %lld numbers of %s, ", (long long)g->n_other, (long long)g->n,
               shape_text(&t->shape, shape));
    if (g->most > 0)
        buf_printf(out, "by up to %.3g", g->most);
    else
        buf_printf(out, "in the signs of zeros or the bits of NaNs");
    buf_printf(out, " (element %lld: %.9g and %.9g)", (long long)g->at, (double)g->x, (double)g->y);
}
