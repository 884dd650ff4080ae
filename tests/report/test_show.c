/* Tests of show and meter: the live line on a real terminal (a pseudoterminal), and the closing
 * table. */
#include "../test.h"

#include <math.h>
#include <pty.h>
#include <unistd.h>

#include "base/log.h"
#include "report/meter.h"
#include "report/table.h"

enum { MS = 1000000 };

static const struct meter_reading reading = {.epoch = 3,
                                             .n_epochs = 10,
                                             .step = 350,
                                             .n_steps = 2350,
                                             .samples_per_step = 256,
                                             .loss = 0.05312,
                                             .samples_per_second = 9120};

static void test_numbers(void **state)
{
    static const struct {
        double v;
        const char *text;
    } counts[] = {{0, "0"},          {9.876, "9.88"},   {99.9, "99.9"},      {100, "100"},
                  {999.6, "1,000"},  {9120.4, "9,120"}, {123456, "123,456"}, {1e6, "1,000,000"},
                  {-1234, "-1,234"}, {1e300, "-"}},
      times[] = {{0, "0:00"},       {59.6, "1:00"},    {83, "1:23"}, {3599, "59:59"},
                 {3600, "1:00:00"}, {7509, "2:05:09"}, {-1, "0:00"}, {360000, "100:00:00"}},
      losses[] = {{0.05312, "0.0531"}, {999999, "999999.0000"}, {1.2346e11, "1.235e+11"},
                  {NAN, "nan"},        {-NAN, "nan"},           {HUGE_VAL, "overflow"}};
    char out[32];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        format_count(out, sizeof out, counts[i].v);
        assert_string_equal(out, counts[i].text);
    }
    for (size_t i = 0; i < ARRAY_LEN(losses); i++) {
        format_loss(out, sizeof out, losses[i].v);
        assert_string_equal(out, losses[i].text);
    }
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        format_duration(out, sizeof out, times[i].v);
        assert_string_equal(out, times[i].text);
    }
}

static void test_line(void **state)
{
    static const char whole[] = "epoch 3/10  step 350/2350  loss 0.0531  9,120 samples/s  ETA 0:56";
    struct meter_reading r = reading;
    char out[128];

    (void)state;
    assert_int_equal(meter_format(out, sizeof out, 79, &r), strlen(whole));
    assert_string_equal(out, whole);
    assert_int_equal(meter_format(out, sizeof out, 20, &r), 20);
    assert_string_equal(out, "epoch 3/10  step 350");
    r.n_steps = 0;
    meter_format(out, sizeof out, 79, &r);
    assert_string_equal(out, "epoch 3/10  step 350  loss 0.0531  9,120 samples/s  ETA -:--");
}

/* Read the next n bytes: the kernel passes written bytes on later, and in pieces. */
static void read_whole(int fd, char *out, size_t n)
{
    for (size_t at = 0; at < n;) {
        const ssize_t got = read(fd, out + at, n - at);

        assert_true(got > 0);
        at += (size_t)got;
    }
    out[n] = '\0';
}

static void expect(int fd, const char *want)
{
    char out[128];

    assert_true(strlen(want) < sizeof out);
    read_whole(fd, out, strlen(want));
    assert_string_equal(out, want);
}

/* The live line is drawn, is not drawn again too soon, and makes room for a log line. */
static void test_terminal(void **state)
{
    struct winsize size = {.ws_row = 24, .ws_col = 41};
    int master, slave, old = dup(STDERR_FILENO);
    char line[4 + 40 + 1];

    (void)state;
    assert_int_equal(openpty(&master, &slave, NULL, NULL, &size), 0);
    dup2(slave, STDERR_FILENO);
    assert_int_equal(setenv("TERM", "dumb", 1), 0);
    assert_int_equal(meter_start(STDERR_FILENO), 0);
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    assert_int_equal(meter_start(STDERR_FILENO), 1);
    meter_show(&reading, 1000 * (int64_t)MS);
    read_whole(master, line, sizeof line - 1);
    assert_memory_equal(line, "\r\033[Kepoch 3/10", 14);
    meter_show(&reading, 1199 * (int64_t)MS); /* within 200 ms: not drawn */
    log_info("hello");                        /* clears the line first */
    expect(master, "\r\033[Kdptrain: hello\r\n");
    log_info("again"); /* nothing to clear */
    expect(master, "dptrain: again\r\n");
    meter_show(&reading, 1200 * (int64_t)MS);
    read_whole(master, line, sizeof line - 1);
    assert_non_null(strstr(line, "epoch 3/10"));
    meter_stop();
    expect(master, "\r\033[K");
    dup2(old, STDERR_FILENO);
    close(old);
    close(master);
    close(slave);
}

static void test_no_terminal(void **state)
{
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(meter_start(ends[1]), 0);
    meter_show(&reading, MS);
    meter_stop();
    close(ends[1]);
    assert_int_equal(read(ends[0], &(char){0}, 1), 0); /* nothing came */
    close(ends[0]);
}

static const struct session_epoch plain = {.epoch = 1,
                                           .step = 235,
                                           .train_loss = 0.43125,
                                           .train_seconds = 2.314,
                                           .samples_per_second = 8650.3};

static char *print(const struct table *t, const struct table_end *end)
{
    char *text;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    table_print(t, end, f);
    fclose(f);
    return text;
}

static void test_table(void **state)
{
    struct table t = {0};
    struct session_epoch e = plain;
    char *text;

    (void)state;
    table_add(&t, &plain);
    e.epoch = 2;
    e.is_validated = 1;
    e.validation_loss = 0.1203;
    e.validation_accuracy = 0.98724;
    table_add(&t, &e);
    text = print(&t, &(struct table_end){.seconds = 5.2, .model_path = "r/m", .next = "do it"});
    assert_string_equal(text,
                        "  epoch  training loss  validation loss    accuracy   seconds  samples/s\n"
                        "      1         0.4313                -           -      2.31      8,650\n"
                        "      2         0.4313           0.1203     98.72 %      2.31      8,650\n"
                        "\n"
                        "accuracy  98.72 % on the validation set, after 0:05\n"
                        "model     r/m\n"
                        "next      do it\n");
    free(text);
}

static void test_top5(void **state)
{
    struct table t = {0};
    struct session_epoch e = plain;
    char *text, line[256];

    (void)state;
    e.is_validated = e.has_top5 = 1;
    e.validation_loss = 1.25;
    e.validation_accuracy = 0.7;
    e.validation_top5 = 0.98724;
    table_add(&t, &e);
    text = print(&t, &(struct table_end){.seconds = 5.2});
    assert_non_null(
        strstr(text, "\naccuracy  70.00 %, top-5 98.72 % on the validation set, after 0:05\n"));
    free(text);
    table_epoch_text(&e, 10, line, sizeof line);
    assert_non_null(strstr(line, ", validation loss 1.2500, accuracy 70.00 %, top-5 98.72 %, "));
}

/* Real numbers are predicted: there is no accuracy. */
static void test_regression(void **state)
{
    struct table t = {0};
    struct session_epoch e = plain;
    char *text, line[256];

    (void)state;
    e.is_validated = 1;
    e.validation_loss = 0.1203;
    e.validation_accuracy = NOT_MEASURED;
    table_add(&t, &e);
    text = print(&t, &(struct table_end){.seconds = 5.2});
    assert_string_equal(text,
                        "  epoch  training loss  validation loss    accuracy   seconds  samples/s\n"
                        "      1         0.4313           0.1203           -      2.31      8,650\n"
                        "\n"
                        "loss      0.1203 on the validation set, after 0:05\n");
    free(text);
    table_epoch_text(&e, 10, line, sizeof line);
    assert_string_equal(line, "epoch 1/10: step 235, training loss 0.4313, validation loss 0.1203, "
                              "2.31 s, 8,650 samples/s");
}

static void test_long_table(void **state)
{
    struct table t = {0};
    char *text;

    (void)state;
    for (int i = 1; i <= TABLE_MAX_ROWS + 70; i++) {
        struct session_epoch e = plain;

        e.epoch = i;
        table_add(&t, &e);
    }
    assert_int_equal(table_last(&t)->epoch, TABLE_MAX_ROWS + 70);
    text = print(&t, &(struct table_end){.seconds = 1});
    assert_non_null(strstr(text, "(70 epochs before these are in events.jsonl)"));
    assert_non_null(strstr(text, "\n     71 "));
    assert_null(strstr(text, "\n     70 "));
    assert_non_null(strstr(text, "\n    100 "));
    free(text);
}

static void test_epoch_line(void **state)
{
    static const char *const causes[] = {
        [WAIT_UNKNOWN] = "",
        [WAIT_FEW] = NULL, /* nothing helps, and nothing is said */
        [WAIT_READING] = ": set data.workers higher",
        [WAIT_DISK] = ": the disk with the data is slow",
        [WAIT_CORES] = ": the reading threads get too little of the processors",
    };
    struct session_epoch skipping = plain;
    char out[256], want[128];

    (void)state;
    table_epoch_text(&plain, 10, out, sizeof out);
    assert_string_equal(out, "epoch 1/10: step 235, training loss 0.4313, 2.31 s, 8,650 samples/s");
    skipping.n_skipped = 1;
    table_epoch_text(&skipping, 10, out, sizeof out);
    assert_non_null(strstr(out, " samples/s, 1 step skipped"));
    skipping.n_skipped = 2;
    skipping.loss_scale = 16384;
    table_epoch_text(&skipping, 10, out, sizeof out);
    assert_non_null(strstr(out, " samples/s, 2 steps skipped, loss scale 16384"));
    skipping.data_wait_share = 0.344;
    skipping.data_wait_rank = 1;
    skipping.data_wait_cause = WAIT_READING;
    table_epoch_text(&skipping, 10, out, sizeof out);
    assert_non_null(strstr(out, ", loss scale 16384, waiting for data 34 % of the time on rank 1: "
                                "set data.workers higher"));
    for (int cause = 0; cause <= (int)ARRAY_LEN(causes); cause++) {
        skipping.data_wait_cause = cause; /* the last one is of a later version */
        table_epoch_text(&skipping, 10, out, sizeof out);
        if (cause == WAIT_FEW) {
            assert_null(strstr(out, "waiting"));
            continue;
        }
        snprintf(want, sizeof want, ", waiting for data 34 %% of the time on rank 1%s",
                 cause < (int)ARRAY_LEN(causes) ? causes[cause] : "");
        assert_true(strlen(out) > strlen(want));
        assert_string_equal(out + strlen(out) - strlen(want), want);
    }
    skipping.data_wait_share = 0.09;
    table_epoch_text(&skipping, 10, out, sizeof out);
    assert_null(strstr(out, "waiting"));
    skipping.n_left_out = 3;
    table_epoch_text(&skipping, 10, out, sizeof out);
    assert_non_null(strstr(out, "/s, 2 steps skipped, 3 samples left out, loss scale 16384"));
    skipping = plain;
    skipping.n_left_out = 1;
    table_epoch_text(&skipping, 10, out, sizeof out);
    assert_non_null(strstr(out, " samples/s, 1 sample left out"));
}

static void test_goodput(void **state)
{
    static const struct account_times t = {.ns = {[ACCOUNT_PRODUCTIVE] = 9410,
                                                  [ACCOUNT_START] = 320,
                                                  [ACCOUNT_DATA] = 90,
                                                  [ACCOUNT_REPEATED] = 180}};
    char out[256];

    (void)state;
    table_goodput_text(&t, out, sizeof out);
    assert_string_equal(out, "94.1 % of the time; start 3.2 %, repeated 1.8 %");
    table_goodput_text(&(struct account_times){.ns = {7}}, out, sizeof out);
    assert_string_equal(out, "100.0 % of the time");
    table_goodput_text(&(struct account_times){{0}}, out, sizeof out);
    assert_string_equal(out, "");
}

static void test_energy(void **state)
{
    static const struct {
        int64_t package, gpu;
        const char *missing, *want;
    } rows[] = {
        {0, 0, NULL, ""},
        {89500, 0, NULL, "89.5 J of processors' packages"},
        {0, 1234567, NULL, "1.23 kJ of GPUs"},
        {1000000, 4000000000, NULL, "4 MJ: 1 kJ of packages, 4 MJ of GPUs"},
        {0, 0, "why", "not known: why"},
        {5000000000000, 0, "why", "5 GJ of processors' packages; not known: why"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct energy_sums s = {
            {[ENERGY_PACKAGE] = rows[i].package, [ENERGY_GPU] = rows[i].gpu}};
        char out[128];

        table_energy_text(&s, rows[i].missing, out, sizeof out);
        assert_string_equal(out, rows[i].want);
    }
}

/* The columns stay in their places. */
static void test_losses_of_a_run_that_diverges(void **state)
{
    const struct session_epoch e = {.epoch = 1,
                                    .step = 235,
                                    .train_loss = HUGE_VAL,
                                    .train_seconds = 2.3113,
                                    .samples_per_second = 8650,
                                    .is_validated = 1,
                                    .validation_loss = 1.25e20,
                                    .validation_accuracy = 0.125};
    char out[512], *text = NULL;
    struct table t = {0};
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    (void)state;
    assert_non_null(f);
    table_epoch_text(&e, 10, out, sizeof out);
    assert_string_equal(out, "epoch 1/10: step 235, training loss overflow, validation loss "
                             "1.25e+20, accuracy 12.50 %, 2.31 s, 8,650 samples/s");
    table_add(&t, &e);
    table_print(&t, &(struct table_end){.seconds = 3}, f);
    fclose(f);
    assert_string_equal(
        text, "  epoch  training loss  validation loss    accuracy   seconds  samples/s\n"
              "      1       overflow         1.25e+20     12.50 %      2.31      8,650\n\n"
              "accuracy  12.50 % on the validation set, after 0:03\n");
    free(text);
}

static void test_validation_of_tokens(void **state)
{
    struct session_epoch tokens = plain;
    char out[256];

    (void)state;
    tokens.is_validated = 1;
    tokens.validation_loss = 1.4697;
    tokens.validation_accuracy = 0.5632;
    table_epoch_text(&tokens, 10, out, sizeof out);
    assert_non_null(strstr(out, ", validation loss 1.4697, accuracy 56.32 %, "));
    tokens.tokens_per_second = 1;
    table_epoch_text(&tokens, 10, out, sizeof out);
    assert_non_null(strstr(out, ", validation loss 1.4697, perplexity 4.348, accuracy 56.32 %, "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_terminal),
        cmocka_unit_test(test_no_terminal),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_top5),
        cmocka_unit_test(test_regression),
        cmocka_unit_test(test_long_table),
        cmocka_unit_test(test_epoch_line),
        cmocka_unit_test(test_validation_of_tokens),
        cmocka_unit_test(test_goodput),
        cmocka_unit_test(test_energy),
        cmocka_unit_test(test_losses_of_a_run_that_diverges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
