/* Tests of axes, of curves.svg and of the plot for a terminal. */
#include "../test.h"

#include <math.h>
#include <unistd.h>

#include "folder.h"
#include "see/chart.h"
#include "see/curves.h"
#include "see/plot.h"

static void assert_near(double seen, double want, double within)
{
    assert_true(fabs(seen - want) <= within);
}

#define HEADER "step,epoch,loss,learning_rate,grad_norm,samples_per_second\n"

static void test_scales(void **state)
{
    static const struct {
        double least, most;
        int may_log;
        double low, high;
        const char *first, *last; /* ticks */
    } cases[] = {
        {0, 10, 0, 0, 10, "0", "10"},
        {0.13, 0.97, 0, 0, 1, "0", "1"},
        {-3, 4, 0, -4, 4, "-4", "4"},
        {95, 95.4, 0, 95, 95.4, "95", "95.4"},
        {0.1, 0.1, 0, 0.09, 0.11, "0.09", "0.11"}, /* level */
        {0, 0, 0, 0, 1, "0", "1"},
        {0.01, 2.3, 1, 0.01, 2.3, "0.01", "1"}, /* logarithmic */
        {0.2, 3, 1, 0, 3, "0", "3"},            /* not enough for that */
        {0, 30, 1, 0, 30, "0", "30"},
        {1e-12, 1e12, 1, 1e-12, 1e12, "1e-12", "100M"},
        {1500, 23000, 0, 0, 25000, "0", "25k"},
    };
    char text[32];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct chart_scale s =
            chart_scale(cases[i].least, cases[i].most, 5, cases[i].may_log);

        assert_near(s.low, cases[i].low, 1e-9);
        assert_near(s.high / cases[i].high, 1, 1e-9);
        assert_in_range(s.n_ticks, 2, CHART_MOST_TICKS);
        chart_text(text, sizeof text, s.tick[0]);
        assert_string_equal(text, cases[i].first);
        chart_text(text, sizeof text, s.tick[s.n_ticks - 1]);
        assert_string_equal(text, cases[i].last);
        assert_true(chart_place(&s, cases[i].least) >= 0 && chart_place(&s, cases[i].most) <= 1);
        assert_near(chart_place(&s, s.low), 0, 1e-12);
        assert_near(chart_place(&s, s.high), 1, 1e-12);
    }
}

static int count(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

/* Two rows, a gap and one row; an epoch; a loss of a rank, and the recovery. */
static void write_run(void)
{
    write_text("metrics.csv", HEADER "10,1,2,0.1,1,100\n20,1,1,0.1,1,100\n30,1,nan,0.1,1,100\n"
                                     "40,2,0.5,0.1,1,100\n");
    write_text("events.jsonl",
               "{\"event\":\"epoch\",\"epoch\":1,\"step\":20,\"validation_loss\":1.5}\n"
               "{\"event\":\"checkpoint\",\"step\":20}\n"
               "{\"event\":\"lost\",\"rank\":1}\n{\"event\":\"form\",\"step\":21}\n"
               "{\"event\":\"recovered\",\"seconds\":0.5,\"steps_lost\":2}\n");
}

static void test_picture(void **state)
{
    struct history h;
    struct buf out = {0};
    struct err err;
    const char *text;

    (void)state;
    write_run();
    assert_int_equal(history_read(".", &h, &err), 0);
    curves_svg(&h, "a<b & \"c\"\xff", &out);
    text = buf_cstr(&out);
    assert_non_null(strstr(text, ">a&lt;b &amp; \"c\"?<"));
    assert_int_equal(count(text, "class=\"head\""), 4); /* nothing is known of accuracy */
    assert_int_equal(count(text, "<title>rank 1 lost, step 21</title>"), 4);
    assert_int_equal(count(text, "<title>recovered after 0.50 s, 2 steps lost, step 22</title>"),
                     4);
    assert_int_equal(count(text, "class=\"well\""), 5); /* and once in the legend */
    assert_int_equal(count(text, "class=\"saved\""), 5);
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    /* The loss is above at first, and breaks off at the gap. */
    assert_non_null(strstr(text, "class=\"line one\" d=\"M160.5 84.0L259.0 "));
    assert_non_null(strstr(text, "M456.0 256.0\"/>"));
    buf_fini(&out);
    history_fini(&h);
}

static int draw(const char *run_dir, struct err *err)
{
    struct history h;
    int rc;

    assert_int_equal(history_read(run_dir, &h, err), 0);
    rc = curves_save(&h, run_dir, err);
    history_fini(&h);
    return rc;
}

static void test_file(void **state)
{
    struct err err;
    char *text;

    (void)state;
    assert_int_equal(draw(".", &err), 0);
    assert_int_equal(access("curves.svg", F_OK), -1); /* no step yet */
    write_run();
    assert_int_equal(draw(".", &err), 0);
    text = read_text("curves.svg");
    assert_non_null(strstr(text, "step 40, epoch 1<"));
    assert_string_equal(text + strlen(text) - 7, "</svg>\n");
    free(text);
    assert_int_equal(draw("nowhere", &err), 0);
}

static void test_plot(void **state)
{
    struct history h = {.last_step = 8};
    struct buf out = {0};

    (void)state;
    plot_loss(&h, 80, 1, &out);
    assert_int_equal(out.len, 0);
    for (int i = 1; i <= 8; i++)
        history_add(&h.line[HISTORY_TRAIN_LOSS], i, 9 - i);
    history_add(&h.line[HISTORY_VALIDATION_LOSS], 8, 8);
    plot_loss(&h, 40, 0, &out);
    assert_string_equal(buf_cstr(&out), "      8 |   *****                      o\n"
                                        "        |       *****\n"
                                        "      6 |           *****\n"
                                        "        |               ****\n"
                                        "      4 |                   ****\n"
                                        "        |                       ****\n"
                                        "      2 |                           ****\n"
                                        "      0 |                              *\n"
                                        "         loss, * training, o validation, to step 8\n\n");
    buf_clear(&out);
    plot_loss(&h, 40, 1, &out);
    assert_non_null(strstr(buf_cstr(&out), "\xe2\xa0")); /* Braille */
    buf_fini(&out);
    history_fini(&h);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_scales),
        TEST(test_picture),
        TEST(test_file),
        TEST(test_plot),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
