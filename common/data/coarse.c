/* coarse - compares the range of each feature with the distance of floats there.  It looks at some
 * thousand samples, as many on every machine. */
#include "data/coarse.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "data/moments.h"

enum {
    MOST_LOOKED = 1 << 24, /* numbers of a field that are looked at */
    MOST_ROWS = 4096,
    LEAST_ROWS = 16,
    MOST_NAMED = 4,
    STEPS = 1000, /* of float between a feature's least and largest number, at least */
};

struct range {
    int64_t n;
    double least, most;
    double changed; /* a whole number that is another one as a float; 0: there is none */
    int has_parts;  /* a number is not whole */
    int is_rounded; /* a number is no float */
};

static void coarse_add(struct range *r, double v)
{
    if (!isfinite(v)) /* told of where it is met */
        return;
    r->least = r->n ? fmin(r->least, v) : v;
    r->most = r->n++ ? fmax(r->most, v) : v;
    r->has_parts |= v != floor(v);
    r->is_rounded |= (double)(float)v != v;
    if (r->changed == 0 && v == floor(v) && (double)(float)v != v)
        r->changed = v;
}

static int coarse_look(const struct dataset *ds, int field, struct range *range, struct err *err)
{
    const int64_t each = shape_elements(&ds->spec.field[field].shape),
                  c = moments_features(ds, field);
    const int64_t most = min_i64(max_i64(MOST_LOOKED / each, LEAST_ROWS), MOST_ROWS),
                  n = min_i64(most, ds->n_samples);
    const void *row;
    void *room;
    int rc = try_alloc(&room, ds->room_bytes + 1, "a sample that is looked at", err);

    for (int64_t i = 0; i < n && rc == 0; i++) {
        rc = ds->ops->row(ds, dataset_spread(i, n, ds->n_samples), field, room, &row, err);
        for (int64_t k = 0; k < each && rc == 0; k++)
            coarse_add(&range[k % c], ((const double *)row)[k]);
    }
    free(room);
    return rc;
}

/* ---- telling ---- */

static void print_name(const struct dataset *ds, int field, int64_t k, struct buf *out)
{
    const char *name = field != 0         ? ds->class_names ? ds->class_names[k] : NULL
                       : ds->ops->feature ? ds->ops->feature(ds, k).name
                                          : NULL;

    buf_printf(out, "%s ", field ? "target" : "feature");
    if (name)
        buf_printf(out, "%.80s", name);
    else
        buf_printf(out, "%lld", (long long)k);
}

/* The distance of floats at the larger one of two numbers. */
static double coarse_step_at(double a, double b)
{
    const float most = (float)fmax(fabs(a), fabs(b));

    return (double)nextafterf(most, INFINITY) - (double)most;
}

/* Append what is lost of feature k; 1: something is. */
static int coarse_tell_once(const struct dataset *ds, int field, int64_t k, const struct range *r,
                            struct buf *out)
{
    const struct dataset_scaling s = dataset_scaling(ds, field);
    const double mean = s.n ? s.mean[k % s.n] : 0, std = s.n ? s.std[k % s.n] : 1;
    const double least = (r->least - mean) / std, most = (r->most - mean) / std;
    const double step = coarse_step_at(least, most);

    if (r->n == 0 || (field == 0 && ds->ops->feature && ds->ops->feature(ds, k).is_word))
        return 0;
    if (s.n == 0 && !r->has_parts && r->changed != 0) {
        buf_printf(out, "; ");
        print_name(ds, field, k, out);
        buf_printf(out, " has whole numbers such as %.17g, which becomes %.17g", r->changed,
                   (double)(float)r->changed);
        return 1;
    }
    if (!(least < most) || !r->is_rounded || !(STEPS * step > most - least))
        return 0;
    buf_printf(out, "; ");
    print_name(ds, field, k, out);
    buf_printf(out, " is from %.12g to %.12g%s, where float32 has steps of %.3g", least, most,
               s.n ? " when scaled" : "", step);
    return 1;
}

static void tell_field(const struct dataset *ds, int field, const struct range *range,
                       const struct dataset_request *request)
{
    struct buf all = {0};
    int64_t n = 0;

    for (int64_t k = 0; k < moments_features(ds, field); k++) {
        const size_t had = all.len;

        n += coarse_tell_once(ds, field, k, &range[k], &all);
        if (n > MOST_NAMED)
            all.len = had;
    }
    if (n > MOST_NAMED)
        buf_printf(&all, "; and %lld more", (long long)(n - MOST_NAMED));
    if (n > 0)
        dataset_warn(request,
                     "%s data: networks read float32, which keeps 24 bits of a number: %s; set %s, "
                     "which subtracts the mean before numbers are rounded, or leave names of "
                     "things (such as identities) out",
                     ds->ops->name, buf_cstr(&all) + 2,
                     field ? "data.targets: {normalize: auto}" : "data.normalize: auto");
    buf_fini(&all);
}

int coarse_tell(const struct dataset *ds, const struct dataset_request *request, struct err *err)
{
    int rc = 0;

    for (int f = 0; f < ds->spec.n_fields && rc == 0; f++) {
        struct range *range;

        if (ds->spec.field[f].stored != DTYPE_F64)
            continue;
        rc = try_alloc((void **)&range, (size_t)moments_features(ds, f) * sizeof *range,
                       "the ranges of features", err);
        if (rc < 0)
            return rc;
        rc = coarse_look(ds, f, range, err);
        if (rc == 0)
            tell_field(ds, f, range, request);
        free(range);
    }
    return rc;
}
