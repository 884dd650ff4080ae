/* Jobs that are read, and what they are checked against: the number of ranks, the device, the
 * secret, and the job of the run that is resumed. */
#include "../test.h"

#include "base/util.h"
#include "job/course.h"
#include "small.h"

static void test_supported(void **state)
{
    static const struct {
        const char *more;
        int64_t n_ranks;
        int rc;
        const char *want;
        const char *backend; /* NULL: "cpu" */
    } cases[] = {
        {"", 2, 0, ""},
        {"", 4096, 0, "", "cuda"},
        {"cluster: {max_ranks: 65536}", 2, 0, "", "cuda"},
        {"cluster: {max_ranks: 65537}", 2, ERR_UNSUPPORTED,
         "65537 ranks (cluster.max_ranks): this build joins at most 65536", "cuda"},
        {"cluster: {max_ranks: 131072, spares: 1}", 2, ERR_CONFIG,
         "cluster.spares is 1 beside 131072 ranks, want at most 131072 followers in all", "cuda"},
        {"cluster: {min_ranks: 2, max_ranks: 2}", 2, 0, ""},
        {"precision: bfloat16", 2, 0, ""},
        {"cluster: {min_ranks: 1, spares: 1}", 2, 0, ""},
        {"cluster: {max_ranks: 4096}", 2, 0, ""},
        {"cluster: {max_ranks: 4097}", 2, ERR_UNSUPPORTED,
         "4097 ranks on CPUs (cluster.max_ranks): this build joins at most 4096"},
        {"", 5000, ERR_UNSUPPORTED, "5000 ranks on CPUs: this build joins at most 4096"},
        {"cluster: {max_ranks: 8, spares: 131065}", 2, ERR_CONFIG,
         "cluster.spares is 131065 beside 8 ranks, want at most 131072 followers in all"},
        {"cluster: {min_ranks: 3}", 2, ERR_CONFIG,
         "cluster.min_ranks is 3, want at most --nranks, 2"},
        {"strategy: {shards: 4}", 4, 0, ""},
        {"strategy: {shards: 4}", 5, ERR_CONFIG,
         "strategy.shards is 4, want at least 5, the number of ranks"},
        {"strategy: {shards: 4}\ncluster: {max_ranks: 6}", 3, ERR_CONFIG,
         "strategy.shards is 4, want at least 6, the number of ranks (cluster.max_ranks)"},
        {"strategy: {shards: 4}", 2, 0, "", "cuda"},
        {"strategy: {shards: 4}\ntrain: {autotune: true}", 2, ERR_CONFIG,
         "strategy.shards is 4, but with train.autotune each GPU may choose other algorithms, "
         "whose bits differ; want train.autotune: false",
         "cuda"},
        {"strategy: {shards: 4}\ntrain: {autotune: true}", 2, 0, ""},
        {"cluster: {rebalance: true}", 2, 0, "", "cuda"},
        {"strategy: {name: adasum}", 2, 0, "", "cuda"},
        {"strategy: {name: low_precision_decentralized}", 2, 0, "", "cuda"},
        {"strategy: {name: async}", 2, 0, "", "cuda"},
        {"cluster: {rebalance: true}\nstrategy: {compress: float16}", 2, 0, ""},
        {"cluster: {rebalance: true}\nstrategy: {zero: 2}", 2, 0, ""},
        {"train: {bucket_bytes: auto}", 2, 0, ""},
        {"train: {bucket_bytes: \"auto\"}\nstrategy: {compress: bfloat16}", 2, 0, ""},
        {"train: {bucket_bytes: auto}", 2, 0, "", "cuda"},
        {"cluster: {max_ranks: 1}", 2, ERR_CONFIG,
         "cluster.max_ranks is 1, want at least --nranks, 2"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct job *job = small_job("%s", cases[i].more);
        struct err err = {0};

        assert_int_equal(job_check_supported(job, cases[i].n_ranks,
                                             cases[i].backend ? cases[i].backend : "cpu", &err),
                         cases[i].rc);
        assert_string_equal(err.msg, cases[i].want);
        job_free(job);
    }
}

static void test_encrypt(void **state)
{
    static const struct {
        const char *word, *backend;
        int has_secret, rc;
        const char *says;
    } cases[] = {
        {"auto", "cpu", 0, 0, ""},
        {"auto", "cuda", 1, 0, ""},
        {"off", "cpu", 0, 0, ""},
        {"off", "cuda", 0, 0, ""},
        {"on", "cpu", 1, 0, ""},
        {"on", "cpu", 0, ERR_CONFIG, "needs a secret: give --secret-file"},
        {"on", "cuda", 1, ERR_CONFIG, "nothing can encrypt NCCL's connections"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct job *job = small_job("cluster: {encrypt: %s}", cases[i].word);
        struct err err = {0};

        assert_int_equal(job_check_encrypt(job, cases[i].backend, cases[i].has_secret, &err),
                         cases[i].rc);
        assert_non_null(strstr(err.msg, cases[i].says));
        job_free(job);
    }
}

/* float16 is for GPUs; TF32 is a permission, which a CPU does not use. */
static void test_backends(void **state)
{
    static const struct {
        const char *more, *on_cpu;
    } cases[] = {
        {"train: {tf32: true}", ""},
        {"precision: bfloat16", ""},
        {"precision: float16",
         "precision float16: CPUs compute in float32 or bfloat16; want one of "
         "these, or a GPU (--device cuda)"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct job *job = small_job("%s", cases[i].more);
        struct err err = {0};

        assert_int_equal(job_check_backend(job, "cuda", &err), 0);
        assert_int_equal(job_check_backend(job, "cpu", &err),
                         cases[i].on_cpu[0] ? ERR_UNSUPPORTED : 0);
        assert_string_equal(err.msg, cases[i].on_cpu);
        job_free(job);
    }
}

static void note_doubt(void *arg, const char *text)
{
    struct buf *all = arg;

    buf_printf(all, "%s\n", text);
}

#define ZERO(key, usual)                                                                          \
    key " is 0: the update of a weight whose gradient has always been 0, as that of a pixel "     \
        "which is black in all samples, is 0 / 0, which is not a number; want more than 0, such " \
        "as " usual "\n"

/* QAdam with a warm-up of less than 1 / (1 - beta2) updates, a rate that never gets to its peak,
 * and a division by 0: the user is told what follows. */
static void test_doubts(void **state)
{
    static const char means[] =
        "strategy.warmup_steps is 100, and the second of optimizer.betas is 0.999: exp_avg_sq "
        "stays at 10 % of the size that it would reach, and Adam's bias correction lets updates "
        "grow up to 3.2 times after the warm-up; if the loss then rises, want "
        "strategy.warmup_steps of 1000 or more, or a smaller optimizer.lr\n";
    static const struct {
        const char *keys;
        int64_t n_steps;
        const char *want;
    } cases[] = {
        {"strategy: {name: qadam}\noptimizer: {name: adam}", 5000, means},
        {"strategy: {name: qadam}\noptimizer: {name: adamw}", 5000, means},
        {"strategy: {name: qadam}\noptimizer: {name: adam}", 100, ""}, /* it is all warm-up */
        {"strategy: {name: qadam, warmup_steps: 1000}\noptimizer: {name: adam}", 5000, ""},
        {"strategy: {name: qadam}\noptimizer: {name: adam, betas: [0.9, 0.99]}", 5000, ""},
        {"optimizer: {name: adam}", 5000, ""},
        {"schedule: {name: linear, total_steps: 200}", 201,
         "schedule.total_steps is 200, but the job has 201 steps: from step 201 on the learning "
         "rate is 0, and nothing is trained; want a larger schedule.total_steps, schedule.min_lr "
         "above 0, or fewer "
         "steps\n"},
        {"schedule: {name: linear, total_steps: 200}", 200, ""},
        {"schedule: {name: wsd, total_steps: 200, min_lr: 0.01}", 300, ""},
        {"schedule: {total_steps: 200}", 300, ""},
        {"schedule: {warmup_steps: 200}", 201, ""},
        {"schedule: {warmup_steps: 200}", 200,
         "schedule.warmup_steps is 200, but the job has 200 steps: its learning rate never reaches "
         "optimizer.lr\n"},
        {"optimizer: {name: adam, eps: 0}", 5000, ZERO("optimizer.eps", "1e-8")},
        {"optimizer: {name: lamb, eps: 0.0}", 5000, ZERO("optimizer.eps", "1e-6")},
        {"optimizer: {name: muon, adamw: {eps: 0}}", 5000, ZERO("optimizer.adamw.eps", "1e-10")},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct job *j = small_job("%s", cases[i].keys);
        struct buf told = {0};

        job_doubt(j, cases[i].n_steps, note_doubt, &told);
        assert_string_equal(buf_cstr(&told), cases[i].want);
        buf_fini(&told);
        job_free(j);
    }
}

/* A run of 10 steps an epoch is to go on with other limits. */
static void test_course(void **state)
{
    static const struct {
        const char *then, *now;
        int64_t step;
        const char *want;
    } cases[] = {
        {"train: {epochs: 4}\nschedule: {name: wsd}", "train: {epochs: 8}\nschedule: {name: wsd}",
         40,
         "schedule wsd is now laid out over 80 steps, not 40: step 41 has the rate 0.1, where it "
         "would have had 0, and step 40 had 0.0125; --set schedule.total_steps=40 keeps the former "
         "course"},
        {"train: {epochs: 4}\nschedule: {name: linear}",
         "train: {epochs: 4, max_steps: 20}\nschedule: {name: linear}", 10,
         "schedule linear is now laid out over 20 steps, not 40: step 11 has the rate 0.05, where "
         "it would have had 0.075, and step 10 had 0.0775; --set schedule.total_steps=40 keeps the "
         "former course"},
        /* The rates differ only later, or did so already before. */
        {"train: {epochs: 4}\nschedule: {name: wsd}", "train: {epochs: 8}\nschedule: {name: wsd}",
         10,
         "schedule wsd is now laid out over 80 steps, not 40: step 34 has the rate 0.1, where it "
         "would have had 0.0875; --set schedule.total_steps=40 keeps the former course"},
        {"train: {epochs: 4}\nschedule: {name: cosine, total_steps: 20}",
         "train: {epochs: 4}\nschedule: {name: cosine}", 20,
         "schedule cosine is now laid out over 40 steps, not 20: step 21 has the rate 0.05, where "
         "it would have had 0, and step 20 had 0.000615583; --set schedule.total_steps=20 keeps "
         "the former course"},
        {"train: {epochs: 4}\nschedule: {name: onecycle}",
         "train: {epochs: 8}\nschedule: {name: onecycle, total_steps: 40}", 40, ""},
        {"train: {epochs: 4}\nschedule: {name: cosine}",
         "train: {epochs: 9, max_steps: 40}\nschedule: {name: cosine}", 20, ""},
        {"train: {epochs: 4}\nschedule: {name: cosine}",
         "train: {epochs: 2}\nschedule: {name: cosine}", 20, ""}, /* nothing is left */
        {"train: {epochs: 4}\nschedule: {name: step, every_epochs: 2}",
         "train: {epochs: 8}\nschedule: {name: step, every_epochs: 2}", 20, ""},
        {"train: {epochs: 4}\nschedule: {name: plateau}",
         "train: {epochs: 8}\nschedule: {name: plateau}", 20, ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct job *then = small_job("%s", cases[i].then), *now = small_job("%s", cases[i].now);
        const struct course at = {cases[i].step, 10, 1};
        struct buf text = {0};

        assert_int_equal(course_compare(then, now, &at, &text), cases[i].want[0] != '\0');
        assert_string_equal(buf_cstr(&text), cases[i].want);
        buf_fini(&text);
        job_free(then);
        job_free(now);
    }
}

/* Bagua's word has all keys of allreduce, with the same effect. */
static void test_gradient_allreduce(void **state)
{
    static const char *const keys[] = {
        "zero: 1, offload: optimizer, buddy: false",
        "zero: 3",
        "shards: 4, share_threads: 2",
        "compress: powersgd, rank: 2",
        "compress: float16",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        struct job *a = small_job("strategy: {%s}", keys[i]);
        struct job *b = small_job("strategy: {name: gradient_allreduce, %s}", keys[i]);

        assert_ptr_equal(b->strategy.kind, &strategy_gradient_allreduce);
        assert_ptr_equal(strategy_choose(&a->strategy), strategy_choose(&b->strategy));
        assert_int_equal(strategy_shares(&a->strategy).n, strategy_shares(&b->strategy).n);
        assert_int_equal(strategy_shares(&a->strategy).n_threads,
                         strategy_shares(&b->strategy).n_threads);
        job_free(a);
        job_free(b);
    }
}

/* A mapping of the file is the same as its text, which job.yaml has. */
static void test_fields_by_name(void **state)
{
    static const char text[] = "model: {arch: mlp}\n"
                               "data:\n  format: npy\n  path: /d\n  train:\n"
                               "    input ids: a.npy\n    labels: \"y, z.npy\"\n";
    struct job *job = NULL, *again = NULL;
    struct buf out = {0};
    struct err err;

    (void)state;
    assert_int_equal(job_parse(text, strlen(text), "f", "/base", &job, &err), 0);
    assert_string_equal(*(const char *const *)job_field(job, "data.train"),
                        "{input ids: a.npy, labels: \"y, z.npy\"}");
    job_write(job, &out);
    assert_int_equal(job_parse(buf_cstr(&out), out.len, "job.yaml", NULL, &again, &err), 0);
    assert_string_equal(*(const char *const *)job_field(again, "data.train"),
                        *(const char *const *)job_field(job, "data.train"));
    buf_fini(&out);
    job_free(again);
    job_free(job);
}

static void test_resume_message(void **state)
{
    struct job *a = parse(SMALL), *b = small_job("train: {epochs: 99, global_batch: 128}");
    struct err err;

    (void)state;
    assert_int_equal(job_compare_for_resume(a, b, &err), ERR_REFUSED);
    assert_string_equal(err.msg,
                        "train.global_batch was 256 and is now 128; a resumed run may "
                        "only change model.import, model.sync_batch_norm, data.path, data.cache, "
                        "data.class_names, data.workers, train.epochs, "
                        "train.max_steps, train.stop_after, "
                        "train.validate_every, train.on_nonfinite, train.on_spike, "
                        "train.spike_deviations, train.audit, train.replica_check, "
                        "train.grad_dtype, train.bucket_bytes, "
                        "schedule.total_steps, "
                        "strategy.*, checkpoint.*, report.*, cluster.*");
    job_free(a);
    job_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_supported),      cmocka_unit_test(test_encrypt),
        cmocka_unit_test(test_backends),       cmocka_unit_test(test_doubts),
        cmocka_unit_test(test_course),         cmocka_unit_test(test_gradient_allreduce),
        cmocka_unit_test(test_fields_by_name), cmocka_unit_test(test_resume_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
