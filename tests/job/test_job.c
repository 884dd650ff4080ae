/* Jobs from texts: defaults, the keys of job.yaml, and the forms that YAML has for one value. */
#include "../test.h"

#include "base/util.h"
#include "data/digits.h"
#include "data/mnist.h"
#include "model/mlp.h"
#include "optim/sgd.h"
#include "small.h"

/* Of the rows with a key, the first takes no list (mnist's), and the chosen format's does; in YAML
 * and in JSON, whose texts are quoted. */
static void test_list_of_texts(void **state)
{
    static const char *const texts[] = {
        "model: {arch: lenet}\ndata: {format: cifar10, path: /x, train: [a.bin, b]}\n",
        "{\"model\": {\"arch\": \"lenet\"}, \"data\": {\"format\": \"cifar10\", "
        "\"path\": \"/x\", \"train\": [\"a.bin\", \"b\"]}}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct job *j = parse(texts[i]);
        struct buf out = {0};

        job_write(j, &out);
        assert_non_null(strstr(buf_cstr(&out), "  train: \"a.bin, b\"\n"));
        buf_fini(&out);
        job_free(j);
    }
}

static void note_key(void *arg, const char *key, const char *value)
{
    const char *dot = strrchr(key, '.');

    buf_printf(arg, "%s: %s\n", dot ? dot + 1 : key, value);
}

/* Each key of job.yaml, in its order, with its value. */
static void test_each_key(void **state)
{
    struct job *j = parse("model: {arch: mlp}\ndata: {format: digits}\n");
    struct buf yaml = {0}, keys = {0}, want = {0};
    char *rest, *line;

    (void)state;
    job_write(j, &yaml);
    rest = (char *)buf_cstr(&yaml);
    while ((line = strsep(&rest, "\n"))) {
        line += strspn(line, " ");
        if (*line && line[strlen(line) - 1] != ':') /* no head of a section */
            buf_printf(&want, "%s\n", line);
    }
    job_each(j, note_key, &keys);
    assert_string_equal(buf_cstr(&keys), buf_cstr(&want));
    buf_fini(&yaml);
    buf_fini(&keys);
    buf_fini(&want);
    job_free(j);
}

/* The options of the entries that are not the job's choice by default. */
static void test_defaults_of_entries(void **state)
{
    struct job *j = parse("model: {arch: mlp}\ndata: {format: digits}\n"
                          "schedule: {name: step, every_steps: 1}\n");
    const struct digits_options *digits = j->data.options;
    const struct schedule_step_options *step = j->schedule.options;
    const struct mlp_options *mlp = j->model.options;

    (void)state;
    assert_true(mlp->hidden.n == 1 && mlp->hidden.v[0] == 128);
    assert_int_equal(mlp->activation, ACT_RELU);
    assert_true(mlp->dropout == 0 && !mlp->batch_norm);
    assert_int_equal(digits->samples, 20000);
    assert_int_equal(digits->validation_samples, 4000);
    assert_true(step->gamma == 0.1 && step->every_epochs == 0);
    job_free(j);
}

/* Each optimizer has a default rate that suits it. */
static void test_default_rates(void **state)
{
    static const struct {
        const char *name;
        double lr;
    } want[] = {{"sgd", 0.1},   {"adam", 1e-3}, {"adamw", 1e-3},
                {"lion", 1e-4}, {"lamb", 1e-3}, {"muon", 0.02}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        struct job *j = small_job("optimizer: {name: %s}\n", want[i].name);

        assert_true(optimizer_lr(&j->optimizer) == want[i].lr);
        job_free(j);
    }
}

static void test_defaults(void **state)
{
    struct job *j = parse(SMALL);
    const struct mnist_options *mnist = j->data.options;
    const struct sgd_options *sgd = j->optimizer.options;

    (void)state;
    assert_string_equal(j->name, "job");
    assert_int_equal(j->model.init.name, INIT_PYTORCH);
    assert_true(j->model.sync_batch_norm);
    assert_int_equal(j->model.loss, LOSS_CROSS_ENTROPY);
    assert_string_equal(mnist->train, "train");
    assert_null(mnist->validation);
    assert_int_equal(j->train.global_batch, 256);
    assert_int_equal(j->train.epochs, 10);
    assert_int_equal(j->train.seed, 1);
    assert_int_equal(j->train.accumulate, 1);
    assert_int_equal(j->train.max_steps, 0);
    assert_int_equal(j->train.validate_every, 1);
    assert_true(j->train.clip_norm == 0 && j->model.label_smoothing == 0 && !j->train.drop_last);
    assert_int_equal(j->train.on_nonfinite, NONFINITE_STOP);
    assert_true(sgd->lr == 0.1 && sgd->momentum == 0 && !sgd->nesterov);
    assert_false(j->optimizer.scale_lr_by_ranks);
    assert_ptr_equal(j->schedule.kind, &schedule_constant);
    assert_ptr_equal(j->strategy.kind, &strategy_allreduce);
    assert_int_equal(j->precision, PRECISION_FLOAT32);
    assert_int_equal(j->checkpoint.every_epochs, 1);
    assert_int_equal(j->checkpoint.every_steps, 0);
    assert_int_equal(j->checkpoint.keep, 3);
    assert_int_equal(j->cluster.min_ranks, 0);
    assert_int_equal(j->cluster.spares, 0);
    assert_int_equal(j->cluster.replace_timeout_ms, 60000);
    assert_int_equal(j->cluster.heartbeat_timeout_ms, 5000);
    assert_int_equal(j->cluster.deadlines.gather_ms, 600000);
    assert_int_equal(j->cluster.deadlines.ready_ms, 120000);
    assert_int_equal(j->cluster.deadlines.prepare_ms, 300000);
    assert_int_equal(j->cluster.deadlines.form_ms, 60000);
    assert_int_equal(j->cluster.deadlines.step_ms, 60000);
    assert_int_equal(j->cluster.deadlines.validate_ms, 600000);
    assert_int_equal(j->cluster.deadlines.checkpoint_ms, 120000);
    job_free(j);
}

/* The same job in YAML's styles and in JSON. */
static void test_styles(void **state)
{
    static const char *const texts[] = {
        "name: x\nmodel: {arch: mlp, hidden: [3, 4]}\ndata: {format: digits}\ntrain: {epochs: 2}\n",
        "{\"name\": \"x\", \"model\": {\"arch\": \"mlp\", \"hidden\": [3, 4]},\n"
        " \"data\": {\"format\": \"digits\"}, \"train\": {\"epochs\": 2, \"drop_last\": false}}\n",
        "%YAML 1.1\n---\ntrain:\n  epochs: &two 2 # two\nmodel:\n  arch: mlp\n  hidden:\n"
        "  - 3\n  - 4\ndata:\n  format: 'digits'\nname: >-\n  x\ncheckpoint:\n...\n",
    };
    struct buf first = {0}, other = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct job *job = parse(texts[i]);

        buf_clear(&other);
        job_write(job, i ? &other : &first);
        if (i)
            assert_string_equal(buf_cstr(&first), buf_cstr(&other));
        job_free(job);
    }
    buf_fini(&first);
    buf_fini(&other);
}

static void test_byte_order_mark_and_crlf(void **state)
{
    struct job *job = parse("\xef\xbb\xbfname: x\r\nmodel: {arch: lenet}\r\n"
                            "data: {format: digits}\r\n");

    (void)state;
    assert_string_equal(job->name, "x");
    job_free(job);
}

static void test_aliases_repeat_a_value(void **state)
{
    struct job *job = parse("model: {arch: mlp, hidden: &n [7, 8]}\ndata: {format: digits}\n"
                            "train: {epochs: &e 4, validate_every: *e}\n");

    (void)state;
    assert_int_equal(job->train.validate_every, 4);
    job_free(job);
}

/* Texts that would cost a naive reader all its time or memory are refused at once. */
static void test_bombs(void **state)
{
    static const char *const starts[] = {"[",       "- ",   "? ", "{a: ", "a: {",
                                         "&a [*a,", "!!x ", "' ", "x\n "};
    static const char laughs[] = "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n"
                                 "c: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nmodel: {arch: mlp, hidden: *c}";
    char *text = malloc(JOB_MAX_BYTES + 1);
    struct job *job = NULL;
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(starts); i++) {
        for (size_t at = 0, n = strlen(starts[i]); at <= JOB_MAX_BYTES; at++)
            text[at] = starts[i][at % n];
        assert_int_equal(job_parse(text, JOB_MAX_BYTES, "f", "/", &job, &err), ERR_CONFIG);
        assert_int_equal(job_parse(text, JOB_MAX_BYTES + 1, "f", "/", &job, &err), ERR_CONFIG);
        assert_string_equal(err.msg, "f: 262145 bytes, want at most 262144");
    }
    assert_int_equal(job_parse(laughs, strlen(laughs), "f", "/", &job, &err), ERR_CONFIG);
    assert_int_equal(job_parse("model: &m {init: *m}", 20, "f", "/", &job, &err), ERR_CONFIG);
    assert_string_equal(err.msg,
                        "f:1:12: unknown key \"model.init.init\"; the closest known key is "
                        "model.init");
    assert_int_equal(job_parse(NULL, 0, "f", "/", &job, &err), ERR_CONFIG);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_of_texts),
        cmocka_unit_test(test_each_key),
        cmocka_unit_test(test_defaults_of_entries),
        cmocka_unit_test(test_default_rates),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_styles),
        cmocka_unit_test(test_byte_order_mark_and_crlf),
        cmocka_unit_test(test_aliases_repeat_a_value),
        cmocka_unit_test(test_bombs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
