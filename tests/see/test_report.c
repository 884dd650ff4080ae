/* Tests of a run's status as its files tell it, and of the report that is made of them: the
 * documents in it, texts that look like HTML, and that it names no other file. */
#include "../test.h"

#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "ckpt/owner.h"
#include "folder.h"
#include "see/past.h"
#include "see/report.h"

#define HEADER "step,epoch,loss,learning_rate,grad_norm,samples_per_second\n"
#define START                                                                  \
    "{\"event\":\"start\",\"time\":100.5,\"nranks\":2,\"steps_per_epoch\":20," \
    "\"device\":\"cpu\"}\n"
#define FORM                                                                               \
    "{\"event\":\"form\",\"time\":101,\"generation\":1,\"nranks\":2,\"step\":0,\"ranks\":" \
    "[{\"rank\":0,\"host\":\"a\",\"pid\":7},{\"rank\":1,\"host\":\"b\",\"pid\":8}]}\n"
#define LOST "{\"event\":\"lost\",\"time\":102,\"rank\":1,\"reason\":\"</script><b>\"}\n"
#define EPOCH                                                                       \
    "{\"event\":\"epoch\",\"time\":103,\"epoch\":1,\"step\":20,\"train_loss\":0.5," \
    "\"samples_per_second\":50,\"validation_loss\":0.25,\"validation_accuracy\":0.75}\n"
#define ACCOUNT                                                                  \
    "\"wall_seconds\":10,\"goodput\":0.5,\"badput\":{\"start\":2,\"lost\":3},"   \
    "\"rank_hours\":0.5,\"cost\":1.5,\"joules\":{\"package\":2.5,\"gpu\":null}," \
    "\"energy_missing\":\"why\""
#define DONE "{\"event\":\"done\",\"time\":104,\"step\":40,\"reason\":\"epochs\"," ACCOUNT "}\n"

static const char job[] = "name: night\nmodel: {arch: mlp}\ndata: {format: digits}\n"
                          "train: {epochs: 2}\nreport: {price_per_rank_hour: 3}\n";

static struct past read_past(void)
{
    struct past p;
    struct err err;

    assert_int_equal(past_read(".", 110, &p, &err), 0);
    return p;
}

static void write_run(const char *events)
{
    write_text("job.yaml", job);
    write_text("metrics.csv", HEADER "10,1,0.75,0.1,2.5,40\n30,2,0.375,0.05,nan,60\n40,2,0.1");
    write_text("events.jsonl", events);
}

static void test_done(void **state)
{
    struct past p;

    (void)state;
    write_run(START FORM EPOCH DONE "{\"event\":\"chec");
    p = read_past();
    assert_string_equal(p.status.stage, "done");
    assert_string_equal(p.status.name, "night");
    assert_int_equal(p.status.step, 40);
    assert_int_equal(p.status.epoch, 2);
    assert_int_equal(latest_total_steps(&p.status.latest), 40);
    assert_true(p.status.latest.loss == 0.375 && p.status.latest.learning_rate == 0.05);
    assert_true(isnan(p.status.latest.grad_norm) && p.status.latest.samples_per_second == 60);
    assert_true(p.status.latest.validation_loss == 0.25);
    assert_true(p.status.cost == 1.5 && p.status.cost_forecast == 1.5);
    assert_int_equal(account_wall_ns(&p.status.account), 10000000000);
    assert_int_equal(p.status.energy.mj[ENERGY_PACKAGE], 2500);
    assert_string_equal(p.status.no_energy, "why");
    assert_int_equal(p.status.account.ns[ACCOUNT_PRODUCTIVE], 5000000000);
    assert_true(p.begun_s == 100.5 && p.newest_s == 104 && p.status.stage_s == 6);
    assert_int_equal(p.status.n, 2);
    assert_string_equal(p.status.rank[0].device, "cpu");
    assert_string_equal(p.status.rank[1].host, "b");
    assert_null(p.status.rank[1].device);
    past_fini(&p);
}

/* The stage of a run whose newest event is none of an end, by its owner. */
static void test_stage(void **state)
{
    struct past p;
    struct err err;

    (void)state;
    write_run(START FORM LOST);
    p = read_past();
    assert_string_equal(p.status.stage, "running when last heard");
    assert_int_equal(p.status.epoch, 2); /* as metrics.csv has it */
    assert_int_equal(p.status.n_here, 1);
    assert_int_equal(p.status.rank[1].role, STATUS_MISSING);
    assert_int_equal(p.status.latest.n_lost, 1);
    past_fini(&p);
    write_text("metrics.csv", HEADER);
    p = read_past();
    assert_int_equal(p.status.epoch, 0);
    past_fini(&p);
    assert_int_equal(owner_claim(".", 0, &err), 0);
    p = read_past();
    assert_string_equal(p.status.stage, "running when last heard");
    past_fini(&p);
    write_text("owner", "{\"id\":\"x\",\"run\":\"\",\"term\":0,\"host\":\"h\",\"pid\":1,"
                        "\"pid_space\":0,\"boot\":\"of another machine\",\"started\":1}");
    p = read_past();
    assert_string_equal(p.status.stage, "running when last heard");
    past_fini(&p);
}

/* A driver that goes on with a run that failed, or was done. */
static void test_resumed(void **state)
{
    struct past p;

    (void)state;
    write_run(START FORM EPOCH "{\"event\":\"error\",\"time\":104,\"phase\":\"step\"}\n");
    p = read_past();
    assert_string_equal(p.status.stage, "failed");
    past_fini(&p);
    write_run(START FORM EPOCH "{\"event\":\"error\",\"time\":104,\"phase\":\"checkpoint\"}\n");
    p = read_past();
    assert_string_equal(p.status.stage, "running when last heard");
    past_fini(&p);
    write_run(START FORM EPOCH "{\"event\":\"error\",\"time\":104}\n" START FORM);
    p = read_past();
    assert_string_equal(p.status.stage, "running when last heard");
    past_fini(&p);
    write_run(START FORM EPOCH DONE START FORM);
    p = read_past();
    assert_string_equal(p.status.stage, "running when last heard");
    assert_int_equal(p.status.n_here, 2);
    past_fini(&p);
}

/* An older version wrote no steps_per_epoch, and job.yaml may be that of a newer one. */
static void test_versions(void **state)
{
    struct past p;

    (void)state;
    write_run("{\"event\":\"start\",\"time\":1,\"nranks\":2}\n" EPOCH
              "{\"event\":\"epoch\",\"time\":4,\"epoch\":2,\"step\":40}\n" DONE);
    write_text("job.yaml", "name: night\nfuture: 1\n");
    p = read_past();
    assert_null(p.status.name);
    assert_int_equal(p.status.latest.steps_per_epoch, 20);
    assert_int_equal(latest_total_steps(&p.status.latest), 0);
    past_fini(&p);
}

static void test_no_run(void **state)
{
    struct report_run run = {.dir = "."};
    struct buf out = {0};
    struct err err;

    (void)state;
    assert_int_equal(report_put(&run, 1, &out, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "events.jsonl"));
    write_text("events.jsonl", "words\n");
    assert_int_equal(report_put(&run, 1, &out, &err), ERR_CONFIG);
    assert_int_equal(out.len, 0);
    buf_fini(&out);
}

static char *make_report(const struct report_run *run)
{
    struct buf out = {0};
    struct err err;
    char *text;

    assert_int_equal(report_put(run, 123.5, &out, &err), 0);
    text = strdup(buf_cstr(&out));
    buf_fini(&out);
    return text;
}

static int count(const char *text, const char *word)
{
    int n = 0;

    for (; (text = strstr(text, word)); text++)
        n++;
    return n;
}

/* A document in the report. */
static json_t *document(const char *page, const char *name)
{
    char *start = xasprintf("<script type=\"application/json\" id=\"dptrain-%s\">", name);
    const char *at = strstr(page, start), *end;
    json_t *o;

    assert_non_null(at);
    at += strlen(start);
    end = strstr(at, "</script>");
    assert_non_null(end);
    o = json_loadb(at, (size_t)(end - at), JSON_DECODE_ANY, NULL);
    assert_non_null(o);
    free(start);
    return o;
}

static void test_documents(void **state)
{
    struct report_run run = {.dir = "."};
    json_t *o;
    char *page;

    (void)state;
    write_run(START FORM LOST EPOCH DONE);
    page = make_report(&run);
    o = document(page, "status");
    assert_string_equal(json_string_value(json_object_get(o, "stage")), "done");
    assert_true(json_real_value(json_object_get(o, "progress")) == 1);
    assert_true(json_is_null(json_object_get(o, "grad_norm")));
    json_decref(o);
    o = document(page, "recent");
    assert_int_equal(json_array_size(o), 5);
    assert_string_equal(json_string_value(json_object_get(json_array_get(o, 2), "reason")),
                        "</script><b>");
    json_decref(o);
    o = document(page, "job");
    assert_string_equal(json_string_value(o), job);
    json_decref(o);
    o = document(page, "curves.svg");
    assert_int_equal(strncmp(json_string_value(o), "<svg ", 5), 0);
    assert_non_null(strstr(json_string_value(o), "Learning rate"));
    json_decref(o);
    o = document(page, "report");
    assert_true(json_real_value(json_object_get(o, "time")) == 123.5);
    json_decref(o);
    free(page);
}

/* The list, and the files of the newest ones as far as there is room, unless they are torn. */
static void test_incidents(void **state)
{
    struct report_run run = {.dir = "."};
    struct buf text = {0};
    json_t *o;
    char *page;

    (void)state;
    write_run(START FORM);
    assert_int_equal(mkdir("incidents", 0777), 0);
    write_text("incidents/incident-1.json", "{\"message\":\"old\",\"ranks\":[]}");
    buf_printf(&text, "{\"message\":\"large\",\"ranks\":[\"%*s\"]}", REPORT_INCIDENT_BYTES - 60,
               "");
    write_text("incidents/incident-2.json", buf_cstr(&text));
    buf_fini(&text);
    write_text("incidents/incident-3.json", "{\"message\":\"torn\",\"ranks\":[");
    write_text("incidents/incident-4.json", "{\"message\":\"</script>\",\"ranks\":[]}");
    page = make_report(&run);
    o = document(page, "incidents");
    assert_int_equal(json_array_size(o), 4);
    json_decref(o);
    o = document(page, "incidents-incident-4.json");
    assert_string_equal(json_string_value(json_object_get(o, "message")), "</script>");
    json_decref(o);
    o = document(page, "status");
    assert_int_equal(json_integer_value(json_object_get(o, "incidents")), 4);
    json_decref(o);
    assert_int_equal(count(page, "id=\"dptrain-incidents-"), 2);
    json_decref(document(page, "incidents-incident-1.json"));
    free(page);
}

/* The driver's own status counts. */
static void test_running(void **state)
{
    struct report_run run = {.dir = ".", .status = "{\"stage\":\"<train>\"}"};
    json_t *o;
    char *page;

    (void)state;
    write_run(START FORM);
    page = make_report(&run);
    o = document(page, "status");
    assert_string_equal(json_string_value(json_object_get(o, "stage")), "<train>");
    json_decref(o);
    free(page);
}

/* The page's files are inside, and nothing is outside. */
static void test_alone(void **state)
{
    struct report_run run = {.dir = "."};
    char *page;

    (void)state;
    write_run(START FORM LOST);
    page = make_report(&run);
    assert_int_equal(count(page, "<html"), 1);
    assert_int_equal(count(page, "</body>"), 1);
    assert_int_equal(count(page, "<style>"), 1);
    assert_int_equal(count(page, "<script>"), 3);
    assert_int_equal(count(page, "<script "), 6);
    assert_int_equal(count(page, "</script>"), 3 + 6);
    assert_int_equal(count(page, "=\"/"), 0);
    assert_int_equal(count(page, "href="), count(page, "href=\"data:"));
    assert_int_equal(count(page, "default-src 'none'"), 1);
    assert_int_equal(count(page, "http:"), count(page, "http://www.w3.org/2000/svg"));
    assert_int_equal(count(page, "https:"), 0);
    assert_non_null(strstr(page, "isReport"));
    assert_non_null(strstr(page, ":focus-visible"));
    free(page);
}

/* The newest events; lines that are no events are left out. */
static void test_many_events(void **state)
{
    struct report_run run = {.dir = "."};
    struct buf text = {0};
    json_t *o;
    char *page;

    (void)state;
    for (int i = 0; i < REPORT_EVENTS + 5; i++)
        buf_printf(&text, "{\"event\":\"warning\",\"time\":1,\"step\":%d}\n[%d]\nwords\n", i, i);
    write_run(buf_cstr(&text));
    buf_fini(&text);
    page = make_report(&run);
    o = document(page, "recent");
    assert_int_equal(json_array_size(o), REPORT_EVENTS);
    for (int i = 0; i < REPORT_EVENTS; i++)
        assert_int_equal(json_integer_value(json_object_get(json_array_get(o, (size_t)i), "step")),
                         i + 5);
    json_decref(o);
    free(page);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_done),   CASE(test_stage),       CASE(test_resumed),   CASE(test_versions),
        CASE(test_no_run), CASE(test_documents),   CASE(test_incidents), CASE(test_running),
        CASE(test_alone),  CASE(test_many_events),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
