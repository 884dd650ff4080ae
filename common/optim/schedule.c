/* schedule - the list of schedules, made from the words in optim/meson.build, and what they have in
 * common: the peak, and the warm-up. */
#include "optim/schedule.h"

#include <math.h>

#include "base/util.h"

const struct option_group *const schedules[] = {
#define X(name) &schedule_##name.group,
    SCHEDULE_LIST(X)
#undef X
        NULL};

static int64_t warmup_of(const struct schedule_options *s, const struct schedule_span *span)
{
    return s->warmup_steps > 0 ? s->warmup_steps : s->warmup_epochs * span->steps_per_epoch;
}

static double warmup_rate(const struct schedule_options *s, const struct schedule_at *at,
                          int64_t warmup)
{
    const double start = s->warmup_from_one_rank ? 1.0 / at->span->n_ranks : s->warmup_start;

    return at->peak * (start + (1.0 - start) * (double)(at->step + 1) / (double)warmup);
}

double schedule_rate(const struct schedule_options *s, const struct optimizer_options *o,
                     const struct schedule_span *span, int64_t step)
{
    const int64_t warmup = warmup_of(s, span), since = max_i64(step - warmup, 0);
    const int64_t rest = max_i64(span->total_steps - warmup, 1);
    const struct schedule_at at = {
        .span = span,
        .step = step,
        .since = since,
        .rest = rest,
        .progress = fmin((double)since / (double)rest, 1.0),
        .peak = optimizer_lr(o) * (o->scale_lr_by_ranks ? span->n_ranks : 1),
    };

    return step < warmup ? warmup_rate(s, &at, warmup) : s->kind->rate(s->options, &at);
}
