/* After 20 updates averaged weights are those of torch.optim.swa_utils.AveragedModel
 * (make_averages.py).
 *
 *     test_averages AVERAGES.JSON */
#include "../test.h"

#include "base/alloc.h"
#include "golden_main.h"
#include "golden_update.h"
#include "step/average.h"

static const double tolerance = 1e-6;

static const char *const order[] = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", NULL};

static json_t *golden;

static int64_t number(const char *key) { return json_integer_value(json_object_get(golden, key)); }

static char *make_job(json_t *run)
{
    return xasprintf("model: {arch: mlp, hidden: [5]}\ndata: {format: digits}\n"
                     "train: {average: %s}\noptimizer: {lr: %.17g}\n",
                     json_string_value(json_object_get(run, "average")),
                     json_real_value(json_object_get(golden, "lr")));
}

static void test_run(void **state)
{
    json_t *run = *state;
    char *yaml = make_job(run);
    struct golden_update t;
    struct average *average = NULL;
    struct err err;

    golden_update_open(&t, yaml, order, &slot_average);
    if (average_new(t.job, t.state, t.buffers, number("steps_per_epoch"), number("steps"), &average,
                    &err) < 0)
        fail_msg("%s", err.msg);
    for (int k = 0; k < number("steps"); k++) {
        golden_update_step(&t, k, optimizer_lr(&t.job->optimizer));
        assert_int_equal(average_update(average, &err), 0);
    }
    golden_update_get(&t, &slot_average);
    golden_update_compare(&t, json_object_get(run, "parameters"), tolerance, 0);
    average_free(average);
    golden_update_close(&t);
    free(yaml);
}

int main(int argc, char **argv)
{
    return golden_main(argc, argv, "averages", &golden, test_run, (struct CMUnitTest){0});
}
