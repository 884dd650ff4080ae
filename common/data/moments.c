/* moments - mean and standard deviation in one pass over all samples, by Welford's recurrence: it
 * does not cancel where the mean is far larger than the deviation, and a feature that never changes
 * has a deviation of exactly 0. */
#include "data/moments.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"

struct moments {
    int64_t n;
    double mean, m2; /* m2: the sum of squared distances from the mean */
};

int64_t moments_features(const struct dataset *ds)
{
    const struct shape *s = &ds->spec.field[0].shape;

    return s->n ? s->dim[s->n - 1] : 1;
}

/* x [n,C], of sample i. */
static int add_row(struct moments *m, const float *x, int64_t n, int64_t c, int64_t i,
                   struct err *err)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < c; k++) {
            const double v = (double)x[r * c + k], from = v - m[k].mean;

            if (!isfinite(v))
                return err_set(err, ERR_CONFIG,
                               "data.normalize is auto, but feature %lld of sample %lld is %g, "
                               "want finite numbers; give mean and std",
                               (long long)k, (long long)i, v);
            m[k].mean += from / (double)++m[k].n;
            m[k].m2 += from * (v - m[k].mean);
        }
    return 0;
}

static int add_samples(const struct dataset *ds, struct moments *m, struct err *err)
{
    const int64_t c = moments_features(ds), n = shape_elements(&ds->spec.field[0].shape);
    void *to[SAMPLE_MAX_FIELDS] = {NULL}, *x;
    int rc = try_alloc(&x, sizeof(float) * (size_t)n, "a sample whose features are measured", err);

    to[0] = x;
    for (int64_t i = 0; i < ds->n_samples && rc == 0; i++) {
        rc = dataset_gather(ds, &i, 1, to, err);
        if (rc == 0)
            rc = add_row(m, x, n / c, c, i, err);
    }
    free(x);
    return rc;
}

static double deviation(const struct moments *m) { return sqrt(m->m2 / (double)m->n); }

/* 1: as a float the deviation is 0. */
static int is_constant(const struct moments *m) { return !((float)deviation(m) > 0); }

static int refuse_constant(const struct moments *m, int c, struct err *err)
{
    enum { MOST_NAMED = 8 };
    struct buf names = {0};
    int n = 0;

    for (int k = 0; k < c; k++)
        if (is_constant(&m[k]) && ++n <= MOST_NAMED)
            buf_printf(&names, "%s%d", n > 1 ? ", " : "", k);
    if (n > MOST_NAMED)
        buf_printf(&names, " and %d more", n - MOST_NAMED);
    if (n > 0)
        err_set(err, ERR_CONFIG,
                "data.normalize is auto, but feature%s %s %s the same in all samples; leave %s out "
                "of the array, or give mean and std",
                n > 1 ? "s" : "", buf_cstr(&names), n > 1 ? "are" : "is", n > 1 ? "them" : "it");
    buf_fini(&names);
    return n > 0 ? err->code : 0;
}

int moments_measure(const struct dataset *ds, struct option_reals *mean, struct option_reals *std,
                    struct err *err)
{
    const int64_t c = moments_features(ds);
    struct moments m[OPT_MAX_REALS] = {{0}};
    int rc;

    ASSERT(ds->image.n_channels == 0 && ds->spec.field[0].dtype == DTYPE_F32);
    if (c > OPT_MAX_REALS)
        return err_set(err, ERR_CONFIG,
                       "data.normalize is auto, but a sample has %lld features, want at most %d; "
                       "normalise the arrays before they are saved",
                       (long long)c, OPT_MAX_REALS);
    rc = add_samples(ds, m, err);
    if (rc == 0)
        rc = refuse_constant(m, (int)c, err);
    mean->n = std->n = (int)c;
    for (int k = 0; k < c && rc == 0; k++) {
        mean->v[k] = m[k].mean;
        std->v[k] = deviation(&m[k]);
    }
    return rc;
}
