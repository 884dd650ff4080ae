/* The schedule `onecycle`, as torch.optim.lr_scheduler.OneCycleLR without its cycle of momentums
 * (Smith and Topin 2018, "Super-Convergence"): the rate rises to the peak, and then goes down to
 * far below its first value until the job's end.
 *
 *   There are n steps after the warm-up, of which this is number s, and P = rise * n:
 *
 *   begin = peak / div                                  end = begin / final_div
 *   s <= P - 1:               from begin to peak        at s / (P - 1)
 *   else:                     from peak to end          at (s - P + 1) / (n - P)
 *   with three_phases
 *   P - 1 < s <= 2 * P - 2:   from peak to begin        at (s - P + 1) / (P - 1)
 *   2 * P - 2 < s:            from begin to end         at (s - 2 * P + 2) / (n - 2 * P + 1)
 *
 * Each phase follows a cosine or a line. */
#include "optim/schedule.h"

#include <math.h>

#include "base/util.h"

static const char *const shapes[] = {
    [SCHEDULE_COSINE] = "cosine", [SCHEDULE_LINEAR] = "linear", NULL};

#define AT(field) offsetof(struct schedule_onecycle_options, field)

static const struct option rows[] = {
    {"schedule.rise", OPT_REAL, AT(rise), "0.3", 0, 1, .flags = OPT_BELOW, .also = "pct_start",
     .help = "The part of the steps in which the rate rises."},
    {"schedule.div", OPT_REAL, AT(div), "25", 1, 1e9, .also = "div_factor",
     .help = "The rate begins at the peak, optimizer.lr, divided by this."},
    {"schedule.final_div", OPT_REAL, AT(final_div), "10000", 1, 1e12, .also = "final_div_factor",
     .help = "The rate ends at its beginning, divided by this."},
    {"schedule.shape", OPT_CHOICE, AT(shape), "cosine", .choices = shapes,
     .also = "anneal_strategy", .help = "The curve between beginning, peak and end."},
    {"schedule.three_phases", OPT_BOOL, AT(three_phases), "false", .also = "three_phase",
     .help = "With true, the rate first goes back down to its beginning, as fast as it rose, and "
             "then to its end."},
};

/* The rate on the way from `from` (t = 0) to `to` (t = 1). */
static double schedule_onecycle_between(const struct schedule_onecycle_options *o, double from,
                                        double to, double t)
{
    if (o->shape == SCHEDULE_LINEAR)
        return from + (to - from) * t;
    return to + (from - to) / 2.0 * (1.0 + cos(3.14159265358979323846 * t));
}

/* The rate at step s in the phase from step `first` to step `last`, which need not be integers. */
static double schedule_onecycle_phase(const struct schedule_onecycle_options *o, double s,
                                      double first, double last, double from, double to)
{
    return last > first
               ? schedule_onecycle_between(o, from, to, fmin((s - first) / (last - first), 1.0))
               : to;
}

static double schedule_onecycle_rate(const void *options, const struct schedule_at *at)
{
    const struct schedule_onecycle_options *o = options;
    const double s = (double)at->since, n = (double)at->rest, top = o->rise * n - 1;
    const double begin = at->peak / o->div, end = begin / o->final_div;

    if (s <= top)
        return schedule_onecycle_phase(o, s, 0, top, begin, at->peak);
    if (!o->three_phases)
        return schedule_onecycle_phase(o, s, top, n - 1, at->peak, end);
    if (s <= 2 * top)
        return schedule_onecycle_phase(o, s, top, 2 * top, at->peak, begin);
    return schedule_onecycle_phase(o, s, 2 * top, n - 1, begin, end);
}

static int schedule_onecycle_check(const void *options, struct err *err)
{
    const struct schedule_onecycle_options *o = options;

    if (!o->three_phases || o->rise <= 0.5)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "schedule.rise is %g, want at most 0.5 with schedule.three_phases, whose second "
                   "phase is as long as the rise",
                   o->rise);
}

const struct schedule schedule_onecycle = {
    .group = {.name = "onecycle",
              .help = "up to the peak, and down until the job's end",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct schedule_onecycle_options),
              .check = schedule_onecycle_check},
    .rate = schedule_onecycle_rate,
};
