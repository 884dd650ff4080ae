/* Tests of a run's history as its files tell it: rows and epochs, steps that were trained again,
 * marks, lines that are no lines, and runs longer than a line has points. */
#include "../test.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder.h"
#include "see/history.h"

static void assert_near(double seen, double want, double within)
{
    assert_true(fabs(seen - want) <= within);
}

#define HEADER "step,epoch,loss,learning_rate,grad_norm,samples_per_second\n"

static struct history read_run(void)
{
    struct history h;
    struct err err;

    assert_int_equal(history_read(".", &h, &err), 0);
    return h;
}

static void assert_line(const struct history *h, enum history_of of, int n, const int64_t *step,
                        const double *mean)
{
    const struct history_line *line = &h->line[of];

    assert_int_equal(line->n, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(line->point[i].step, step[i]);
        if (isnan(mean[i]))
            assert_int_equal(line->point[i].n, 0);
        else
            assert_near(line->point[i].mean, mean[i], 1e-12);
    }
}

static void test_nothing(void **state)
{
    struct history h = read_run();

    (void)state;
    assert_int_equal(h.last_step, 0);
    history_fini(&h);
    write_text("metrics.csv", HEADER);
    h = read_run();
    assert_int_equal(h.last_step, 0);
    assert_int_equal(h.line[HISTORY_TRAIN_LOSS].n, 0);
    history_fini(&h);
}

/* Rows are passed over that are torn, foreign or empty; later versions may have more columns. */
static void test_rows(void **state)
{
    struct history h;

    (void)state;
    write_text("metrics.csv", HEADER "10,1,2.5,0.1,nan,100\n\nwords\n20,1,inf,0.1,3,\n"
                                     "30,1,1.5,0.05,4,200,77\n40,1,1");
    h = read_run();
    assert_line(&h, HISTORY_TRAIN_LOSS, 2, (int64_t[]){10, 30}, (double[]){2.5, 1.5});
    assert_line(&h, HISTORY_GRAD_NORM, 2, (int64_t[]){10, 30}, (double[]){NAN, 4});
    assert_line(&h, HISTORY_LEARNING_RATE, 2, (int64_t[]){10, 30}, (double[]){0.1, 0.05});
    assert_line(&h, HISTORY_SPEED, 2, (int64_t[]){10, 30}, (double[]){100, 200});
    assert_int_equal(h.last_step, 30);
    history_fini(&h);
}

static void test_epochs(void **state)
{
    struct history h;

    (void)state;
    write_text(
        "events.jsonl",
        "{\"event\":\"start\"}\n"
        "{\"event\":\"form\",\"step\":0}\n"
        "{\"event\":\"epoch\",\"epoch\":1,\"step\":5,\"train_loss\":2,\"train_accuracy\":0.5,"
        "\"validation_loss\":1,\"samples_per_second\":10}\n"
        "{\"event\":\"epoch\",\"epoch\":2,\"step\":10,\"train_loss\":1,"
        "\"validation_loss\":null}\n"
        "{\"event\":\"checkpoint\",\"step\":5}\n"
        "not json\n[1]\n{\"event\":7}\n"
        "{\"event\":\"start\"}\n"
        "{\"event\":\"form\",\"step\":5}\n"
        "{\"event\":\"epoch\",\"epoch\":2,\"step\":10,\"train_loss\":0.5}\n"
        "{\"event\":\"lost\",\"rank\":2}\n"
        "{\"event\":\"checkpoint\",\"step\":10}\n"
        "{\"event\":\"form\",\"step\":11}\n"
        "{\"event\":\"recovered\",\"generation\":2,\"seconds\":0.25,\"steps_lost\":1}\n"
        "{\"event\":\"checkpoint\",\"step\":13}\n"
        "{\"event\":\"recovered\"}\n"
        "{\"event\":\"lost\",\"rank\":null}\n"
        "{\"event\":\"leader\"}\n"
        "{\"event\":\"done\",\"step\":12}\n"
        "{\"event\":\"torn");
    h = read_run();
    assert_line(&h, HISTORY_TRAIN_LOSS, 2, (int64_t[]){5, 10}, (double[]){2, 0.5});
    assert_line(&h, HISTORY_VALIDATION_LOSS, 1, (int64_t[]){5}, (double[]){1});
    assert_line(&h, HISTORY_TRAIN_ACCURACY, 1, (int64_t[]){5}, (double[]){0.5});
    assert_int_equal(h.n_epochs, 2);
    assert_true(h.is_done);
    assert_int_equal(h.n_marks, 9);
    assert_int_equal(h.mark[0].kind, HISTORY_CHECKPOINT);
    assert_int_equal(h.mark[1].kind, HISTORY_RESUMED);
    assert_int_equal(h.mark[1].step, 5);
    assert_string_equal(h.mark[2].text, "rank 2 lost");
    assert_int_equal(h.mark[2].step, 11);
    assert_int_equal(h.mark[4].kind, HISTORY_RECOVERED);
    assert_int_equal(h.mark[4].step, 12);
    assert_string_equal(h.mark[4].text, "recovered after 0.25 s, 1 step lost");
    assert_int_equal(h.mark[5].kind, HISTORY_CHECKPOINT);
    assert_string_equal(h.mark[6].text, "recovered after 0.00 s, 0 steps lost");
    assert_int_equal(history_mark_step(&h, &h.mark[6]), 13); /* no later than the run is */
    assert_string_equal(h.mark[7].text, "a rank lost");
    assert_int_equal(h.mark[7].step, 13); /* the last step that is known */
    assert_int_equal(h.mark[8].kind, HISTORY_LEADER);
    history_fini(&h);
}

static void test_joins(void **state)
{
    struct history h;

    (void)state;
    write_text("events.jsonl", "{\"event\":\"done\",\"step\":1}\n"
                               "{\"event\":\"join\",\"time\":1.5,\"rank\":3}\n");
    h = read_run();
    assert_false(h.is_done); /* the run goes on */
    assert_int_equal(h.n_marks, 0);
    history_fini(&h);
    write_text("events.jsonl", "{\"event\":\"done\",\"step\":1}\n"
                               "{\"event\":\"join\",\"time\":1.5,\"rank\":3}");
    h = read_run();
    assert_true(h.is_done); /* the torn line does not count */
    history_fini(&h);
}

/* Events that were rotated away belong to the run, and come before the others. */
static void test_rotated(void **state)
{
    struct history h;

    (void)state;
    write_text("events.jsonl", "{\"event\":\"epoch\",\"epoch\":3,\"step\":15,\"train_loss\":1}\n");
    write_text("events.jsonl.1", "{\"event\":\"epoch\",\"epoch\":2,\"step\":10,\"train_loss\":2}\n"
                                 "{\"event\":\"lost\",\"rank\":1}\n");
    write_text("events.jsonl.2", "{\"event\":\"epoch\",\"epoch\":1,\"step\":5,\"train_loss\":3}\n");
    h = read_run();
    assert_line(&h, HISTORY_TRAIN_LOSS, 3, (int64_t[]){5, 10, 15}, (double[]){3, 2, 1});
    assert_int_equal(h.n_marks, 1);
    history_fini(&h);
}

/* Whichever file has more points of a kind gives its line. */
static void test_both(void **state)
{
    struct history h;

    (void)state;
    write_text("metrics.csv", HEADER "10,1,4,1,1,1\n20,1,3,1,1,1\n");
    write_text("events.jsonl", "{\"event\":\"epoch\",\"epoch\":1,\"step\":25,\"train_loss\":9,"
                               "\"validation_loss\":2}\n");
    h = read_run();
    assert_line(&h, HISTORY_TRAIN_LOSS, 2, (int64_t[]){10, 20}, (double[]){4, 3});
    assert_line(&h, HISTORY_VALIDATION_LOSS, 1, (int64_t[]){25}, (double[]){2});
    assert_int_equal(h.last_step, 25);
    history_fini(&h);
}

/* No number is lost where points are joined: their counts, sum and range stay. */
static void test_long(void **state)
{
    enum { N = 3 * HISTORY_MOST + 5 };
    struct history_line line = {0};
    double sum = 0, seen = 0, least = 1e9, most = -1e9, low, high;
    int64_t n = 0, n_missing = 0;

    (void)state;
    for (int i = 1; i <= N; i++) {
        const double v = i % 7 == 0 ? INFINITY : i % 1000;

        history_add(&line, i, v);
        sum += isfinite(v) ? v : 0;
    }
    assert_in_range(line.n, HISTORY_MOST / 2, HISTORY_MOST);
    assert_int_equal(line.n_each, 4);
    for (int i = 0; i < line.n; i++) {
        const struct history_point *p = &line.point[i];

        assert_true(i == 0 || p->step > p[-1].step);
        assert_true(p->n == 0 || (p->least <= p->mean && p->mean <= p->most));
        seen += p->mean * (double)p->n;
        n += p->n;
        n_missing += p->n_missing;
        least = p->n ? fmin(least, p->least) : least;
        most = p->n ? fmax(most, p->most) : most;
    }
    assert_int_equal(line.point[line.n - 1].step, N);
    assert_int_equal(n_missing, N / 7);
    assert_int_equal(n, N - N / 7);
    assert_near(seen, sum, 1e-6 * sum);
    assert_near(least, 0, 0);
    assert_near(most, 999, 0);
    assert_true(history_range(&line, &low, &high) && low >= 0 && high <= 999 && low < high);
    free(line.point);
}

static void test_unreadable(void **state)
{
    struct history h;
    struct err err;

    (void)state;
    assert_int_equal(mkdir("metrics.csv", 0777), 0); /* reading a folder fails, for root, too */
    assert_int_equal(history_read(".", &h, &err), ERR_IO);
    assert_non_null(strstr(err.msg, "metrics.csv"));
}

static void hear(struct history_live *h, const char *line) { history_hear(h, line, strlen(line)); }

/* A run that is heard line by line has the history that its files tell: rows, a lost rank whose
 * step is done again, an epoch, a checkpoint. */
static void test_heard(void **state)
{
    static const char *const rows[] = {"10,1,2.5,0.1,1,100", "20,1,1.5,0.1,2,200",
                                       "18,1,1.25,0.1,3,300"};
    struct history_live live = {0};
    struct history now;

    (void)state;
    hear(&live, "{\"event\":\"start\",\"time\":1}");
    hear(&live, "{\"event\":\"form\",\"step\":0}");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char line[256];
        double v[6];

        assert_int_equal(
            sscanf(rows[i], "%lf,%lf,%lf,%lf,%lf,%lf", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5]),
            6);
        if (i == 2) {
            hear(&live, "{\"event\":\"lost\",\"rank\":3}");
            hear(&live, "{\"event\":\"form\",\"step\":17}");
        }
        snprintf(line, sizeof line,
                 "{\"event\":\"row\",\"step\":%.0f,\"loss\":%g,\"learning_rate\":%g,"
                 "\"grad_norm\":%g,\"samples_per_second\":%g}",
                 v[0], v[2], v[3], v[4], v[5]);
        hear(&live, line);
    }
    hear(&live, "{\"event\":\"row\",\"step\":28,\"loss\":null}");
    hear(&live, "{\"event\":\"epoch\",\"epoch\":1,\"step\":28,\"train_loss\":2,"
                "\"validation_loss\":1.75}");
    hear(&live, "no line");
    now = history_now(&live);
    assert_line(&now, HISTORY_TRAIN_LOSS, 3, (int64_t[]){10, 18, 28}, (double[]){2.5, 1.25, NAN});
    assert_line(&now, HISTORY_SPEED, 3, (int64_t[]){10, 18, 28}, (double[]){100, 300, NAN});
    assert_line(&now, HISTORY_VALIDATION_LOSS, 1, (int64_t[]){28}, (double[]){1.75});
    assert_int_equal(now.last_step, 28);
    assert_int_equal(now.n_marks, 1);
    assert_int_equal(now.mark[0].step, 17);
    assert_string_equal(now.mark[0].text, "rank 3 lost");
    history_live_fini(&live);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_nothing), TEST(test_rows),    TEST(test_epochs),
        TEST(test_joins),   TEST(test_rotated), TEST(test_both),
        TEST(test_long),    TEST(test_heard),   TEST(test_unreadable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
