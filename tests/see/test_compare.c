/* Tests of the page that compares runs: a line, a row and a column for each run, the keys in which
 * their jobs differ, and names that look like HTML. */
#include "../test.h"

#include <jansson.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "folder.h"
#include "see/compare.h"

#define ROWS   "step,epoch,loss,learning_rate,grad_norm,samples_per_second\n"
#define EVENTS "{\"event\":\"start\",\"time\":100,\"nranks\":2,\"steps_per_epoch\":20}\n"
#define EPOCH(loss)                                                                 \
    "{\"event\":\"epoch\",\"time\":103,\"epoch\":1,\"step\":20,\"train_loss\":0.5," \
    "\"validation_loss\":" loss "}\n"

#define LOSS                                                              \
    "{\"event\":\"lost\",\"rank\":3}\n{\"event\":\"form\",\"step\":20}\n" \
    "{\"event\":\"recovered\",\"time\":104,\"seconds\":1.5,\"steps_lost\":1}\n"

#define ENERGY                                                                    \
    "{\"event\":\"form\",\"time\":104,\"joules\":{\"package\":1500,\"gpu\":250}," \
    "\"wall_seconds\":9,\"badput\":{}}\n"

static void write_run(const char *dir, const char *job, const char *events)
{
    char *path = xasprintf("%s/job.yaml", dir);

    assert_int_equal(mkdir(dir, 0777), 0);
    write_text(path, job);
    free(path);
    path = xasprintf("%s/events.jsonl", dir);
    write_text(path, events);
    free(path);
    path = xasprintf("%s/metrics.csv", dir);
    write_text(path, ROWS "10,1,0.75,0.1,2.5,40\n20,1,0.5,0.1,2,40\n");
    free(path);
}

static char *compare(const struct report_run *run, int n)
{
    struct buf out = {0};
    struct err err;
    char *page;

    assert_int_equal(compare_put(run, n, 200, &out, &err), 0);
    page = xstrdup(buf_cstr(&out));
    buf_fini(&out);
    return page;
}

static int count(const char *text, const char *word)
{
    int n = 0;

    for (; (text = strstr(text, word)); text++)
        n++;
    return n;
}

static const char plain[] = "name: a\nmodel: {arch: mlp, hidden: [8]}\ndata: {format: digits}\n";

static void test_two(void **state)
{
    static const struct report_run run[] = {{.dir = "a"},
                                            {.dir = "b", .status = "{\"stage\":\"x\"}"}};
    const int n_panels = 5; /* nothing is known of accuracy */
    char *page;

    (void)state;
    write_run("a", plain, EVENTS EPOCH("0.25") EPOCH("0.5"));
    write_run("b",
              "name: b\nmodel: {arch: lenet}\ndata: {format: digits}\n"
              "optimizer: {name: adam, lr: 0.5}\n",
              EVENTS EPOCH("0.125") LOSS ENERGY);
    page = compare(run, 2);
    assert_int_equal(count(page, "class=\"gone r1\""), n_panels);
    assert_int_equal(count(page, "<title>b: rank 3 lost, step 20</title>"), n_panels);
    assert_int_equal(count(page, "<title>b: recovered after 1.50 s, 1 step lost, step 20</title>"),
                     n_panels);
    assert_int_equal(count(page, "class=\"gone r0\""), 0);
    assert_int_equal(count(page, "A lost rank is an upright line"), 1);
    assert_int_equal(count(page, "class=\"line r0\" d=\"M1 "), 2); /* in both tables */
    assert_int_equal(count(page, "class=\"line r1\" d=\"M1 "), 2);
    assert_int_equal(count(page, "class=\"line r2\""), 0);
    assert_int_equal(count(page, "<td>0.25</td>"), 1); /* the best, not the last */
    assert_int_equal(count(page, "<td>0.125</td>"), 1);
    assert_int_equal(count(page, "<td>running: x</td>"), 1);
    assert_non_null(strstr(page, "<tr><td>name</td><td>\"a\"</td><td>\"b\"</td></tr>"));
    assert_non_null(strstr(page, "<tr><td>model.hidden</td><td>[8]</td><td>–</td></tr>"));
    assert_non_null(strstr(page, "<tr><td>optimizer.name</td><td>sgd</td><td>adam</td></tr>"));
    assert_non_null(strstr(page, "<tr><td>optimizer.momentum</td><td>0</td><td>–</td></tr>"));
    assert_int_equal(count(page, "<td>train.epochs</td>"), 0);
    assert_int_equal(count(page, "<td>1.75</td></tr>"), 1); /* the last column */
    assert_int_equal(count(page, ">cost<"), 0);             /* no run has one */
    assert_int_equal(count(page, ">Validation loss<"), 1);
    assert_int_equal(count(page, ">Training accuracy, %<"), 0);
    free(page);
}

/* Two folders of one name; a job that is read by a newer version alone; a text that is no text. */
static void test_names(void **state)
{
    static const struct report_run run[] = {{.dir = "a/x"}, {.dir = "b/x"}, {.dir = "<i>&"}};
    char *page;

    (void)state;
    assert_int_equal(mkdir("a", 0777), 0);
    assert_int_equal(mkdir("b", 0777), 0);
    write_run("a/x", plain, EVENTS);
    write_run("b/x", plain, EVENTS);
    write_run("<i>&", "name: a\nfuture: 1\n", EVENTS);
    page = compare(run, 3);
    assert_int_equal(count(page, "<title>a/x, b/x, &lt;i>&amp;</title>"), 1);
    assert_int_equal(count(page, "<i>"), 0);
    assert_non_null(strstr(page, "The job of &lt;i>&amp; cannot be read"));
    assert_non_null(strstr(page, "<p>0 of "));
    assert_int_equal(count(page, "id=\"jobs\""), 0);
    free(page);
}

static void test_documents(void **state)
{
    static const struct report_run run[] = {{.dir = "a"}, {.dir = "b"}};
    static const char start[] = "<script type=\"application/json\" id=\"dptrain-runs\">";
    const char *at;
    json_t *o, *first;
    char *page;

    (void)state;
    write_run("a", plain, EVENTS EPOCH("0.25"));
    write_run("b", plain, EVENTS EPOCH("0.25"));
    page = compare(run, 2);
    assert_non_null(at = strstr(page, start));
    o = json_loads(at + strlen(start), JSON_DISABLE_EOF_CHECK, NULL);
    assert_int_equal(json_array_size(o), 2);
    first = json_array_get(o, 0);
    assert_string_equal(json_string_value(json_object_get(first, "run_dir")), "a");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(first, "status"), "step")),
                     20);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(first, "job"), "model.hidden")), "[8]");
    json_decref(o);
    assert_int_equal(count(page, "<script>"), 0);
    assert_int_equal(count(page, "=\"/"), 0);
    assert_int_equal(count(page, "http:"), count(page, "http://www.w3.org/2000/svg"));
    free(page);
}

static void test_no_run(void **state)
{
    static const struct report_run run[] = {{.dir = "a"}, {.dir = "b"}};
    struct buf out = {0};
    struct err err;

    (void)state;
    write_run("a", plain, EVENTS);
    assert_int_equal(compare_put(run, 2, 200, &out, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "b holds no run"));
    assert_int_equal(out.len, 0);
    buf_fini(&out);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(test_two), CASE(test_names), CASE(test_documents),
                                       CASE(test_no_run)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
