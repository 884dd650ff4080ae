/* course - compares the rates of two jobs at the next step, and at steps spread over the rest.  The
 * rates are those of the schedule itself (optim/schedule.h), so no schedule is known by name. */
#include "job/course.h"

#include <math.h>

#include "base/util.h"

enum { PROBES = 1000 };

int64_t job_steps(const struct job *job, int64_t steps_per_epoch)
{
    const int64_t n = job->train.epochs * steps_per_epoch, most = job->train.max_steps;

    return most > 0 ? min_i64(n, most) : n;
}

/* A schedule that follows the validations has the same numbers in both jobs: any will do. */
static double rate_of(const struct job *job, const struct course *at, int64_t step)
{
    static const double state[SCHEDULE_STATE];
    const struct schedule_span span = {.steps_per_epoch = at->steps_per_epoch,
                                       .total_steps = job_steps(job, at->steps_per_epoch),
                                       .n_ranks = at->n_ranks,
                                       .state = state};

    return schedule_rate(&job->schedule, &job->optimizer, &span, step);
}

static int course_differ(const struct job *then, const struct job *now, const struct course *at,
                         int64_t step)
{
    const double a = rate_of(then, at, step), b = rate_of(now, at, step);

    return fabs(a - b) > 1e-6 * optimizer_lr(&now->optimizer);
}

/* The first step, of those tried, whose rates differ; -1: there is none. */
static int64_t find_step(const struct job *then, const struct job *now, const struct course *at)
{
    const int64_t n = job_steps(now, at->steps_per_epoch) - at->step;
    const int64_t stride = max_i64(n / PROBES, 1);

    for (int64_t k = 0; k < n; k += stride)
        if (course_differ(then, now, at, at->step + k))
            return at->step + k;
    return -1;
}

int course_compare(const struct job *then, const struct job *now, const struct course *at,
                   struct buf *text)
{
    const int64_t n_then = schedule_total(&then->schedule, job_steps(then, at->steps_per_epoch));
    const int64_t n_now = schedule_total(&now->schedule, job_steps(now, at->steps_per_epoch));
    const int64_t step = n_then != n_now ? find_step(then, now, at) : -1;

    if (step < 0)
        return 0;
    buf_printf(text,
               "schedule %s is now laid out over %lld steps, not %lld: step %lld has the rate "
               "%.6g, where it would have had %.6g",
               now->schedule.kind->group.name, (long long)n_now, (long long)n_then,
               (long long)(step + 1), rate_of(now, at, step), rate_of(then, at, step));
    if (step == at->step && step > 0)
        buf_printf(text, ", and step %lld had %.6g", (long long)step, rate_of(then, at, step - 1));
    buf_printf(text, "; --set schedule.total_steps=%lld keeps the former course",
               (long long)n_then);
    return 1;
}
