/* Tests of events.jsonl: each event is one line of JSON with the fields that users rely on, and a
 * full disk leaves no torn line. */
#include "../test.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "folder.h"
#include "report/events.h"

static struct events *open_events(const char *path)
{
    struct lines_options o = {.path = path, .what = "an event", .most_bytes = 1 << 20};
    struct err err;
    int fd;

    assert_int_equal(lines_open(path, &fd, &err), 0);
    return events_new(lines_new(fd, &o), "cpu");
}

static double two[] = {51.5, 49.25};
static char host[] = "b\x1b";
static struct session_process processes[] = {{7, NULL}, {77, host}};

#define EPOCH                                                                                      \
    {                                                                                              \
        .epoch = 3, .step = 235, .n_samples = 20000, .train_loss = 0.5, .train_accuracy = 0.75,    \
        .train_seconds = 2, .samples_per_second = 10000, .step_ms_median = 25.5,                   \
        .comm_exposed_ms_median = 0.25, .comm_hidden_share = 0.75, .data_wait_ms_median = 1.5,     \
        .data_wait_share = 0.125, .data_wait_rank = 1, .is_validated = 1, .validation_loss = 0.25, \
        .validation_accuracy = 0.875                                                               \
    }

/* Every event, and every field that users rely on. */
static const struct {
    struct session_event ev;
    const char *name, *fields; /* "key=JSON;...", in order, all but event and time */
} cases[] = {
    {{.kind = EVENT_START,
      .rank = -1,
      .step = -1,
      .start = {.n_ranks = 2, .n_parameters = 431080, .steps_per_epoch = 235, .data = {1, 2}}},
     "start",
     "nranks=2;version=\"" DPTRAIN_VERSION "\";parameters=431080;steps_per_epoch=235;"
     "data=\"00000000000000020000000000000001\";device=\"cpu\""},
    {{.kind = EVENT_JOIN, .rank = 1, .host = (char *)"node-b"}, "join", "rank=1;host=\"node-b\""},
    {{.kind = EVENT_STRAGGLER, .rank = 2, .host = (char *)"node-c", .step = 40, .straggler = {2.5}},
     "straggler",
     "rank=2;host=\"node-c\";step=40;factor=2.5"},
    {{.kind = EVENT_FORM,
      .step = 70,
      .form = {.generation = 1, .n_ranks = 2, .seconds = 0.5, .process = processes}},
     "form",
     "generation=1;nranks=2;seconds=0.5;step=70;ranks=[{\"rank\":0,\"host\":null,\"pid\":7},"
     "{\"rank\":1,\"host\":\"b?\",\"pid\":77}]"},
    {{.kind = EVENT_FIRST_STEP, .first_step = {.seconds = 0.25, .rss_mib = two, .n_ranks = 2}},
     "first_step",
     "seconds=0.25;rss_mib=[51.5,49.25]"},
    {{.kind = EVENT_EPOCH, .epoch = EPOCH},
     "epoch",
     "epoch=3;step=235;samples=20000;train_loss=0.5;train_accuracy=0.75;train_seconds=2.0;"
     "samples_per_second=10000.0;step_ms_median=25.5;comm_exposed_ms_median=0.25;comm_hidden_share="
     "0.75;"
     "data_wait_ms_median=1.5;data_wait_share=0.125;data_wait_rank=1;"
     "validation_loss=0.25;validation_accuracy=0.875"},
    {{.kind = EVENT_EPOCH,
      .epoch = {.epoch = 2,
                .step = 4,
                .train_seconds = 2,
                .samples_per_second = 3,
                .tokens_per_second = 192,
                .is_validated = 1}}, /* a loss of 0: exp(0) */
     "epoch",
     "epoch=2;step=4;samples=0;train_loss=0.0;train_accuracy=0.0;train_seconds=2.0;"
     "samples_per_second=3.0;tokens_per_second=192.0;step_ms_median=0.0;"
     "comm_exposed_ms_median=0.0;comm_hidden_share=0.0;data_wait_ms_median=0.0;data_wait_share=0.0;"
     "data_wait_rank=0;"
     "validation_loss=0.0;validation_accuracy=0.0;"
     "validation_perplexity=1.0"},
    {{.kind = EVENT_EPOCH,
      .epoch = {.epoch = 2,
                .step = 4,
                .train_seconds = 2,
                .samples_per_second = 3,
                .is_validated = 1,
                .has_top5 = 1,
                .validation_top5 = 0.9375,
                .has_average = 1,
                .average_validation_top5 = 0.5}},
     "epoch",
     "epoch=2;step=4;samples=0;train_loss=0.0;train_accuracy=0.0;train_seconds=2.0;"
     "samples_per_second=3.0;step_ms_median=0.0;"
     "comm_exposed_ms_median=0.0;comm_hidden_share=0.0;data_wait_ms_median=0.0;data_wait_share=0.0;"
     "data_wait_rank=0;"
     "validation_loss=0.0;validation_accuracy=0.0;validation_top5=0.9375;"
     "average_validation_loss=0.0;average_validation_accuracy=0.0;average_validation_top5=0.5"},
    {{.kind = EVENT_EPOCH,
      .epoch = {.epoch = 1,
                .step = 2,
                .train_loss = NAN,
                .train_accuracy = 0,
                .train_seconds = 1,
                .samples_per_second = 1,
                .step_ms_median = 1,
                .comm_exposed_ms_median = NOT_MEASURED,
                .comm_hidden_share = NOT_MEASURED,
                .n_skipped = 4,
                .n_left_out = 3,
                .loss_scale = 32768,
                .is_validated = 1,
                .validation_loss = HUGE_VAL,
                .validation_accuracy = 0.5,
                .is_mean = 1},
      .cost = 7,
      .epoch_cost = 3,
      .energy.mj = {[ENERGY_PACKAGE] = 4500},
      .epoch_energy.mj = {[ENERGY_PACKAGE] = 500},
      .account.ns = {[ACCOUNT_PRODUCTIVE] = 6000000000}},
     "epoch",
     "epoch=1;step=2;samples=0;train_loss=null;train_accuracy=0.0;train_seconds=1.0;"
     "samples_per_second=1.0;step_ms_median=1.0;data_wait_ms_median=0.0;data_wait_share=0.0;"
     "data_wait_rank=0;validation_loss=null;validation_accuracy=0.5;"
     "steps_skipped=4;left_out=3;loss_scale=32768.0;replicas=\"mean over ranks\";"
     "wall_seconds=6.0;goodput=1.0;"
     "badput={\"start\":0.0,\"data\":0.0,\"checkpoint\":0.0,\"validation\":0.0,\"lost\":0.0,"
     "\"repeated\":0.0,\"waiting\":0.0};rank_hours=0.0;cost=7.0;"
     "joules={\"package\":4.5,\"gpu\":null};epoch_cost=3.0;"
     "epoch_joules={\"package\":0.5,\"gpu\":null}"},
    {{.kind = EVENT_CHECKPOINT,
      .step = 235,
      .text = (char *)"r/checkpoints/step-1",
      .checkpoint = {.seconds = 0.125, .exposed_seconds = 0.0625}},
     "checkpoint",
     "step=235;path=\"r/checkpoints/step-1\";seconds=0.125;exposed_seconds=0.0625"},
    {{.kind = EVENT_DONE,
      .step = 3,
      .cost = 12.75,
      .done = {.seconds = 8, .epoch = EPOCH, .no_energy = (char *)"why"},
      .energy.mj = {[ENERGY_PACKAGE] = 4500, [ENERGY_GPU] = 9000},
      .account.rank_us = 7200000000,
      .account.ns = {[ACCOUNT_PRODUCTIVE] = 6000000000,
                     [ACCOUNT_START] = 1500000000,
                     [ACCOUNT_WAITING] = 500000000}},
     "done",
     "step=3;seconds=8.0;train_loss=0.5;validation_loss=0.25;validation_accuracy=0.875;"
     "peak_rss_mib=[];wall_seconds=8.0;goodput=0.75;"
     "badput={\"start\":1.5,\"data\":0.0,\"checkpoint\":0.0,\"validation\":0.0,\"lost\":0.0,"
     "\"repeated\":0.0,\"waiting\":0.5};rank_hours=2.0;cost=12.75;"
     "joules={\"package\":4.5,\"gpu\":9.0};cost_per_epoch=4.25;"
     "joules_per_epoch={\"package\":1.5,\"gpu\":3.0};energy_missing=\"why\""},
    {{.kind = EVENT_LOST, .rank = 1, .host = (char *)"h", .text = (char *)"killed"},
     "lost",
     "rank=1;host=\"h\";reason=\"killed\""},
    {{.kind = EVENT_NOTICE,
      .rank = 1,
      .host = (char *)"h",
      .notice = {.seconds = 120},
      .text = (char *)"aws"},
     "notice",
     "rank=1;host=\"h\";source=\"aws\";seconds=120"},
    {{.kind = EVENT_NOTICE,
      .rank = -1,
      .host = (char *)"h",
      .notice = {.seconds = -1},
      .text = (char *)"command"},
     "notice",
     "rank=null;host=\"h\";source=\"command\";seconds=null"},
    {{.kind = EVENT_DRAIN,
      .rank = 1,
      .host = (char *)"h",
      .drain = {.pid = 7},
      .text = (char *)"step"},
     "drain",
     "rank=1;host=\"h\";spare=null;pid=7;when=\"step\""},
    {{.kind = EVENT_DRAIN,
      .rank = -1,
      .drain = {.spare = 2, .pid = 8},
      .host = (char *)"h",
      .text = (char *)"now"},
     "drain",
     "rank=null;host=\"h\";spare=2;pid=8;when=\"now\""},
    {{.kind = EVENT_REBALANCE,
      .rank = -1,
      .step = 32,
      .rebalance = {.n_ranks = 2, .share = (double[]){20, 12}}},
     "rebalance",
     "step=32;shares=[20,12]"},
    {{.kind = EVENT_BUCKETS,
      .rank = -1,
      .step = 8,
      .buckets = {.bucket_bytes = 1 << 20, .n_buckets = 3}},
     "buckets",
     "step=8;bucket_bytes=1048576;n_buckets=3"},
    {{.kind = EVENT_CORRUPTION,
      .rank = 1,
      .host = (char *)"h",
      .step = 7,
      .corruption = {CORRUPTION_STATE, -1, 1},
      .text = (char *)"rank 1 (h) differs"},
     "corruption",
     "rank=1;host=\"h\";step=7;what=\"state\";share=null;healed=true;"
     "message=\"rank 1 (h) differs\""},
    {{.kind = EVENT_CORRUPTION,
      .rank = 1,
      .host = (char *)"h",
      .step = 7,
      .corruption = {CORRUPTION_GRADIENT, 0, 0},
      .text = (char *)"rank 1 (h) errs"},
     "corruption",
     "rank=1;host=\"h\";step=7;what=\"gradient\";share=0;healed=false;"
     "message=\"rank 1 (h) errs\""},
    {{.kind = EVENT_PAUSE, .rank = -1, .step = 7}, "pause", "step=7"},
    {{.kind = EVENT_GO, .rank = -1, .step = 7}, "go", "step=7"},
    {{.kind = EVENT_LIVE, .rank = -1, .step = 7, .live = {.lr = 0.5}},
     "live",
     "step=7;key=\"optimizer.lr\";value=0.5"},
    {{.kind = EVENT_SPIKE,
      .rank = -1,
      .step = 60,
      .spike = {.loss = 9.5, .mean = 0.5, .deviation = 0.25, .back_to = 50},
      .text = (char *)"rewind"},
     "spike",
     "step=60;loss=9.5;mean=0.5;deviation=0.25;action=\"rewind\";back_to=50"},
    {{.kind = EVENT_WARNING, .rank = 0, .text = (char *)"a \"quoted\"\ntext \xff", .step = 7},
     "warning",
     "rank=0;step=7;message=\"a \\\"quoted\\\"\\ntext ?\""},
    {{.kind = EVENT_ERROR,
      .rank = 1,
      .host = (char *)"h",
      .text = (char *)"why",
      .step = 700,
      .phase = PHASE_REDUCE},
     "error",
     "rank=1;host=\"h\";step=700;message=\"why\";phase=\"reduce\""},
    {{.kind = EVENT_INJECT,
      .rank = 1,
      .host = (char *)"h",
      .text = (char *)"SIGKILL",
      .step = 50,
      .phase = PHASE_LOAD,
      .inject = {"kill:rank1@step50"}},
     "inject",
     "spec=\"kill:rank1@step50\";rank=1;host=\"h\";step=50;message=\"SIGKILL\";"
     "phase=\"load\""},
    {{.kind = EVENT_ERROR, .rank = -1, .text = (char *)"why", .step = -1, .phase = PHASE_COUNT},
     "error",
     "rank=null;step=null;message=\"why\";phase=null"},
    {{.kind = EVENT_DONE,
      .step = 2350,
      .done = {.seconds = 64, .epoch = EPOCH, .peak_rss_mib = two, .n_ranks = 2}},
     "done",
     "step=2350;seconds=64.0;train_loss=0.5;validation_loss=0.25;validation_accuracy=0.875;"
     "peak_rss_mib=[51.5,49.25]"},
    {{.kind = EVENT_RECOVERED,
      .rank = -1,
      .step = 7,
      .recovered = {.n_ranks = 2, .generation = 3, .seconds = 0.5, .steps_lost = 1},
      .text = (char *)"followers"},
     "recovered",
     "generation=3;nranks=2;seconds=0.5;steps_lost=1;source=\"followers\""},
    {{.kind = EVENT_STANDBY,
      .standby = {.term = 2, .generation = 3, .n_ranks = 4, .standby = "s"},
      .text = (char *)"a:1"},
     "standby",
     "address=\"a:1\";id=\"s\";term=2;generation=3;nranks=4"},
    {{.kind = EVENT_STANDBY}, "standby", "address=null"},
    {{.kind = EVENT_LEADER, .leader = {2}, .host = (char *)"a:1", .text = (char *)"b:2"},
     "leader",
     "term=2;from=\"a:1\";to=\"b:2\""},
    {{.kind = EVENT_FORM,
      .form = {.generation = 1,
               .n_ranks = 0,
               .voters = {.term = 2, .generation = 1, .n_ranks = 0, .standby = "s"}}},
     "form",
     "generation=1;nranks=0;seconds=0.0;standby=\"s\";term=2;step=0;ranks=[]"},
    {{.kind = EVENT_DONE, .step = 0, .done = {.seconds = 1, .peak_rss_mib = two, .n_ranks = 1}},
     "done",
     "step=0;seconds=1.0;peak_rss_mib=[51.5]"},
};

static void check_line(const char *line, const char *name, const char *fields)
{
    char *text = strdup(fields), *rest = text, *field;
    json_t *o = json_loads(line, 0, NULL);
    const char *key;
    void *at;
    size_t n = 2;

    assert_non_null(o);
    at = json_object_iter_next(o, json_object_iter_at(o, "time"));
    assert_string_equal(json_string_value(json_object_get(o, "event")), name);
    assert_true(json_real_value(json_object_get(o, "time")) > 1.6e9);
    for (; (field = strsep(&rest, ";")); n++) {
        char *want = strchr(field, '=') + 1, *got;

        want[-1] = '\0';
        key = at ? json_object_iter_key(at) : "the end";
        if (strcmp(key, field) != 0)
            fail_msg("%s: %s stands where %s should", name, key, field);
        at = json_object_iter_next(o, at);
        got = json_dumps(json_object_get(o, field), JSON_ENCODE_ANY | JSON_COMPACT);
        if (!got || strcmp(got, want) != 0)
            fail_msg("%s.%s is %s, want %s", name, field, got ? got : "missing", want);
        free(got);
    }
    assert_int_equal(json_object_size(o), n);
    json_decref(o);
    free(text);
}

static void test_fields(void **state)
{
    struct events *e = open_events("e.jsonl");
    char *text, *rest, *line;
    size_t i = 0;

    (void)state;
    for (; i < ARRAY_LEN(cases); i++)
        events_add(e, &cases[i].ev);
    events_add(e, &(struct session_event){.kind = EVENT_PROGRESS}); /* not written to the file */
    assert_int_equal(events_lost(e), 0);
    events_free(e);
    rest = text = read_text("e.jsonl");
    for (i = 0; i < ARRAY_LEN(cases); i++) {
        line = strsep(&rest, "\n");
        check_line(line, cases[i].name, cases[i].fields);
    }
    assert_string_equal(rest, "");
    free(text);
}

struct heard {
    char text[4096];
    int n_lines, n_rows;
};

static void hear(void *arg, const char *line, size_t n, int is_row)
{
    struct heard *h = arg;

    assert_int_equal(n, strlen(line));
    assert_null(strchr(line, '\n'));
    assert_true(strlen(h->text) + n + 2 < sizeof h->text);
    strcat(strcat(h->text, line), "\n");
    h->n_lines++;
    h->n_rows += is_row;
}

/* A listener gets what the file gets; rows go only to those that ask for them. */
static void test_listeners(void **state)
{
    struct events *e = open_events("l.jsonl");
    struct heard all = {0}, lines = {0};
    const struct session_event row = {
        .kind = EVENT_ROW, .row = {20, 2, -1, 0.125, NAN, 512} /* -1 is a loss, not NOT_MEASURED */
    };
    char *text, *rest = all.text;

    (void)state;
    events_add(e, &cases[0].ev); /* nobody listens yet */
    events_listen(e, hear, &lines, 0);
    events_add(e, &row);
    events_listen(e, hear, &all, 1);
    events_add(e, &row);
    events_add(e, &(struct session_event){.kind = EVENT_PROGRESS});
    events_add(e, &cases[1].ev);
    events_free(e);
    assert_int_equal(lines.n_lines, 1);
    assert_int_equal(lines.n_rows, 0);
    assert_int_equal(all.n_lines, 2);
    assert_int_equal(all.n_rows, 1);
    check_line(strsep(&rest, "\n"), "row",
               "step=20;epoch=2;loss=-1.0;learning_rate=0.125;grad_norm=null;"
               "samples_per_second=512.0");
    check_line(strsep(&rest, "\n"), cases[1].name, cases[1].fields);
    text = read_text("l.jsonl");
    assert_string_equal(strchr(text, '\n') + 1, lines.text); /* no row is in the file */
    free(text);
}

/* A limit on the file's size acts like a full disk: a line that does not fit is taken back, and a
 * warning tells of it once there is room. */
static void test_full(void **state)
{
    struct rlimit old, tight = {.rlim_cur = 180};
    struct events *e = open_events("f.jsonl");
    char *text, *rest;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    for (int i = 0; i < 5; i++)
        events_add(e, &cases[0].ev);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(events_lost(e), 4);
    events_add(e, &cases[1].ev); /* there is room again */
    events_free(e);
    rest = text = read_text("f.jsonl");
    check_line(strsep(&rest, "\n"), cases[0].name, cases[0].fields);
    check_line(strsep(&rest, "\n"), "warning",
               "rank=null;step=null;"
               "message=\"4 lines are missing here: for 0 s the disk took none\"");
    check_line(strsep(&rest, "\n"), cases[1].name, cases[1].fields);
    assert_string_equal(rest, "");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fields, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_listeners, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_full, folder_setup, folder_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
