/* timing - rings of the latest steps' times, and their medians.
 *
 * epoch.c begins one for each call of trainer_train, and fills the epoch's report from it. */
#include "step/timing.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"

enum { MOST_TIMES = 1 << 20 };

int timing_start(struct timing *m, int64_t n_steps, struct err *err)
{
    *m = (struct timing){.start_ns = clock_mono_ns(), .cap = min_i64(n_steps, MOST_TIMES)};
    m->step_ns = m->start_ns;
    if (try_alloc((void **)&m->step_ms, 3 * sizeof(float) * (size_t)m->cap, "step times", err) < 0)
        return err->code;
    m->exposed_ms = m->step_ms + m->cap;
    m->data_ms = m->exposed_ms + m->cap;
    return 0;
}

int64_t timing_step(struct timing *m, int64_t waited_ns, int64_t summed_ns, int64_t data_ns,
                    int64_t n_samples)
{
    int64_t now = clock_mono_ns(), i = m->n++ % m->cap, took = now - m->step_ns;

    m->step_ms[i] = (float)took * 1e-6f;
    m->exposed_ms[i] = (float)(waited_ns - m->wait_ns) * 1e-6f;
    m->data_ms[i] = (float)(data_ns - m->data_ns) * 1e-6f;
    m->n_data_ns += data_ns - m->data_ns;
    m->n_late += 10 * (data_ns - m->data_ns) >= took;
    m->exposed_ns += waited_ns - m->wait_ns;
    m->summed_ns += max_i64(0, summed_ns - m->sum_ns);
    m->sum_ns = summed_ns;
    m->step_ns = now;
    m->wait_ns = waited_ns;
    m->data_ns = data_ns;
    m->n_samples += n_samples;
    return took;
}

static int timing_by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

double timing_median(float *v, int64_t n)
{
    if (n == 0)
        return 0;
    qsort(v, (size_t)n, sizeof *v, timing_by_value);
    return n % 2 ? v[n / 2] : ((double)v[n / 2 - 1] + (double)v[n / 2]) / 2;
}

double timing_rate(const struct timing *m)
{
    double s = clock_since_s(m->start_ns);

    return s > 0 ? (double)m->n_samples / s : 0;
}

double timing_data_share(const struct timing *m)
{
    const double s = clock_since_s(m->start_ns);

    return s > 0 ? fmin(1e-9 * (double)m->n_data_ns / s, 1) : 0;
}

/* Two channels may be waited for one after another while both are busy, so a wait may be longer. */
double timing_hidden_share(const struct timing *m)
{
    if (m->summed_ns <= 0)
        return NOT_MEASURED;
    return fmax(0, 1 - (double)m->exposed_ns / (double)m->summed_ns);
}

/* More readers help where they compute all the time, and there are processors for more of them. */
enum wait_cause timing_wait_cause(const struct timing *m, const struct effort *effort,
                                  int n_readers, int n_processors)
{
    const int64_t short_ns = 10 * 1000 * 1000;
    const int64_t blocked_ns = effort->wall_ns - effort->cpu_ns - effort->queued_ns;

    if (2 * m->n_late < m->n || m->n_data_ns < short_ns)
        return WAIT_FEW;
    if (effort->wall_ns <= 0)
        return WAIT_UNKNOWN;
    if (2 * blocked_ns >= effort->wall_ns)
        return WAIT_DISK;
    if (n_readers >= n_processors || 2 * effort->queued_ns >= effort->wall_ns - blocked_ns)
        return WAIT_CORES;
    return WAIT_READING;
}
