/* Tests of scrape: the text that Prometheus reads, and whether a run is well.  With promtool on the
 * machine its own check is asked, too. */
#include "../test.h"

#include <math.h>
#include <unistd.h>

#include "see/scrape.h"

static struct status_rank ranks[] = {
    {.rank = 0, .role = STATUS_MEMBER, .host = "node0", .step = 118, .step_ms = 20, .factor = 1},
    {.rank = 1, .role = STATUS_MISSING},
    {.rank = -1, .spare = 1, .role = STATUS_SPARE, .host = "node1"},
    {.rank = 2,
     .role = STATUS_MEMBER,
     .host = "a\"b\\c",
     .step = 117,
     .heard_s = 1.5,
     .is_straggler = 1},
};

static struct status scrape_status(void)
{
    struct status s = {.stage = "train",
                       .generation = 2,
                       .epoch = 3,
                       .step = 118,
                       .n_ranks = 3,
                       .n_here = 2,
                       .name = "mnist\n\"x\"",
                       .step_age_s = 2,
                       .eta_s = NAN,
                       .rank = ranks,
                       .n = ARRAY_LEN(ranks)};
    const struct latest_options o = {.n_epochs = 10, .global_batch = 64};

    latest_init(&s.latest, &o);
    return s;
}

/* Tell of a formation at `step`, and of a step that ended with this loss. */
static void tell_steps(struct latest *l, int64_t from, int64_t to, double loss)
{
    struct session_event form = {.kind = EVENT_FORM, .step = from};
    struct session_event step = {.kind = EVENT_PROGRESS, .progress = {.epoch = 1, .step = to}};

    step.progress.loss = loss;
    step.progress.samples_per_second = 1000;
    latest_note(l, &form, 1);
    latest_note(l, &step, 2000000001);
}

static int has_line(struct buf *text, const char *line)
{
    char whole[256];

    snprintf(whole, sizeof whole, "\n%s\n", line);
    return strstr(buf_cstr(text), whole) != NULL;
}

static void lines_of_numbers(void **state)
{
    struct status s = scrape_status();
    struct buf out = {0};

    (void)state;
    tell_steps(&s.latest, 18, 118, 0.25);
    scrape_put(&s, 1000, &out);
#define RUN "{run=\"mnist\\n\\\"x\\\"\"}"
    assert_true(has_line(&out, "# TYPE dptrain_steps_total counter"));
    assert_true(has_line(&out, "dptrain_steps_total" RUN " 100"));
    assert_true(has_line(&out, "dptrain_samples_total" RUN " 6400"));
    assert_true(has_line(&out, "dptrain_step" RUN " 118"));
    assert_true(has_line(&out, "dptrain_loss" RUN " 0.25"));
    assert_true(has_line(&out, "dptrain_last_step_timestamp_seconds" RUN " 998"));
    assert_true(has_line(&out, "dptrain_ranks" RUN " 2"));
    assert_non_null(strstr(buf_cstr(&out), ",rank=\"2\",host=\"a\\\"b\\\\c\"} 1.5\n"));
    assert_null(strstr(buf_cstr(&out), "rank=\"1\""));        /* missing */
    assert_null(strstr(buf_cstr(&out), "rank=\"-1\""));       /* a spare */
    assert_null(strstr(buf_cstr(&out), "dptrain_eta"));       /* not known */
    assert_null(strstr(buf_cstr(&out), "dptrain_grad_norm")); /* likewise */
    buf_fini(&out);
}

/* Usage of a rank and energy of the run: there are lines only for what is known. */
static void lines_of_usage(void **state)
{
    struct status s = scrape_status();
    struct status_rank rank = ranks[0];
    struct buf out = {0};

    (void)state;
    s.rank = &rank;
    s.n = 1;
    scrape_put(&s, 1000, &out);
    assert_null(strstr(buf_cstr(&out), "dptrain_energy"));
    assert_null(strstr(buf_cstr(&out), "dptrain_rank_cpu_ratio{"));
    buf_clear(&out);
    rank.usage = (struct usage){.resident_kib = 3, .cpu_permille = 1500, .gpu_mw = 2500};
    s.energy.mj[ENERGY_PACKAGE] = 12500;
    scrape_put(&s, 1000, &out);
    assert_true(has_line(&out, "dptrain_energy_joules_total{run=\"mnist\\n\\\"x\\\"\","
                               "source=\"package\"} 12.5"));
    assert_null(strstr(buf_cstr(&out), "source=\"gpu\""));
#define RANK0 "{run=\"mnist\\n\\\"x\\\"\",rank=\"0\",host=\"node0\"}"
    assert_true(has_line(&out, "dptrain_rank_resident_memory_bytes" RANK0 " 3072"));
    assert_true(has_line(&out, "dptrain_rank_cpu_ratio" RANK0 " 1.5"));
    assert_true(has_line(&out, "dptrain_rank_gpu_power_watts" RANK0 " 2.5"));
    assert_null(strstr(buf_cstr(&out), "dptrain_rank_gpu_ratio{"));
    buf_fini(&out);
}

/* printf's "-nan" would lose the whole scrape. */
static void numbers_that_are_not_finite(void **state)
{
    struct status s = scrape_status();
    struct buf out = {0};

    (void)state;
    tell_steps(&s.latest, 0, 1, -NAN);
    scrape_put(&s, 1000, &out);
    assert_true(has_line(&out, "dptrain_loss" RUN " NaN"));
    assert_null(strstr(buf_cstr(&out), "nan\n"));
    buf_clear(&out);
    tell_steps(&s.latest, 0, 2, HUGE_VAL);
    scrape_put(&s, 1000, &out);
    assert_true(has_line(&out, "dptrain_loss" RUN " +Inf"));
    buf_fini(&out);
}

/* A step that a loss undid counts once, and no counter falls. */
static void repeated_steps_count_once(void **state)
{
    struct status s = scrape_status();

    (void)state;
    tell_steps(&s.latest, 0, 50, 1);
    tell_steps(&s.latest, 40, 45, 1);
    assert_int_equal(s.latest.step, 45);
    assert_int_equal(s.latest.n_steps, 50);
    tell_steps(&s.latest, 45, 60, 1);
    assert_int_equal(s.latest.n_steps, 60);
    assert_int_equal(s.latest.n_samples, 60 * 64);
}

static void health_of_a_run(void **state)
{
    struct status s = scrape_status();
    struct buf out = {0};

    (void)state;
    assert_true(scrape_health(&s, 60, &out));
    assert_non_null(strstr(buf_cstr(&out), "\"status\":\"ok\",\"reason\":null"));
    s.step_age_s = 61;
    buf_clear(&out);
    assert_false(scrape_health(&s, 60, &out));
    assert_non_null(strstr(buf_cstr(&out), "\"status\":\"stuck\",\"reason\":\"no step has ended"));
    s.stage = "validate"; /* which has a deadline of its own */
    assert_true(scrape_health(&s, 60, &out));
    s.latest.has_failed = 1;
    buf_clear(&out);
    assert_false(scrape_health(&s, 60, &out));
    assert_non_null(strstr(buf_cstr(&out), "\"status\":\"failed\""));
    buf_fini(&out);
}

static void promtool_has_no_complaint(void **state)
{
    struct status s = scrape_status();
    struct status_rank rank = ranks[0];
    struct buf out = {0};
    FILE *promtool;

    (void)state;
    if (system("command -v promtool >/dev/null") != 0) {
        print_message("no promtool (Debian: prometheus): its check is skipped\n");
        skip();
    }
    tell_steps(&s.latest, 0, 1, -NAN);
    rank.usage = (struct usage){.resident_kib = 3,
                                .cpu_permille = 1500,
                                .gpu_permille = 500,
                                .gpu_memory_kib = 4,
                                .gpu_celsius = 50,
                                .gpu_mw = 2500,
                                .gpu_clock_mhz = 1980};
    s.rank = &rank;
    s.n = 1;
    s.energy = (struct energy_sums){{[ENERGY_PACKAGE] = 12500, [ENERGY_GPU] = 1}};
    scrape_put(&s, 1000, &out);
    promtool = popen("promtool check metrics", "w");
    assert_non_null(promtool);
    assert_int_equal(fwrite(out.data, 1, out.len, promtool), out.len);
    assert_int_equal(pclose(promtool), 0);
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_numbers),
        cmocka_unit_test(lines_of_usage),
        cmocka_unit_test(numbers_that_are_not_finite),
        cmocka_unit_test(repeated_steps_count_once),
        cmocka_unit_test(health_of_a_run),
        cmocka_unit_test(promtool_has_no_complaint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
