#include "optim/schedule.h"

#include <math.h>

#include "base/util.h"

static double decayed(const struct job_schedule *s, const struct schedule_span *span, double peak,
                      int64_t step)
{
    int64_t every = s->every_steps > 0 ? s->every_steps : s->every_epochs * span->steps_per_epoch;
    int64_t rest = max_i64(span->total_steps - s->warmup_steps, 1);
    double t = fmin((double)max_i64(step - s->warmup_steps, 0) / (double)rest, 1.0);

    switch (s->name) {
    case SCHEDULE_CONSTANT:
        return peak;
    case SCHEDULE_STEP:
        return peak * pow(s->gamma, (double)(step / max_i64(every, 1)));
    case SCHEDULE_COSINE:
        return s->min_lr + (peak - s->min_lr) * (1.0 + cos(3.14159265358979323846 * t)) / 2.0;
    case SCHEDULE_LINEAR:
        return peak + (s->min_lr - peak) * t;
    }
    ASSERT(!"schedule.name is one of the table's");
    return peak;
}

double schedule_rate(const struct job *job, const struct schedule_span *span, int64_t step)
{
    const struct job_schedule *s = &job->schedule;
    double peak = job->optimizer.lr * (job->optimizer.scale_lr_by_ranks ? span->n_ranks : 1);

    if (step < s->warmup_steps)
        return peak * (s->warmup_start +
                       (1.0 - s->warmup_start) * (double)(step + 1) / (double)s->warmup_steps);
    return decayed(s, span, peak, step);
}
