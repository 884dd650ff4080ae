/* optimizer - the list of optimizers, made from the words in op/meson.build and optim/meson.build,
 * and functions that ask the job's optimizer. */
#include "optim/optimizer.h"

#include <string.h>

const struct option_group *const optimizers[] = {
#define X(name) &optimizer_##name.group,
    OPTIMIZER_LIST(X)
#undef X
        NULL};

double optimizer_number(const struct optimizer_options *o, size_t at)
{
    double v;

    memcpy(&v, (const char *)o->options + at, sizeof v);
    return v;
}

double optimizer_lr(const struct optimizer_options *o) { return optimizer_number(o, o->kind->lr); }

double optimizer_decay(const struct optimizer_options *o)
{
    return optimizer_number(o, o->kind->weight_decay);
}

int optimizer_slots(const struct optimizer_options *o,
                    const struct slot_def *out[OPTIMIZER_MAX_SLOTS])
{
    return o->kind->slots(o->options, out);
}

#define MOMENT(of)                                                                   \
    {                                                                                \
        .name = of, .suffix = "." of, .scope = SLOT_PER_TRAINED, .dtype = DTYPE_F32, \
        .file = SLOT_IN_OPTIMIZER, .is_hashed = 1, .is_broadcast = 1                 \
    }

static const struct slot_def moments[] = {MOMENT("exp_avg"), MOMENT("exp_avg_sq")};

int optimizer_one_moment(const void *options, const struct slot_def *out[OPTIMIZER_MAX_SLOTS])
{
    (void)options;
    out[0] = &moments[0];
    return 1;
}

int optimizer_two_moments(const void *options, const struct slot_def *out[OPTIMIZER_MAX_SLOTS])
{
    out[1] = &moments[1];
    return 1 + optimizer_one_moment(options, out);
}

int optimizer_takes_matrix(const struct optimizer_options *o, const char *name,
                           enum param_kind kind, const struct shape *shape)
{
    const struct optimizer_matrices *m = o->kind->matrices;

    return m && m->takes(o->options, name, kind, shape);
}
