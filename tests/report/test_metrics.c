/* Tests of metrics.csv: its header, and rows in rising order.  It is cut at the step that a run
 * goes on from, and at a torn line.  It is left alone where its header is another one, or where
 * another driver owns the run. */
#include "../test.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ckpt/owner.h"
#include "folder.h"
#include "report/metrics.h"
#include "session/command.h"

#define HEADER "step,epoch,loss,learning_rate,grad_norm,samples_per_second\n"

static struct series *begin(int64_t step)
{
    struct series *m = series_new(".", &metrics_series, NULL);

    series_go_on(m, step);
    return m;
}

static struct metrics_row row_of(int64_t step)
{
    return (struct metrics_row){.step = step,
                                .epoch = 1,
                                .loss = step == 40 ? HUGE_VAL : (double)step / 4,
                                .learning_rate = 0.1,
                                .grad_norm = step == 30 ? NAN : 2,
                                .samples_per_second = 1e6};
}

static void add(struct series *m, int64_t step)
{
    const struct metrics_row row = row_of(step);

    series_add(m, &row, 1);
}

static void assert_file(const char *want)
{
    char *seen = read_text("metrics.csv");

    assert_string_equal(seen, want);
    free(seen);
}

static void test_rows(void **state)
{
    struct series *m = begin(0);

    (void)state;
    assert_file(HEADER);
    add(m, 10);
    add(m, 10); /* told again by a driver that took over */
    add(m, 30);
    assert_file(HEADER "10,1,2.5,0.1,2,1000000\n30,1,7.5,0.1,nan,1000000\n");
    series_go_on(m, 30); /* a rank was replaced */
    add(m, 30);
    add(m, 40);
    assert_file(HEADER
                "10,1,2.5,0.1,2,1000000\n30,1,7.5,0.1,nan,1000000\n40,1,inf,0.1,2,1000000\n");
    series_free(m);
}

/* Rows that come together are written together, but for those that are there, or come twice. */
static void test_rows_together(void **state)
{
    const struct metrics_row rows[] = {row_of(10), row_of(20), row_of(20), row_of(30)};
    struct series *m = begin(0);

    (void)state;
    add(m, 10);
    series_add(m, rows, 0);
    series_add(m, rows, ARRAY_LEN(rows));
    assert_file(HEADER "10,1,2.5,0.1,2,1000000\n20,1,5,0.1,2,1000000\n30,1,7.5,0.1,nan,1000000\n");
    series_free(m);
}

/* Of rows that come together, and of which the disk takes a part, none is left, and later ones
 * find room. */
static void test_full_disk_for_some(void **state)
{
    const struct metrics_row rows[] = {row_of(10), row_of(20)};
    const rlim_t room = sizeof HEADER - 1 + 30; /* one row */
    struct rlimit limit;
    struct series *m = begin(0);

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){room, limit.rlim_max}), 0);
    series_add(m, rows, ARRAY_LEN(rows));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_file(HEADER);
    add(m, 30);
    assert_file(HEADER "30,1,7.5,0.1,nan,1000000\n");
    series_free(m);
}

/* A disk that is full for the header has room later: the rows then stand below the header. */
static void test_full_disk(void **state)
{
    struct rlimit limit;
    struct series *m;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){10, limit.rlim_max}), 0);
    m = begin(0);
    add(m, 10);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_file("");
    add(m, 20);
    assert_file(HEADER "20,1,5,0.1,2,1000000\n");
    series_free(m);
}

/* The steps of the file, and whether a row can be added after it. */
static void test_going_on(void **state)
{
    static const struct {
        const char *before;
        int64_t step;
        const char *after;
    } cases[] = {
        {HEADER "10,1,1,1,1,1\n20,1,1,1,1,1\n30,1,1,1,1,1\n", 20,
         HEADER "10,1,1,1,1,1\n20,1,1,1,1,1\n"},
        {HEADER "10,1,1,1,1,1\n20,1,1,1,1,1\n30,1,1,1,1,1\n", 9, HEADER},
        {HEADER "10,1,1,1,1,1\n20,1,1", 25, HEADER "10,1,1,1,1,1\n"},
        {HEADER, 25, HEADER},
        {"step,ep", 25, HEADER},
        {"", 25, HEADER},
    };
    char want[512];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct series *m;

        write_text("metrics.csv", cases[i].before);
        m = begin(cases[i].step);
        assert_file(cases[i].after);
        add(m, 40);
        snprintf(want, sizeof want, "%s40,1,inf,0.1,2,1000000\n", cases[i].after);
        assert_file(want);
        series_free(m);
    }
}

/* A file of many rows is longer than what is read at once. */
static void test_long_file(void **state)
{
    struct series *m = begin(0);

    (void)state;
    for (int64_t step = 1; step <= 2000; step++)
        add(m, step);
    series_free(m);
    series_free(begin(1));
    assert_file(HEADER "1,1,0.25,0.1,2,1000000\n");
}

/* A line that is longer than any row stays, although the end that is read of it begins like a row
 * beyond the step. */
static void test_long_line(void **state)
{
    char text[sizeof HEADER + 700];
    int n = sprintf(text, HEADER "3,1,%0100d", 0);

    (void)state;
    sprintf(text + n, "99,1,%0505d\n", 0); /* 511 bytes */
    write_text("metrics.csv", text);
    series_free(begin(5));
    assert_file(text);
}

static void test_other_columns(void **state)
{
    struct series *m;

    (void)state;
    write_text("metrics.csv", "step,loss\n10,1\n");
    m = begin(20);
    add(m, 30);
    assert_file("step,loss\n10,1\n");
    series_free(m);
}

static void test_other_owner(void **state)
{
    struct series *m = begin(0);

    (void)state;
    add(m, 10);
    write_text("owner", "{\"id\": \"0123456789abcdef0123456789abcdef\", \"run\": \"\", "
                        "\"term\": 2, \"host\": \"other\", \"boot\": \"b\", \"pid\": 1, "
                        "\"pid_space\": 1, \"started\": 1}");
    add(m, 20);
    series_go_on(m, 0);
    assert_file(HEADER "10,1,2.5,0.1,2,1000000\n");
    series_free(m);
}

static void test_read(void **state)
{
    static const struct {
        const char *text;
        int64_t n_rows; /* -1: it is refused */
    } rows[] = {
        {HEADER, 0},
        {HEADER "10,1,2.5,0.1,2,1\n30,1,7.5,0.1,nan,1\n", 2},
        {HEADER "10,1,2.5,0.1,2,1\n30,1,7.5,0.1,nan,1", 1}, /* torn */
        {HEADER "10,1,,,,\n", 1},
        {"", -1},
        {"step,loss\n10,1\n", -1},
        {HEADER "10,1,2.5,0.1,2\n", -1},
        {HEADER "10,1,2.5,0.1,2,1,1\n", -1},
        {HEADER "30,1,2.5,0.1,2,1\n30,1,2.5,0.1,2,1\n", -1},
        {HEADER "0,1,2.5,0.1,2,1\n", -1},
        {HEADER "1x,1,2.5,0.1,2,1\n", -1},
        {HEADER "\n", -1},
    };
    struct series_table t;
    struct err err;

    (void)state;
    assert_int_equal(series_read(".", &metrics_series, &t, &err), SERIES_NONE);
    assert_int_equal(t.n_rows, 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        write_text("metrics.csv", rows[i].text);
        if (rows[i].n_rows < 0) {
            assert_int_equal(series_read(".", &metrics_series, &t, &err), ERR_CORRUPT);
            assert_non_null(strstr(err.msg, rows[i].text[0] ? "metrics.csv: " : "csv is empty"));
            continue;
        }
        assert_int_equal(series_read(".", &metrics_series, &t, &err), 0);
        assert_int_equal(t.n_rows, rows[i].n_rows);
        assert_int_equal(series_find(&t, 31), t.n_rows);
        assert_int_equal(series_find(&t, 1), 0);
        if (t.n_rows == 2) {
            assert_int_equal(series_find(&t, 11), 1);
            assert_int_equal(series_step(&t, 1), 30);
            assert_string_equal(series_field(&t, 1, 2), "7.5");
            assert_string_equal(series_field(&t, 1, 5), "1");
        }
        series_table_fini(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rows, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_rows_together, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_full_disk_for_some, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_going_on, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_long_file, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_long_line, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_other_columns, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_other_owner, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_read, folder_setup, folder_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
