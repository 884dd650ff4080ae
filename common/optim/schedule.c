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

static int schedule_is_deepspeed(const struct schedule_options *s)
{
    return s->timing == SCHEDULE_TIMING_DEEPSPEED;
}

/* The part of the warm-up that is done, 0 to 1, at the scheduler's count `at` of `n`. */
static double warmup_done(const struct schedule_options *s, int64_t at, int64_t n)
{
    const int ours =
        !schedule_is_deepspeed(s); /* the first step has made a step of the warm-up, too */

    if (s->warmup_shape == SCHEDULE_WARMUP_LOG)
        return log((double)(at + 1 + ours)) / log((double)(n + ours));
    return (double)(at + ours) / (double)n;
}

static double warmup_rate(const struct schedule_options *s, const struct schedule_at *at,
                          int64_t count, int64_t warmup)
{
    const double start = s->warmup_from_one_rank ? 1.0 / at->span->n_ranks : s->warmup_start;

    return at->peak * (start + (1.0 - start) * warmup_done(s, count, warmup));
}

int64_t schedule_total(const struct schedule_options *s, int64_t n_steps)
{
    return s->total_steps > 0 ? s->total_steps : n_steps;
}

double schedule_rate(const struct schedule_options *s, const struct optimizer_options *o,
                     const struct schedule_span *span, int64_t step)
{
    const int64_t total = schedule_total(s, span->total_steps), warmup = warmup_of(s, span);
    const int64_t count = schedule_is_deepspeed(s) ? max_i64(step - 1, 0) : step;
    const int64_t lead = schedule_is_deepspeed(s) && s->kind->lead == SCHEDULE_LEAD_1;
    const int64_t since = max_i64(count - warmup + lead, 0);
    const int64_t rest = max_i64(total - warmup, 1);
    const struct schedule_at at = {
        .span = span,
        .step = step,
        .since = since,
        .rest = rest,
        .progress = schedule_is_deepspeed(s) && total <= warmup
                        ? 1.0
                        : fmin((double)since / (double)rest, 1.0),
        .peak = optimizer_lr(o) * (o->scale_lr_by_ranks ? span->n_ranks : 1),
    };

    if (lead && step == 0)
        return 0;
    return count < warmup ? warmup_rate(s, &at, count, warmup) : s->kind->rate(s->options, &at);
}
