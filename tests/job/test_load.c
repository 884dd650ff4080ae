/* Jobs as the daemons make them: from files, with overrides and paths, the demo, and from a
 * job.yaml of an old version. */
#include "../test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/util.h"
#include "data/digits.h"
#include "data/mnist.h"
#include "model/mlp.h"
#include "optim/sgd.h"
#include "small.h"

static char root[64]; /* the test's folder, without links */
static const char *old_job;

static char *in_root(const char *name)
{
    static char path[256];

    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static char *write_job(const char *name, const char *text, size_t len)
{
    FILE *f = fopen(in_root(name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    fclose(f);
    return in_root(name);
}

static struct job *load(const char *path, const char *const *sets, size_t n_sets)
{
    struct job *job = NULL;
    struct err err;

    if (job_load(path, sets, n_sets, &job, &err) < 0)
        fail_msg("%s", err.msg);
    return job;
}

/* --set takes what the file takes, and a text that is no list as it stands. */
static void test_set_of_a_list_of_texts(void **state)
{
    static const struct {
        const char *set, *written;
    } cases[] = {
        {"data.train=[a.bin, \"b\"]", "  train: \"a.bin, b\"\n"},
        {"data.train=['a']", "  train: \"a\"\n"},
        {"data.train=a.bin,b", "  train: \"a.bin,b\"\n"},
        {"data.train=[ab]*", "  train: \"[ab]*\"\n"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const sets[] = {"data.format=cifar10", "data.path=/x", cases[i].set};
        struct job *j = load(NULL, sets, ARRAY_LEN(sets));
        struct buf out = {0};

        job_write(j, &out);
        if (!strstr(buf_cstr(&out), cases[i].written))
            fail_msg("%s gives\n%s", cases[i].set, buf_cstr(&out));
        buf_fini(&out);
        job_free(j);
    }
}

static const char *data_path(const struct job *job)
{
    return ((const struct mnist_options *)job->data.options)->path;
}

static void test_paths_are_relative_to_the_file(void **state)
{
    static const char text[] = "model: {arch: lenet, init: {name: file, path: w.safetensors}}\n"
                               "data: {format: mnist, path: ../data//./mnist/}\n";
    const char *set = "data.path=here";
    char want[128], path[128], cwd[128];
    struct job *job;

    (void)state;
    assert_int_equal(mkdir(in_root("jobs"), 0700), 0);
    job = load(write_job("jobs/a.yaml", text, strlen(text)), NULL, 0);
    snprintf(want, sizeof want, "%s/jobs/../data/mnist", root);
    assert_string_equal(data_path(job), want);
    snprintf(want, sizeof want, "%s/jobs/w.safetensors", root);
    assert_string_equal(job->model.init.path, want);
    job_free(job);

    /* the same through a relative name and a link; an override is relative to where we are */
    assert_int_equal(symlink("jobs", in_root("link")), 0);
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(in_root("jobs")), 0);
    job = load("../link/a.yaml", NULL, 0);
    assert_string_equal(job->model.init.path, want);
    job_free(job);
    job = load("a.yaml", &set, 1);
    snprintf(path, sizeof path, "%s/jobs/here", root);
    assert_string_equal(data_path(job), path);
    job_free(job);
    assert_int_equal(chdir(cwd), 0);
}

static void test_unreadable_files(void **state)
{
    char *big = calloc(1, JOB_MAX_BYTES + 1), want[512];
    struct job *job = NULL;
    struct err err;

    (void)state;
    assert_int_equal(job_load(in_root("none.yaml"), NULL, 0, &job, &err), ERR_IO);
    snprintf(want, sizeof want, "job file %s: No such file or directory", in_root("none.yaml"));
    assert_string_equal(err.msg, want);
    assert_int_equal(job_load(root, NULL, 0, &job, &err), ERR_CONFIG);
    snprintf(want, sizeof want, "job file %s is a folder, want a regular file", root);
    assert_string_equal(err.msg, want);
    assert_int_equal(mkfifo(in_root("pipe"), 0666), 0); /* opening it would wait for ever */
    assert_int_equal(job_load(in_root("pipe"), NULL, 0, &job, &err), ERR_CONFIG);
    snprintf(want, sizeof want, "job file %s is a pipe or device, want a regular file",
             in_root("pipe"));
    assert_string_equal(err.msg, want);
    write_job("big.yaml", big, JOB_MAX_BYTES + 1);
    assert_int_equal(job_load(in_root("big.yaml"), NULL, 0, &job, &err), ERR_CONFIG);
    snprintf(want, sizeof want, "%s: want at most 262144 bytes", in_root("big.yaml"));
    assert_string_equal(err.msg, want);
    assert_null(job);
    free(big);
}

static void test_message_names_the_file(void **state)
{
    static const char text[] = SMALL "train:\n  epocs: 1\n";
    char want[512];
    struct job *job = NULL;
    struct err err;

    (void)state;
    write_job("bad.yaml", text, strlen(text));
    assert_int_equal(job_load(in_root("bad.yaml"), NULL, 0, &job, &err), ERR_CONFIG);
    snprintf(want, sizeof want,
             "%s:4:3: unknown key \"train.epocs\"; the closest known key is train.epochs",
             in_root("bad.yaml"));
    assert_string_equal(err.msg, want);
}

static void test_overrides(void **state)
{
    static const char text[] = SMALL "schedule: {name: step, every_epochs: 2, gamma: 0.3}\n"
                                     "train: {epochs: 5}\n";
    static const char *const sets[] = {"train.epochs=7", "train.epochs=8", "name=n",
                                       "schedule.name=cosine", "data.format=digits"};
    static const char *const clash[] = {"schedule.name=cosine", "schedule.gamma=0.2"};
    struct job *job = load(write_job("o.yaml", text, strlen(text)), sets, ARRAY_LEN(sets));
    struct err err;

    (void)state;
    assert_int_equal(job->train.epochs, 8);
    assert_string_equal(job->name, "n");
    assert_ptr_equal(job->schedule.kind, &schedule_cosine); /* the file's gamma went with step */
    assert_ptr_equal(job->data.kind, &format_digits);
    job_free(job);
    job = NULL;
    assert_int_equal(job_load(in_root("o.yaml"), clash, 2, &job, &err), ERR_CONFIG);
    assert_string_equal(err.msg, "--set: schedule.gamma applies only if schedule.name is step, "
                                 "multistep or exponential; it is cosine");
}

/* strategy.outer_lr belongs to outer nesterov, which belongs to local_sgd. */
static void test_override_drops_what_depends_on_it(void **state)
{
    static const char text[] = SMALL "strategy: {name: local_sgd, every: 4, outer: nesterov, "
                                     "outer_lr: 0.5}\n";
    static const char *const sets[] = {"strategy.name=allreduce"};
    struct job *job = load(write_job("o.yaml", text, strlen(text)), NULL, 0);
    struct buf section = {0};

    (void)state;
    job_write_section(job, "strategy", &section);
    assert_string_equal(buf_cstr(&section),
                        "{name: local_sgd, every: 4, outer: nesterov, outer_lr: 0.5}");
    job_free(job);
    job = load(in_root("o.yaml"), sets, 1);
    buf_clear(&section);
    job_write_section(job, "strategy", &section);
    assert_string_equal(buf_cstr(&section), "{name: allreduce}");
    job_free(job);
    buf_fini(&section);
}

/* The same for a key that is not an entry's: it has its default again. */
static void test_override_of_a_word(void **state)
{
    static const char text[] = SMALL "precision: float16\nloss_scale: {initial: 4096}\n";
    static const char *const sets[] = {"precision=float32"};
    struct job *job = load(write_job("o.yaml", text, strlen(text)), sets, 1);

    (void)state;
    assert_int_equal(job->precision, PRECISION_FLOAT32);
    assert_true(job->loss_scale.initial == 65536);
    job_free(job);
}

static void test_override_with_nothing(void **state)
{
    static const char text[] = SMALL "train: {}\n",
                      *none[] = {"data.validation=t10k", "data.validation=", "data.path="};
    struct job *job = load(write_job("o.yaml", text, strlen(text)), none, 2);
    struct err err;

    (void)state;
    assert_null(((const struct mnist_options *)job->data.options)->validation);
    job_free(job);
    job = NULL;
    assert_int_equal(job_load(in_root("o.yaml"), none, 3, &job, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "o.yaml: data.path is missing, want a path"));
}

/* null is none where the chosen format may do without, whatever other formats say. */
static void test_nothing_by_null(void **state)
{
    static const char text[] =
        "model: {arch: mlp}\n"
        "data: {format: npy, path: /d, train: [x.npy, y.npy], validation: null}",
                      other[] = "model: {arch: mlp}\n"
                                "data: {format: digits, validation: null, train: ~}\n",
                      *const by_set[] = {"data.format=cifar10", "data.validation="};
    struct job *job = load(write_job("n.yaml", text, strlen(text)), NULL, 0);
    struct err err;

    (void)state;
    assert_null(*(const char *const *)job_field(job, "data.validation"));
    job_free(job);
    job_free(load(write_job("d.yaml", other, strlen(other)), NULL, 0));
    job = NULL;
    assert_int_equal(job_load(in_root("n.yaml"), by_set, 2, &job, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "--set: data.validation is empty, want text, or a list of"));
}

static void test_demo(void **state)
{
    struct job *job = load(NULL, NULL, 0);

    (void)state;
    assert_string_equal(job->name, "demo");
    assert_ptr_equal(job->model.kind, &arch_lenet);
    assert_ptr_equal(job->data.kind, &format_digits);
    job_free(job);
}

/* Another optimizer beside the demo has its own default rate. */
static void test_demo_rate(void **state)
{
    static const char *const adamw[] = {"optimizer.name=adamw"};
    struct job *job = load(NULL, NULL, 0);

    (void)state;
    assert_true(optimizer_lr(&job->optimizer) == 0.1);
    job_free(job);
    job = load(NULL, adamw, 1);
    assert_true(optimizer_lr(&job->optimizer) == 1e-3);
    job_free(job);
}

static void test_use_data(void **state)
{
    struct job *job = parse(SMALL), *demo = load(NULL, NULL, 0);
    struct err err;
    char cwd[256], want[512];

    (void)state;
    assert_int_equal(job_use_data(job, "/other//place", &err), 0);
    assert_string_equal(data_path(job), "/other/place");
    assert_int_equal(job_use_data(job, "near", &err), 0);
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(want, sizeof want, "%s/near", cwd);
    assert_string_equal(data_path(job), want);
    assert_int_equal(job_use_data(job, "", &err), ERR_CONFIG);
    assert_string_equal(err.msg, "--data: data.path is empty, want a path");
    assert_int_equal(job_use_data(demo, "/other", &err), 0);
    job_free(job);
    job_free(demo);
}

/* The labels are 0 and -1, which the job ignores. */
static void test_measure(void **state)
{
    static const char x[] =
        "\x93NUMPY\x01\0\x3a\0{'descr': '|u1', 'fortran_order': False, 'shape': "
        "(2, 1)}\n\2\4",
                      y[] =
                          "\x93NUMPY\x01\0\x38\0{'descr': '|i1', 'fortran_order': False, 'shape': "
                          "(2,)}\n\0\xff";
    char path[80];
    const char *const sets[] = {"model.arch=mlp", "data.format=npy", path,
                                "data.normalize.source=auto", "train.ignore_index=-1"};
    const struct option_reals *mean, *std;
    struct job *job;
    struct err err;

    (void)state;
    write_job("x.npy", x, sizeof x - 1);
    write_job("y.npy", y, sizeof y - 1);
    snprintf(path, sizeof path, "data.path=%s", root);
    job = load(NULL, sets, ARRAY_LEN(sets));
    if (job_measure(job, 0, &err) < 0)
        fail_msg("%s", err.msg);
    mean = job_field(job, "data.normalize.mean");
    std = job_field(job, "data.normalize.std");
    assert_true(mean->n == 1 && mean->v[0] == 3 && std->n == 1 && std->v[0] == 1);
    job_free(job);
}

static void test_old_job_is_readable(void **state)
{
    struct job *j = load(old_job, NULL, 0);
    const struct mnist_options *mnist = j->data.options;
    const struct mlp_options *mlp = j->model.options;
    const struct sgd_options *sgd = j->optimizer.options;
    const struct schedule_step_options *step = j->schedule.options;

    (void)state;
    assert_ptr_equal(j->data.kind, &format_mnist);
    assert_ptr_equal(j->optimizer.kind, &optimizer_sgd);
    assert_string_equal(j->name, "old");
    assert_ptr_equal(j->model.kind, &arch_mlp);
    assert_int_equal(j->model.init.name, INIT_NORMAL);
    assert_true(j->model.init.std == 0.02 && mlp->dropout == 0.25);
    assert_int_equal(mlp->hidden.n, 2);
    assert_int_equal(mlp->hidden.v[1], 32);
    assert_int_equal(mlp->activation, ACT_TANH);
    assert_true(mlp->batch_norm && !j->model.sync_batch_norm);
    assert_string_equal(mnist->path, "/data/mnist");
    assert_string_equal(mnist->validation, "t10k");
    assert_int_equal(j->train.global_batch, 100);
    assert_int_equal(j->train.seed, 42);
    assert_true(j->train.clip_norm == 1.5 && j->model.label_smoothing == 0.1);
    assert_int_equal(j->train.on_nonfinite, NONFINITE_SKIP);
    assert_true(sgd->lr == 0.05 && sgd->weight_decay == 0.0005);
    assert_true(sgd->nesterov && j->optimizer.scale_lr_by_ranks);
    assert_ptr_equal(j->schedule.kind, &schedule_step);
    assert_int_equal(step->every_epochs, 3);
    assert_true(step->gamma == 0.5 && j->schedule.warmup_start == 0.1);
    assert_int_equal(j->checkpoint.keep, 5);
    assert_int_equal(j->cluster.heartbeat_timeout_ms, 2500);
    assert_int_equal(j->cluster.deadlines.checkpoint_ms, 7000);
    job_free(j);
}

static int make_root(void **state)
{
    char name[] = "/tmp/dptrain-job-XXXXXX", *real;

    (void)state;
    if (!mkdtemp(name) || !(real = realpath(name, NULL)))
        return -1;
    snprintf(root, sizeof root, "%s", real);
    free(real);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    return remove_tree(root);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_of_a_list_of_texts),
        cmocka_unit_test(test_paths_are_relative_to_the_file),
        cmocka_unit_test(test_unreadable_files),
        cmocka_unit_test(test_message_names_the_file),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_override_drops_what_depends_on_it),
        cmocka_unit_test(test_override_of_a_word),
        cmocka_unit_test(test_override_with_nothing),
        cmocka_unit_test(test_nothing_by_null),
        cmocka_unit_test(test_demo),
        cmocka_unit_test(test_demo_rate),
        cmocka_unit_test(test_use_data),
        cmocka_unit_test(test_measure),
        cmocka_unit_test(test_old_job_is_readable),
    };

    if (argc != 2) {
        print_error("usage: test_load job-0.1.yaml\n");
        return 2;
    }
    old_job = argv[1];
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
