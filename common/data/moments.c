/* moments - mean and standard deviation in one pass over all samples, by Welford's recurrence: it
 * does not cancel where the mean is far larger than the deviation, and a feature that never changes
 * has a deviation of exactly 0. */
#include "data/moments.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "data/targets.h"

struct moments {
    int64_t n;
    double mean, m2; /* m2: the sum of squared distances from the mean */
    double least, most;
};

/* The features of a field that are measured, and the words for messages. */
struct measuring {
    const struct dataset *ds;
    int field;
    int64_t c; /* features */
    int is_named;
    const char *key, *each;
};

int64_t moments_features(const struct dataset *ds, int field)
{
    const struct shape *s = &ds->spec.field[field].shape;

    return s->n ? s->dim[s->n - 1] : 1;
}

/* Element i of a row as it is stored. */
static double stored_at(enum dtype stored, const void *row, int64_t i)
{
    return stored == DTYPE_F64   ? ((const double *)row)[i]
           : stored == DTYPE_F32 ? (double)((const float *)row)[i]
                                 : (double)((const uint8_t *)row)[i];
}

static int refuse_number(const struct measuring *g, int64_t k, int64_t i, double v, struct err *err)
{
    char *where = dataset_place(g->ds, i, g->field);

    err_set(err, ERR_CONFIG,
            "%s is auto, but %s: %s %lld is %g, want finite numbers%s; mend it, or leave such "
            "samples out of the file",
            g->key, where, g->each, (long long)k, v, isfinite(v) ? " of at most 1e30" : "");
    free(where);
    return err->code;
}

/* row [n,C], of sample i. */
static int add_row(const struct measuring *g, struct moments *m, const void *row, int64_t n,
                   int64_t i, struct err *err)
{
    const enum dtype stored = g->ds->spec.field[g->field].stored;

    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < g->c; k++) {
            const double v = stored_at(stored, row, r * g->c + k), from = v - m[k].mean;

            if (!(fabs(v) <= MOST_REAL))
                return refuse_number(g, k, i, v, err);
            m[k].least = m[k].n ? fmin(m[k].least, v) : v;
            m[k].most = m[k].n ? fmax(m[k].most, v) : v;
            m[k].mean += from / (double)++m[k].n;
            m[k].m2 += from * (v - m[k].mean);
        }
    return 0;
}

static int add_samples(const struct measuring *g, struct moments *m, struct err *err)
{
    const int64_t n = shape_elements(&g->ds->spec.field[g->field].shape);
    const void *row;
    void *room;
    int rc = try_alloc(&room, g->ds->room_bytes + 1, "a sample whose features are measured", err);

    for (int64_t i = 0; i < g->ds->n_samples && rc == 0; i++) {
        rc = g->ds->ops->row(g->ds, i, g->field, room, &row, err);
        if (rc == 0)
            rc = add_row(g, m, row, n / g->c, i, err);
    }
    free(room);
    ASSERT(rc <= 0); /* rows of numbers are never lost */
    return rc;
}

static double moments_deviation(const struct moments *m) { return sqrt(m->m2 / (double)m->n); }

/* SPREAD_TINY: the deviation is below any that a job can give. */
enum spread { SPREAD_NONE, SPREAD_TINY, SPREAD_GOOD };

static enum spread spread_of(const struct moments *m)
{
    return moments_deviation(m) >= LEAST_REAL ? SPREAD_GOOD
           : m->least < m->most               ? SPREAD_TINY
                                              : SPREAD_NONE;
}

/* Refuse all features of a spread. */
static int refuse_spread(const struct measuring *g, const struct moments *m, enum spread spread,
                         struct err *err)
{
    enum { MOST_NAMED = 8 };
    struct buf names = {0};
    int n = 0;

    for (int k = 0; k < g->c; k++) {
        if (spread_of(&m[k]) != spread || ++n > MOST_NAMED)
            continue;
        buf_printf(&names, "%s", n > 1 ? ", " : "");
        if (g->is_named)
            buf_printf(&names, "%.80s", g->ds->ops->feature(g->ds, k).name);
        else
            buf_printf(&names, "%d", k);
    }
    if (n > MOST_NAMED)
        buf_printf(&names, " and %d more", n - MOST_NAMED);
    if (n > 0)
        err_set(err, ERR_CONFIG, "%s is auto, but %s%s %s %s; %s%s of the %s, or %s", g->key,
                g->each, n > 1 ? "s" : "", buf_cstr(&names),
                spread == SPREAD_TINY ? n > 1 ? "have deviations below 1e-30, want larger numbers"
                                              : "has a deviation below 1e-30, want larger numbers"
                : n > 1               ? "are the same in all samples"
                                      : "is the same in all samples",
                spread == SPREAD_TINY ? "multiply them, leave " : "leave ",
                n > 1 ? "them out" : "it out", g->is_named ? "table" : "array",
                "give mean and std");
    buf_fini(&names);
    return n > 0 ? err->code : 0;
}

/* Words stay 1 and 0.  A column that never changes is told of as the table is read. */
static void keep_named(const struct measuring *g, struct option_reals *mean,
                       struct option_reals *std)
{
    for (int k = 0; k < g->c; k++) {
        const int is_word = g->ds->ops->feature(g->ds, k).is_word;

        mean->v[k] = is_word ? 0 : mean->v[k];
        if (is_word || !(std->v[k] > 0))
            std->v[k] = 1;
    }
}

int moments_measure(const struct dataset *ds, int field, struct option_reals *mean,
                    struct option_reals *std, struct err *err)
{
    const struct measuring g = {.ds = ds,
                                .field = field,
                                .c = moments_features(ds, field),
                                .is_named = field == 0 && ds->ops->feature,
                                .key = field ? "data.targets.normalize" : "data.normalize",
                                .each = field ? "output" : "feature"};
    struct moments m[OPT_MAX_REALS] = {{0}};
    int rc;

    ASSERT((field ? ds->targets.n : ds->image.n_channels) == 0 &&
           ds->spec.field[field].dtype == DTYPE_F32 && ds->spec.field[field].scale == SAMPLE_AS_IS);
    if (field && ds->reconstructs)
        return err_set(
            err, ERR_CONFIG,
            "data.targets.normalize is auto, but with data.reconstruct the target is the "
            "input, which data.normalize scales; leave data.targets out");
    if (g.c > OPT_MAX_REALS)
        return err_set(err, ERR_CONFIG,
                       "%s is auto, but a sample has %lld %ss, want at most %d; normalise %s "
                       "before they are saved%s",
                       g.key, (long long)g.c, g.each, OPT_MAX_REALS,
                       g.is_named ? "them" : "the arrays",
                       g.is_named ? ", or give one mean and one std for all" : "");
    rc = add_samples(&g, m, err);
    if (rc == 0 && !g.is_named)
        rc = refuse_spread(&g, m, SPREAD_NONE, err);
    if (rc == 0)
        rc = refuse_spread(&g, m, SPREAD_TINY, err);
    mean->n = std->n = (int)g.c;
    for (int k = 0; k < g.c && rc == 0; k++) {
        mean->v[k] = m[k].mean;
        std->v[k] = moments_deviation(&m[k]);
    }
    if (rc == 0 && g.is_named)
        keep_named(&g, mean, std);
    return rc;
}
