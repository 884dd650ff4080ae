/* targets - the scale of targets that are real numbers: the checks of its keys, and the arithmetic
 * in both directions. */
#include "data/targets.h"

#include "base/util.h"
#include "data/moments.h"

static int check_lists(const struct targets_options *o, int64_t n, struct err *err)
{
    const struct {
        const char *key;
        int n;
    } lists[] = {{"data.targets.mean", o->mean.n}, {"data.targets.std", o->std.n}};

    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        if (lists[i].n && lists[i].n != n)
            return err_set(err, ERR_CONFIG, "%s has %d numbers, want %lld, one for each output",
                           lists[i].key, lists[i].n, (long long)n);
    return 0;
}

int targets_prepare(struct dataset *ds, const struct targets_options *o,
                    const struct dataset_request *request, struct err *err)
{
    const int target = sample_target(&ds->spec), n = o->mean.n ? o->mean.n : o->std.n;

    if (n == 0 && o->normalize == NORMALIZE_GIVEN)
        return 0;
    if (ds->spec.field[target].role != SAMPLE_REAL)
        return err_set(err, ERR_CONFIG,
                       "data.targets has mean and std, or normalize: auto, but the targets are %s",
                       request->targets_are_numbers
                           ? "whole numbers, which are taken as classes; store them as float32, "
                             "such as by y.astype('float32')"
                           : "classes, want real numbers and model.loss: mse or l1");
    if (request->targets_are_fractions)
        return err_set(
            err, ERR_CONFIG,
            "data.targets has mean and std, or normalize: auto, but the targets are from "
            "0 to 1, as model.loss: bce wants them; leave data.targets out");
    if (check_lists(o, moments_features(ds, target), err) < 0)
        return err->code;
    ds->targets.n = n;
    for (int i = 0; i < n; i++) {
        ds->targets.mean[i] = o->mean.n ? o->mean.v[i] : 0;
        ds->targets.std[i] = o->std.n ? o->std.v[i] : 1;
    }
    return 0;
}

void targets_scale(const struct dataset *ds, float *y, int64_t n)
{
    const struct dataset_scale *s = &ds->targets;

    for (int64_t i = 0; s->n && i < n; i++)
        y[i] = (y[i] - (float)s->mean[i % s->n]) / (float)s->std[i % s->n];
}

double targets_undone(const struct dataset *ds, int64_t k, float y)
{
    const struct dataset_scale *s = &ds->targets;

    return s->n ? (double)y * s->std[k % s->n] + s->mean[k % s->n] : (double)y;
}

void targets_undo(const struct dataset *ds, int64_t first, float *y, int64_t n)
{
    for (int64_t i = 0; ds->targets.n && i < n; i++)
        y[i] = (float)targets_undone(ds, first + i, y[i]);
}
