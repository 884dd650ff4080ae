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

double schedule_rate(const struct schedule_options *s, const struct optimizer_options *o,
                     const struct schedule_span *span, int64_t step)
{
    const int64_t rest = max_i64(span->total_steps - s->warmup_steps, 1);
    const struct schedule_at at = {
        .span = span,
        .step = step,
        .since = max_i64(step - s->warmup_steps, 0),
        .rest = rest,
        .progress = fmin((double)max_i64(step - s->warmup_steps, 0) / (double)rest, 1.0),
        .peak = o->lr * (o->scale_lr_by_ranks ? span->n_ranks : 1),
    };

    if (step < s->warmup_steps)
        return at.peak * (s->warmup_start +
                          (1.0 - s->warmup_start) * (double)(step + 1) / (double)s->warmup_steps);
    return s->kind->rate(s->options, &at);
}
