/* The schedule `wsd`, which means warm-up, stable, decay (Hu and others 2024, "MiniCPM"): after the
 * warm-up the rate stays at its peak, and goes down to schedule.min_lr over the last part of the
 * job.
 *
 *   There are n steps after the warm-up, of which this is number s;
 *   t = (s - (1 - decay) * n) / (decay * n)
 *
 *   t <= 0    peak
 *   linear    peak + (min - peak) * t
 *   cosine    min + (peak - min) * (1 + cos(pi * t)) / 2
 *   sqrt      peak + (min - peak) * sqrt(t)                (Haegele and others 2024) */
#include "optim/schedule.h"

#include <math.h>

#include "base/util.h"

static const char *const shapes[] = {
    [SCHEDULE_COSINE] = "cosine", [SCHEDULE_LINEAR] = "linear", [SCHEDULE_SQRT] = "sqrt", NULL};

#define AT(field) offsetof(struct schedule_wsd_options, field)

static const struct option rows[] = {
    {"schedule.decay", OPT_REAL, AT(decay), "0.2", 0, 1, .flags = OPT_ABOVE,
     .help = "The last part of the steps, in which the rate goes down."},
    {"schedule.shape", OPT_CHOICE, AT(shape), "linear", .choices = shapes,
     .help = "The curve along which the rate goes down."},
    {"schedule.min_lr", OPT_REAL, AT(min_lr), "0", 0, 1e6, .help = "The rate at the job's end."},
};

static double schedule_wsd_rate(const void *options, const struct schedule_at *at)
{
    const struct schedule_wsd_options *o = options;
    const double t = 1.0 - (1.0 - at->progress) / o->decay, range = o->min_lr - at->peak;

    if (t <= 0)
        return at->peak;
    if (o->shape == SCHEDULE_COSINE)
        return o->min_lr - range * (1.0 + cos(3.14159265358979323846 * t)) / 2.0;
    return at->peak + range * (o->shape == SCHEDULE_SQRT ? sqrt(t) : t);
}

const struct schedule schedule_wsd = {
    .group = {.name = "wsd",
              .help = "the same rate, and down in the last part of the job",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct schedule_wsd_options)},
    .rate = schedule_wsd_rate,
};
