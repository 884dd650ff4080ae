/* Whole trainings on the simulated GPU are compared with the same trainings on the CPU: losses,
 * validation, replicas, checkpoints.
 *
 * Device memory is closed to the host all the while, and work is done only when the host waits or
 * asks for it.  So an engine that follows a device pointer dies, and one that puts a host's value
 * into a recording, or takes queued work for done, gives other numbers. */
#include "../test.h"

#include <math.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "backend/cuda/cuda.h"
#include "backend/plugin.h"
#include "base/alloc.h"
#include "base/util.h"
#include "jobs.h"
#include "ranks.h"
#include "sim.h"
#include "strategy/local_sgd.h"
#include "train/trainer_impl.h"

static struct plugin_choices chosen; /* the trainer's last choices */

static void configure(struct backend *b, const struct plugin_choices *c)
{
    chosen = *c;
    cuda_configure(b, c);
}

static const struct plugin sim = {
    .abi = PLUGIN_ABI, .version = DPTRAIN_VERSION, .open = cuda_open, .configure = configure};

/* Each epoch's last step has a smaller batch.  With two epochs every kind of step is run, recorded
 * and launched. */
static void test_equals_cpu(void **state)
{
    static const struct {
        const char *what, *job;
        double tolerance;
    } rows[] = {
        {"lenet",
         "model: {arch: lenet}\n" DATA "train: {global_batch: 32, seed: 3}\n"
         "optimizer: {lr: 0.1}\n",
         1e-4},
        {"adamw", ADAMW "train: {global_batch: 31}\n", 1e-4},
        {"mlp",
         MLP "train: {global_batch: 31, clip_norm: 0.5, label_smoothing: 0.1}\n"
             "schedule: {name: cosine, warmup_steps: 5}\n",
         1e-4},
        {"class weights",
         MLP "train: {global_batch: 31, label_smoothing: 0.1, ignore_index: 4, "
             "class_weights: [2, 1, 0.5, 0, 1, 0.3, 1, 0.25, 1, 1.7]}\n",
         1e-4},
        {"accumulate 3", MLP "train: {global_batch: 33, accumulate: 3}\n", 1e-4},
        {"accumulate 9",
         "model: {arch: mlp, hidden: [20]}\n" DATA "train: {global_batch: 33, accumulate: 9}\n",
         1e-4},
        {"zero 1", MLP "train: {global_batch: 31, clip_norm: 0.5}\nstrategy: {zero: 1}\n", 1e-4},
        {"zero 2", MLP "train: {global_batch: 33, accumulate: 3}\nstrategy: {zero: 2}\n", 1e-4},
        {"zero 3", MLP "train: {global_batch: 33, accumulate: 3}\nstrategy: {zero: 3}\n", 1e-4},
        {"zero 3, frozen", ADAMW "train: {global_batch: 33, accumulate: 3}\nstrategy: {zero: 3}\n",
         1e-4},
        {"zero 3, recompute",
         "model: {arch: layers, layers: [flatten, linear: {units: 20}, residual: [linear: {units: "
         "20}, tanh], residual: [dropout: {p: 0.25}, linear: {units: 20}, tanh], linear: {units: "
         "10}]}\n" DATA "train: {global_batch: 31, recompute: blocks}\nstrategy: {zero: 3}\n"
         "optimizer: {lr: 0.1, momentum: 0.9}\n",
         1e-4},
        {"offload", ADAMW "train: {global_batch: 31}\nstrategy: {offload: optimizer}\n", 1e-4},
        {"offload of all",
         MLP "train: {global_batch: 33, accumulate: 3}\nstrategy: {zero: 3, offload: all}\n", 1e-4},
        {"qadam",
         "model: {arch: mlp, hidden: [20, 12]}\n" DATA "train: {global_batch: 31}\n"
         "optimizer: {name: adam, lr: 0.002}\nstrategy: {name: qadam, warmup_steps: 3}\n",
         1e-4},
        {"local_sgd",
         PLAIN "train: {global_batch: 31, accumulate: 2}\n"
               "strategy: {name: local_sgd, every: 2, start: 1, outer: nesterov}\n",
         1e-4},
        {"async", PLAIN "train: {global_batch: 31}\nstrategy: {name: async, interval: 0}\n", 1e-4},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct run_plan plan = {.job = rows[i].job, .n_ranks = 1, .n_epochs = 2};
        struct run_result cpu, gpu;

        run_job_ok(&plan, &cpu);
        plan.plugin = &sim;
        for (int keep = 0; keep < 2; keep++) {
            plan.keep_bytes = keep ? KEEP_ALL : 0;
            run_job_ok(&plan, &gpu);
            assert_same(rows[i].what, &cpu, &gpu, rows[i].tolerance);
            /* The ring has the collectives of a recording as often as it was launched. */
            assert_int_equal(gpu.ring[0].head.n_handed, cpu.ring[0].head.n_handed);
            assert_int_equal(gpu.ring[0].head.n_ended, cpu.ring[0].head.n_ended);
            assert_int_equal(sim_open_things(), 0);
        }
    }
}

struct watch {
    int64_t from, to; /* the watched steps */
    uint64_t allocs, waits, heap, launches;
    int64_t tapes;
    enum feed_kind kind;
};

static void watch_step(void *arg, struct trainer *t, int64_t step)
{
    struct watch *w = arg;

    w->kind = feed_kind(t->step.feed);
    if (step == w->from) {
        w->allocs = sim_allocs();
        w->waits = sim_waits();
        w->tapes = tapes_launches(t->step.tapes);
    }
    if (step != w->to)
        return;
    assert_int_equal(sim_allocs(), w->allocs);
    assert_int_equal(sim_waits(), w->waits);
    assert_int_equal(tapes_launches(t->step.tapes) - w->tapes, w->to - w->from);
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* The file's bytes, and a zero; for free().  *n_bytes: how many, without the zero. */
static char *read_file(const char *dir, const char *name, size_t *n_bytes)
{
    char *path = xasprintf("%s/%s", dir, name), *text;
    FILE *f = fopen(path, "rb");
    long n;

    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    n = ftell(f);
    assert_true(n > 0);
    rewind(f);
    text = xcalloc((size_t)n + 1, 1);
    assert_int_equal(fread(text, 1, (size_t)n, f), n);
    fclose(f);
    free(path);
    *n_bytes = (size_t)n;
    return text;
}

#define STEADY_DATA "data: {format: digits, samples: 224, validation_samples: 4}\n"

enum { STEADY_STEPS = 56, STEADY_BATCH = 4, STEADY_CONTEXT = 6 };

/* A folder with tokens for an epoch of that many steps. */
static void write_tokens(char *dir)
{
    uint16_t tokens[STEADY_STEPS * STEADY_BATCH * STEADY_CONTEXT + 1];
    char path[64];

    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++)
        tokens[i] = (uint16_t)(i * i % 11);
    snprintf(path, sizeof path, "%s/train.bin", dir);
    write_file(path, tokens, sizeof tokens);
    snprintf(path, sizeof path, "%s/val.bin", dir);
    write_file(path, tokens, (STEADY_CONTEXT + 1) * sizeof *tokens);
}

static void assert_steady(const char *job)
{
    for (int keep = 0; keep < 2; keep++) {
        struct watch w = {.from = 3, .to = 53};
        struct run_plan plan = {.job = job,
                                .n_ranks = 1,
                                .n_epochs = 1,
                                .plugin = &sim,
                                .keep_bytes = keep ? KEEP_ALL : 0,
                                .on_step = watch_step,
                                .arg = &w};
        struct run_result r;

        run_job_ok(&plan, &r);
        assert_int_equal(r.n_steps, STEADY_STEPS);
        assert_int_equal(w.kind, keep ? FEED_RESIDENT : FEED_STREAM);
        for (int64_t i = 4; i <= 53; i++)
            assert_int_equal(r.allocs[i] - r.allocs[3], r.reports[i] - r.reports[3]);
    }
}

/* 50 steps make only launches, copies and polls, for both kinds of feed: the memory is the same
 * after step 3 and after step 53. */
static void test_steady(void **state)
{
    static const char *const models[] = {
        "model: {arch: mlp, hidden: [16]}\n" STEADY_DATA,
        "model: {arch: vit, patch: 14, width: 8, depth: 1, heads: 2, dropout: 0.1}\n" STEADY_DATA,
        "model: {arch: layers, layers: [conv: {channels: 4, kernel: 3, stride: 4}, batch_norm, "
        "relu, residual: [conv: {channels: 4, kernel: 3, padding: 1}, batch_norm], "
        "global_avg_pool, flatten, linear: {units: 10}]}\n" STEADY_DATA,
        "model: {arch: gpt, layers: 1, heads: 2, width: 8, context: 6, vocab: 11, dropout: 0.1}\n"
        "data: {format: tokens, path: DIR, train: train.bin, validation: val.bin}\n",
    };
    char dir[] = "/tmp/dptrain-sim-XXXXXX";

    (void)state;
    write_tokens(dir);
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        const char *at = strstr(models[i], "DIR");
        char job[512];

        snprintf(job, sizeof job, "%.*s%s%strain: {global_batch: %d, epochs: 1}\n",
                 at ? (int)(at - models[i]) : (int)strlen(models[i]), models[i], at ? dir : "",
                 at ? at + 3 : "", STEADY_BATCH);
        assert_steady(job);
    }
    assert_int_equal(remove_tree(dir), 0);
}

static void note_bytes(void *arg, struct trainer *t, int64_t step)
{
    size_t *n = arg;

    (void)step;
    n[0] = sim_device_bytes();
    n[1] = sizeof(float) * (size_t)t->layout->n_trained;
}

/* Offloaded slots take no memory of the device.  Adam keeps 8 bytes for each parameter.  With one
 * rank its shard is the whole. */
static void test_offload(void **state)
{
    static const struct {
        int zero;
        const char *offload;
        size_t n_slots; /* of 4 bytes for each parameter, that are not on the device */
    } rows[] = {{0, "optimizer", 2}, {2, "optimizer", 2}, {3, "optimizer", 2}, {3, "all", 3}};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        size_t n[2], all[2];

        for (int offloads = 0; offloads < 2; offloads++) {
            char job[512];
            struct run_plan plan = {.job = job,
                                    .n_ranks = 1,
                                    .n_epochs = 1,
                                    .plugin = &sim,
                                    .on_step = note_bytes,
                                    .arg = offloads ? n : all};
            struct run_result r;

            snprintf(job, sizeof job,
                     "model: {arch: mlp, hidden: [200]}\n" DATA
                     "optimizer: {name: adam}\ntrain: {global_batch: 32}\n"
                     "strategy: {zero: %d, offload: %s}\n",
                     rows[i].zero, offloads ? rows[i].offload : "none");
            run_job_ok(&plan, &r);
        }
        assert_int_equal(all[0] - n[0], rows[i].n_slots * ((n[1] + page - 1) / page * page));
    }
}

/* A run that is stopped and resumed on the GPU ends with the same bits as a whole run. */
static void test_resume(void **state)
{
    static const char job[] = MLP "train: {global_batch: 31, epochs: 2}\n";
    char dir[] = "/tmp/dptrain-sim-XXXXXX";
    struct run_result whole, part, rest;
    struct run_plan plan = {.job = job, .n_ranks = 1, .n_epochs = 2, .plugin = &sim};

    (void)state;
    assert_non_null(mkdtemp(dir));
    run_job_ok(&plan, &whole);
    plan.run_dir = dir;
    plan.stop_at = 1;
    run_job_ok(&plan, &part);
    assert_int_equal(part.epoch[0].epoch.end, EPOCH_STOPPED);
    plan.stop_at = 0;
    plan.resume = 1;
    run_job_ok(&plan, &rest);
    assert_true(hash_equal(rest.replica[0], whole.replica[0]));
    assert_true(rest.validation_loss == whole.validation_loss);
    assert_int_equal(remove_tree(dir), 0);
}

/* Local steps with outer momentum begin in the middle of the run, where another strategy has left a
 * checkpoint: their x0 is taken from the parameters there, in a step with a recording of its own.
 */
static void test_resume_under_another_strategy(void **state)
{
    static const char before[] = PLAIN "train: {global_batch: 31}\n",
                      after[] = PLAIN "train: {global_batch: 31}\n"
                                      "strategy: {name: local_sgd, every: 2, outer: nesterov}\n";
    struct run_result r[2]; /* on the CPU, on the GPU */

    (void)state;
    for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
        char dir[] = "/tmp/dptrain-sim-XXXXXX";
        struct run_plan plan = {.job = before,
                                .n_ranks = 1,
                                .n_epochs = 1,
                                .plugin = on_gpu ? &sim : NULL,
                                .run_dir = dir};

        assert_non_null(mkdtemp(dir));
        run_job_ok(&plan, &r[on_gpu]);
        plan.job = after;
        plan.resume = 1;
        plan.n_epochs = 2;
        run_job_ok(&plan, &r[on_gpu]);
        assert_non_null(strstr(r[on_gpu].warning, "begun as in a new run: parameters of the last "
                                                  "exchange, outer momentum"));
        assert_int_equal(remove_tree(dir), 0);
    }
    assert_same("resumed", &r[0], &r[1], 1e-4);
}

/* A run is resumed after step `stop_at`, in the middle of an epoch.  The search for the loss scale
 * goes on where it was, and so do the running statistics and the momentum.  Working copies are not
 * saved, and are made anew. */
static void test_resume_half(void **state)
{
    static const char *const jobs[] = {
        MLP "precision: bfloat16\ntrain: {global_batch: 31, epochs: 2}\n",
        MLP "precision: float16\ntrain: {global_batch: 8, epochs: 2}\n"
            "loss_scale: {initial: 16777216, hysteresis: 2, window: 3}\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
        for (int64_t stop_at = 1; stop_at <= 2; stop_at++) {
            char dir[] = "/tmp/dptrain-sim-XXXXXX";
            struct run_result whole, part, rest;
            struct run_plan plan = {.job = jobs[i],
                                    .n_ranks = 1,
                                    .n_epochs = 2,
                                    .plugin = &sim,
                                    .keep_bytes = KEEP_ALL};

            assert_non_null(mkdtemp(dir));
            run_job_ok(&plan, &whole);
            plan.run_dir = dir;
            plan.stop_at = stop_at;
            plan.n_epochs = 1;
            run_job_ok(&plan, &part);
            assert_int_equal(part.epoch[0].epoch.end, EPOCH_STOPPED);
            assert_int_equal(part.step[0], stop_at + 1);
            plan.stop_at = 0;
            plan.resume = 1;
            plan.n_epochs = 2;
            run_job_ok(&plan, &rest);
            assert_true(hash_equal(rest.replica[0], whole.replica[0]));
            assert_true(rest.epoch[1].epoch.loss_scale == whole.epoch[1].epoch.loss_scale);
            assert_true(rest.validation_loss == whole.validation_loss);
            for (int64_t s = stop_at + 1; s < whole.n_steps; s++)
                assert_true(rest.step_loss[s - stop_at - 1] == whole.step_loss[s]);
            assert_int_equal(remove_tree(dir), 0);
        }
}

/* A step that is not finite ends the epoch with a note that names the layer, as on the CPU.  With
 * on_nonfinite: skip the step is skipped, and training goes on. */
static void test_nonfinite(void **state)
{
    static const char stops[] = "model: {arch: mlp, hidden: [16, 16]}\n" DATA
                                "train: {global_batch: 16}\noptimizer: {lr: 1.0e+6}\n";
    static const char skips[] =
        "model: {arch: mlp, hidden: [16, 16]}\n" DATA
        "train: {global_batch: 16, accumulate: 2, on_nonfinite: skip}\noptimizer: {lr: 1.0e+6}\n";
    struct run_plan plan = {.job = stops, .n_ranks = 1, .n_epochs = 1, .plugin = &sim};
    struct run_result r;

    (void)state;
    run_job_ok(&plan, &r);
    assert_int_equal(r.epoch[0].epoch.end, EPOCH_NONFINITE);
    if (!strstr(r.note, "fc"))
        fail_msg("the note names no layer: %s", r.note);
    plan.job = skips;
    run_job_ok(&plan, &r);
    assert_int_equal(r.epoch[0].epoch.end, EPOCH_WHOLE);
    assert_true(r.epoch[0].epoch.n_skipped >= 1);
    assert_non_null(strstr(r.warning, "was not applied"));
}

/* In half precision the losses differ from those of float32 only by rounding.  This is also true
 * with micro-batches (without batch norm, whose statistics of a few samples amplify rounding) and
 * with gradients reduced in bfloat16. */
static void test_half_precision(void **state)
{
    static const struct {
        const char *what, *model, *train, *half;
        double tolerance;
    } rows[] = {
        {"bfloat16", HALF, "global_batch: 31", "grad_dtype: bfloat16}\nprecision: bfloat16", 3e-2},
        {"bfloat16, accumulate 3", PLAIN, "global_batch: 33, accumulate: 3",
         "grad_dtype: bfloat16}\nprecision: bfloat16", 1e-2},
        {"float16", PLAIN, "global_batch: 31",
         "tf32: false}\nprecision: float16\nloss_scale: {initial: 1024}", 1e-2},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char job[2][512];
        struct run_plan plan = {.job = job[0], .n_ranks = 1, .n_epochs = 2};
        struct run_result cpu, gpu;

        snprintf(job[0], sizeof job[0], "%strain: {%s}\n", rows[i].model, rows[i].train);
        snprintf(job[1], sizeof job[1], "%strain: {%s, %s\n", rows[i].model, rows[i].train,
                 rows[i].half);
        run_job_ok(&plan, &cpu);
        plan.job = job[1];
        plan.plugin = &sim;
        run_job_ok(&plan, &gpu);
        assert_int_equal(gpu.epoch[0].epoch.n_skipped + gpu.epoch[1].epoch.n_skipped, 0);
        assert_same(rows[i].what, &cpu, &gpu, rows[i].tolerance);
        assert_int_equal(chosen.allow_tf32, 0);
        assert_int_equal(sim_open_things(), 0);
    }
}

/* A step that overflows is skipped and counted, whatever train.on_nonfinite says.  At the smallest
 * scale an overflow ends the epoch, since the scale is not its cause any more. */
static void test_loss_scale(void **state)
{
    static const char searches[] = HALF "precision: float16\ntrain: {global_batch: 16}\n"
                                        "loss_scale: {initial: 16777216, hysteresis: 1}\n";
    static const char stuck[] = HALF "precision: float16\ntrain: {global_batch: 16}\n"
                                     "loss_scale: {initial: 16777216, min: 16777216, "
                                     "hysteresis: 1}\n";
    struct run_plan plan = {.job = searches, .n_ranks = 1, .n_epochs = 2, .plugin = &sim};
    struct run_result r;

    (void)state;
    run_job_ok(&plan, &r);
    assert_int_equal(r.epoch[0].epoch.end, EPOCH_WHOLE);
    assert_true(r.epoch[0].epoch.n_skipped >= 1);
    assert_int_equal(r.epoch[1].epoch.n_skipped, 0);
    assert_true(r.epoch[1].epoch.loss_scale ==
                16777216.0 / (double)(1 << r.epoch[0].epoch.n_skipped));
    if (!strstr(r.warning, "a gradient overflowed in float16; the loss scale is "))
        fail_msg("warned: %s", r.warning);
    plan.job = stuck;
    plan.n_epochs = 1;
    run_job_ok(&plan, &r);
    assert_int_equal(r.epoch[0].epoch.end, EPOCH_NONFINITE);
    if (!strstr(r.note, "the loss scale is at loss_scale.min, 1.67772e+07"))
        fail_msg("noted: %s", r.note);
}

/* ---- updates by the rank's own gradients ---- */

enum { BAD_STEP = 2 };

static int spoil(struct strategy *s, int bucket, struct err *err)
{
    const float bad = INFINITY;

    if (bucket == 0 && exchange_step(s->at.exchange) == BAD_STEP &&
        backend_copy_in(s->at.backend, s->at.grad, &bad, sizeof bad, err) < 0)
        return err->code;
    return strategy_local_sgd.bucket_ready(s, bucket, err);
}

static int new_spoilt(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    static const struct local_sgd_options options = {.every = 2};
    struct strategy_site own = *site;

    own.options = &options;
    return strategy_local_sgd.new(&own, out, err);
}

/* A gradient that is not finite is told in the control vector, by which all ranks leave the step
 * out; so the note knows of whose gradient it is. */
static void test_own_bad_gradient(void **state)
{
    struct strategy_ops s = strategy_local_sgd;
    struct run_plan plan = {.job = PLAIN "train: {global_batch: 16, record: false}\n",
                            .n_ranks = 1,
                            .n_epochs = 1,
                            .plugin = &sim,
                            .strategy = &s};
    struct run_result r;

    (void)state;
    s.bucket_ready = spoil;
    s.new = new_spoilt;
    run_job_ok(&plan, &r);
    assert_int_equal(r.epoch[0].epoch.end, EPOCH_NONFINITE);
    assert_int_equal(r.step[0], BAD_STEP);
    if (!strstr(r.note, "a gradient of this rank is not finite, though its losses are"))
        fail_msg("noted: %s", r.note);
}

/* A step whose tensors are listed is not launched from a recording: the list is that of a run that
 * records nothing, and the run goes on as without a list. */
static void test_listed(void **state)
{
    enum { RECORDED, QUEUED, WHOLE, N };
    static const char *const jobs[N] = {
        [RECORDED] = ADAMW "train: {global_batch: 31}\nreport: {operators: 7, tensor: 3}\n",
        [QUEUED] = ADAMW "train: {global_batch: 31, record: false}\n"
                         "report: {operators: 7, tensor: 3}\n",
        [WHOLE] = ADAMW "train: {global_batch: 31}\n",
    };
    static const char *const files[] = {"operators-00000007.jsonl", "tensor-00000007.safetensors"};
    struct run_result r[N];
    char dir[N][32], *text[N][ARRAY_LEN(files)] = {{NULL}};
    size_t n_bytes[N][ARRAY_LEN(files)] = {{0}};

    (void)state;
    for (int i = 0; i < N; i++) {
        struct run_plan plan = {
            .job = jobs[i], .n_ranks = 1, .n_epochs = 2, .plugin = &sim, .run_dir = dir[i]};

        snprintf(dir[i], sizeof dir[i], "/tmp/dptrain-sim-XXXXXX");
        assert_non_null(mkdtemp(dir[i]));
        run_job_ok(&plan, &r[i]);
        for (size_t k = 0; k < ARRAY_LEN(files) && i < WHOLE; k++)
            text[i][k] = read_file(dir[i], files[k], &n_bytes[i][k]);
        assert_true(hash_equal(r[i].replica[0], r[RECORDED].replica[0]));
        assert_int_equal(remove_tree(dir[i]), 0);
    }
    for (size_t k = 0; k < ARRAY_LEN(files); k++) {
        assert_int_equal(n_bytes[RECORDED][k], n_bytes[QUEUED][k]);
        assert_memory_equal(text[RECORDED][k], text[QUEUED][k], n_bytes[QUEUED][k]);
    }
    assert_non_null(strstr(text[RECORDED][0], "\"kind\":\"linear_grad_w\""));
    assert_non_null(strstr(text[RECORDED][0], "fc1.weight.grad"));
    for (int i = 0; i < WHOLE; i++)
        for (size_t k = 0; k < ARRAY_LEN(files); k++)
            free(text[i][k]);
}

static void test_choices(void **state)
{
    static const char defaults[] = HALF "train: {global_batch: 31, max_steps: 1}\n";
    static const char others[] = HALF "train: {global_batch: 31, max_steps: 1, tf32: true, "
                                      "autotune: true, max_workspace: 3, plan_cache: false}\n";
    struct run_plan plan = {.job = defaults, .n_ranks = 1, .n_epochs = 1, .plugin = &sim};
    struct run_result r;

    (void)state;
    run_job_ok(&plan, &r);
    assert_false(chosen.allow_tf32 || chosen.autotune);
    assert_true(chosen.keep_plans && chosen.max_workspace == 256 << 20);
    assert_non_null(chosen.warn);
    plan.job = others;
    run_job_ok(&plan, &r);
    assert_true(chosen.allow_tf32 && chosen.autotune);
    assert_true(!chosen.keep_plans && chosen.max_workspace == 3 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_cpu),
        cmocka_unit_test(test_steady),
        cmocka_unit_test(test_offload),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_under_another_strategy),
        cmocka_unit_test(test_resume_half),
        cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_half_precision),
        cmocka_unit_test(test_loss_scale),
        cmocka_unit_test(test_own_bad_gradient),
        cmocka_unit_test(test_listed),
        cmocka_unit_test(test_choices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
