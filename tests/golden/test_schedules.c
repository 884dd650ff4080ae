/* The rates of each schedule over 200 steps are torch.optim.lr_scheduler's (make_schedules.py).
 *
 *     test_schedules SCHEDULES.JSON */
#include "../test.h"

#include <jansson.h>
#include <math.h>

#include "base/buf.h"
#include "golden_main.h"
#include "job/job.h"

#define TOLERANCE 1e-9 /* of optimizer.lr; PyTorch computes some rates each from the one before */

static json_t *golden;

static struct job *make_job(json_t *run)
{
    struct buf text = {0};
    struct job *job;
    struct err err;

    buf_printf(&text,
               "model: {arch: lenet}\ndata: {format: digits}\noptimizer: {lr: %.17g}\n"
               "schedule: %s\n",
               json_number_value(json_object_get(golden, "lr")),
               json_string_value(json_object_get(run, "schedule")));
    if (job_parse((const char *)text.data, text.len, "golden", NULL, &job, &err) < 0)
        fail_msg("%s", err.msg);
    buf_fini(&text);
    return job;
}

static void test_run(void **state)
{
    json_t *run = *state, *rates = json_object_get(run, "rates");
    const size_t n = json_array_size(rates);
    struct job *job = make_job(run);
    const struct schedule_span span = {
        .steps_per_epoch = json_integer_value(json_object_get(golden, "steps_per_epoch")),
        .total_steps = (int64_t)n,
        .n_ranks = 1};

    assert_int_equal(n, 200);
    for (size_t i = 0; i < n; i++) {
        const double want = json_number_value(json_array_get(rates, i));
        const double rate = schedule_rate(&job->schedule, &job->optimizer, &span, (int64_t)i);

        if (!(fabs(rate - want) <= TOLERANCE * optimizer_lr(&job->optimizer)))
            fail_msg("step %zu has the rate %.12g, PyTorch's is %.12g", i, rate, want);
    }
    job_free(job);
}

int main(int argc, char **argv)
{
    return golden_main(argc, argv, "schedules", &golden, test_run, (struct CMUnitTest){0});
}
