/* Tests of deepspeed: the rates that its schedulers give. */
#include "deepspeed_file.h"

#include <math.h>

enum { MOST_RATES = 14 };

/* The rates of the first updates, as DeepSpeed 0.19.8's lr_schedules.py gives them to the optimizer
 * when step() is called after each update. */
static const struct {
    const char *type, *optimizer, *params;
    double rate[MOST_RATES];
} rates[] = {
    {"WarmupLR",
     "\"lr\": 0.01",
     "\"warmup_num_steps\": 4, \"warmup_min_lr\": 0.002, \"warmup_type\": \"linear\"",
     {0.002, 0.002, 0.004, 0.006, 0.008, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01}},
    {"WarmupLR",
     "\"lr\": 0.01",
     "\"warmup_num_steps\": 4, \"warmup_min_lr\": 0.002",
     {0.002, 0.002, 0.006, 0.00833985000288463, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01,
      0.01, 0.01}},
    {"WarmupLR",
     "\"lr\": 0.01",
     "\"warmup_num_steps\": 1",
     {0, 0, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01}},
    {"WarmupDecayLR",
     "\"lr\": 0.0001",
     "\"total_num_steps\": 12, \"warmup_num_steps\": 4, \"warmup_type\": \"linear\"",
     {0, 0, 0.00025, 0.0005, 0.00075, 0.001, 0.000875, 0.00075, 0.000625, 0.0005, 0.000375, 0.00025,
      0.000125, 0}},
    {"WarmupDecayLR",
     "\"lr\": 0.0001",
     "\"total_num_steps\": 12, \"warmup_num_steps\": 4, \"warmup_max_lr\": null",
     {0, 0, 5e-05, 7.92481250360578e-05, 0.0001, 0.0001, 8.75e-05, 7.5e-05, 6.25e-05, 5e-05,
      3.75e-05, 2.5e-05, 1.25e-05, 0}},
    {"WarmupCosineLR",
     "\"lr\": 0.01",
     "\"total_num_steps\": 12, \"warmup_num_steps\": 4, \"warmup_type\": \"linear\","
     " \"warmup_min_ratio\": 0.1",
     {0, 0.001, 0.00325, 0.0055, 0.00775, 0.00961943572279018, 0.00853568035254215,
      0.00691372582010927, 0.0050005, 0.00308727417989073, 0.00146531964745786,
      0.000381564277209822, 1e-06, 1e-06}},
    {"WarmupCosineLR",
     "\"lr\": 0.01",
     "\"total_num_steps\": 12, \"warmup_num_steps\": 4, \"cos_min_ratio\": 0.05",
     {0, 0, 0.005, 0.00792481250360578, 0.01, 0.00963842777942861, 0.0086087572106361,
      0.00706774630373418, 0.00525, 0.00343225369626582, 0.0018912427893639, 0.000861572220571388,
      0.0005, 0.0005}},
};

static void test_rates(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
        const struct schedule_span span = {.steps_per_epoch = 5, .total_steps = 99, .n_ranks = 2};
        char *text = xasprintf("{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"SGD\", "
                               "\"params\": {%s}}, \"scheduler\": {\"type\": \"%s\", "
                               "\"params\": {%s}}}",
                               rates[i].optimizer, rates[i].type, rates[i].params);
        struct buf notes = {0};
        struct job *job;
        struct err err;

        if (load("ds.json", text, 2, &job, &notes, &err) < 0)
            fail_msg("case %zu: %s", i, err.msg);
        for (int k = 0; k < MOST_RATES; k++) {
            const double rate = schedule_rate(&job->schedule, &job->optimizer, &span, k);

            if (!(fabs(rate - rates[i].rate[k]) <= 1e-14))
                fail_msg("case %zu: update %d has the rate %.15g, DeepSpeed's is %.15g", i, k, rate,
                         rates[i].rate[k]);
        }
        job_free(job);
        buf_fini(&notes);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
