/* Training on the simulated GPU while two steps are under way: whatever becomes of the first one,
 * and whichever call of the runtime fails, the state is that of a training step by step. */
#include "../test.h"

#include "../remove_tree.h"
#include "backend/cuda/cuda.h"
#include "backend/plugin.h"
#include "jobs.h"
#include "ranks.h"
#include "sim.h"
#include "train/trainer_impl.h"

static const struct plugin sim = {
    .abi = PLUGIN_ABI, .version = DPTRAIN_VERSION, .open = cuda_open, .configure = cuda_configure};

/* n_ahead counts the steps whose successor was queued before their result was read. */
struct depth {
    int n_steps, n_ahead;
};

static void count_ahead(void *arg, struct trainer *t, int64_t step)
{
    struct depth *d = arg;

    (void)step;
    d->n_steps++;
    d->n_ahead += t->step.flight[0].after != 0;
}

static void run_counted(const char *job, int64_t n_epochs, const char *dir, struct depth *d,
                        struct run_result *r)
{
    struct run_plan plan = {.job = job,
                            .n_ranks = 1,
                            .n_epochs = n_epochs,
                            .run_dir = dir,
                            .plugin = &sim,
                            .keep_bytes = KEEP_ALL,
                            .on_step = count_ahead,
                            .arg = d};

    *d = (struct depth){0};
    run_job_ok(&plan, r);
    assert_int_equal(sim_open_things(), 0);
}

#define ALONE "checkpoint: {every_steps: 1}\n" /* so each result is read before the next step */

/* Queueing a second step changes no bit, whatever becomes of the step before: it may be applied,
 * overflow or not be finite. */
static void test_two_under_way(void **state)
{
    static const struct {
        const char *what, *job;
        int n_skipped; /* at least so many */
    } rows[] = {
        {"mlp", MLP "train: {global_batch: 31, clip_norm: 0.5}\n", 0},
        {"adamw overflows",
         ADAMW "precision: float16\ntrain: {global_batch: 16}\n"
               "loss_scale: {initial: 16777216, hysteresis: 2}\n",
         2},
        {"overflows",
         HALF "precision: float16\ntrain: {global_batch: 16}\n"
              "loss_scale: {initial: 16777216, hysteresis: 2}\n",
         2},
        {"not finite",
         "model: {arch: mlp, hidden: [16, 16], dropout: 0.2}\n" DATA
         "train: {global_batch: 16, on_nonfinite: skip}\noptimizer: {lr: 1.0e+6, momentum: 0.9}\n",
         1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char job[512], dir[] = "/tmp/dptrain-sim-XXXXXX";
        struct run_result two, one;
        struct depth d;
        int64_t n_skipped;

        run_counted(rows[i].job, 2, NULL, &d, &two);
        n_skipped = two.epoch[0].epoch.n_skipped + two.epoch[1].epoch.n_skipped;
        assert_in_range(n_skipped, rows[i].n_skipped, 100);
        /* all steps but the first of each epoch and those after a step that was not applied */
        assert_in_range(d.n_ahead, d.n_steps - 2 - n_skipped, d.n_steps - 2);
        assert_non_null(mkdtemp(dir));
        snprintf(job, sizeof job, "%s" ALONE, rows[i].job);
        run_counted(job, 2, dir, &d, &one);
        assert_int_equal(d.n_ahead, 0);
        assert_same(rows[i].what, &one, &two, 0);
        assert_int_equal(one.epoch[1].epoch.n_skipped, two.epoch[1].epoch.n_skipped);
        assert_true(hash_equal(one.replica[0], two.replica[0]));
        assert_int_equal(remove_tree(dir), 0);
    }
}

/* With micro-batches only one step is under way. */
static void test_one_under_way(void **state)
{
    struct run_result r;
    struct depth d;

    (void)state;
    run_counted(MLP "train: {global_batch: 30, accumulate: 2}\n", 1, NULL, &d, &r);
    assert_int_equal(d.n_ahead, 0);
}

/* Only one step is under way, too, if the strategy does not promise that all ranks queue the same
 * collectives. */
static void test_one_under_way_without_promise(void **state)
{
    struct strategy_ops less = strategy_allreduce;
    struct depth d = {0};
    struct run_plan plan = {.job = PLAIN "train: {global_batch: 30}\n",
                            .n_ranks = 1,
                            .n_epochs = 1,
                            .plugin = &sim,
                            .keep_bytes = KEEP_ALL,
                            .strategy = &less,
                            .on_step = count_ahead,
                            .arg = &d};
    struct run_result r;

    (void)state;
    run_job_ok(&plan, &r);
    assert_true(d.n_ahead > 0);
    less.promises.collectives_are_equal = 0;
    d = (struct depth){0};
    run_job_ok(&plan, &r);
    assert_int_equal(d.n_ahead, 0);
}

/* A checkpoint is asked for while two steps are under way.  The device counts the second one as
 * void, since the state after the first must be looked at; it is queued anew. */
static void test_a_checkpoint_is_asked_for(void **state)
{
    struct run_result want, got;
    struct run_plan plan = {.job = PLAIN "train: {global_batch: 30}\n",
                            .n_ranks = 1,
                            .n_epochs = 1,
                            .plugin = &sim,
                            .keep_bytes = KEEP_ALL};

    (void)state;
    run_job_ok(&plan, &want);
    plan.save_at = 2;
    run_job_ok(&plan, &got);
    assert_int_equal(got.step[0], want.step[0]);
    assert_true(got.step[0] > plan.save_at + 1);
    assert_true(hash_equal(got.replica[0], want.replica[0]));
}

/* A call of the runtime that fails during training. */
struct blow {
    uint64_t call; /* its number, counted from the start of step FIRST_HIT; 0: no call fails */
    struct hash128 held[MOST_STEPS]; /* with call 0: the state's hash at each step's start */
};

enum { FIRST_HIT = 3, EACH = 26, STRIDE = 13, LAST_HIT = 100 };

static void strike(void *arg, struct trainer *t, int64_t step)
{
    struct blow *b = arg;

    if (b->call == 0)
        b->held[step] = run_state_hash(t);
    else if (step == FIRST_HIT)
        sim_fail_at(b->call);
}

static void sweep_calls(const struct run_plan *plan, struct blow *b, const struct run_result *whole)
{
    struct run_result r;
    int n_failed = 0;

    for (b->call = 1; b->call <= LAST_HIT; b->call += b->call < EACH ? 1 : STRIDE) {
        run_job(plan, &r);
        sim_fail_at(0);
        assert_int_equal(sim_open_things(), 0);
        n_failed += r.rc[0] < 0;
        if (!hash_equal(r.rc[0] < 0 ? r.held[0] : r.replica[0],
                        r.rc[0] < 0 ? b->held[r.step[0]] : whole->replica[0]))
            fail_msg("call %d: what is held at step %d is not what it should be (%s)", (int)b->call,
                     (int)r.step[0], r.rc[0] < 0 ? r.err[0].msg : "no error");
    }
    assert_in_range(n_failed, 4, LAST_HIT);
}

/* A call fails while two steps are under way, of which the device has done none, one or both.
 * Afterwards the state is, bit for bit, that of the start of the step where training says it
 * stands.  Or training goes on, if nothing was lost. */
static void test_breaks_off(void **state)
{
    static const char job[] = "model: {arch: mlp, hidden: [4]}\n"
                              "data: {format: digits, samples: 24, validation_samples: 4}\n"
                              "train: {global_batch: 4}\noptimizer: {lr: 0.1, momentum: 0.9}\n";
    static struct blow b;
    char alone[512], dir[] = "/tmp/dptrain-sim-XXXXXX";
    struct run_plan plan = {.job = alone,
                            .n_ranks = 1,
                            .n_epochs = 1,
                            .run_dir = dir,
                            .plugin = &sim,
                            .keep_bytes = KEEP_ALL,
                            .on_step = strike,
                            .arg = &b};
    struct run_result whole;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(alone, sizeof alone, "%s" ALONE, job);
    run_job_ok(&plan, &whole);
    b.held[whole.n_steps] = whole.replica[0]; /* for calls of the last hash and of validation */
    assert_int_equal(remove_tree(dir), 0);
    plan.job = job;
    plan.run_dir = NULL;
    for (int keep = 0; keep < 2; keep++) {
        plan.keep_bytes = keep ? KEEP_ALL : 0;
        sweep_calls(&plan, &b, &whole);
    }
}

/* Opens a backend and spoils a recording, as the loss of a rank does while a step is recorded. */
static int open_after_lost_recording(int device, struct backend **out, struct err *err)
{
    struct err lost;

    if (cuda_open(device, out, err) < 0)
        return err->code;
    assert_int_equal(backend_record_begin(*out, err), 0);
    assert_int_equal(backend_sync(*out, &lost), ERR_DEVICE);
    assert_int_equal(backend_record_end(*out, NULL, &lost), ERR_DEVICE);
    assert_non_null(strstr(lost.msg, "record a step"));
    return 0;
}

/* Leaves an error in the runtime that a call without a result could not report. */
static void leave_an_error(void)
{
    struct backend *b;
    struct err err;
    void *p;

    assert_int_equal(cuda_open(0, &b, &err), 0);
    assert_int_equal(backend_alloc(b, 1, "a byte", &p, &err), 0);
    sim_fail_at(2); /* cudaFree, after the wait */
    backend_free(b, p);
    sim_fail_at(0);
    backend_close(b);
}

/* After a spoilt recording the backend trains as a new one does, from its first launch on. */
static void test_trains_after_lost_recording(void **state)
{
    static const char job[] = MLP "train: {global_batch: 31}\n";
    struct plugin again = sim;
    struct run_plan plan = {.job = job, .n_ranks = 1, .n_epochs = 1, .plugin = &sim};
    struct run_result fresh, r;

    (void)state;
    leave_an_error();
    run_job_ok(&plan, &fresh);
    again.open = open_after_lost_recording;
    plan.plugin = &again;
    run_job_ok(&plan, &r);
    assert_same("after a lost recording", &fresh, &r, 0);
    assert_true(hash_equal(r.replica[0], fresh.replica[0]));
    assert_int_equal(sim_open_things(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_under_way),
        cmocka_unit_test(test_one_under_way),
        cmocka_unit_test(test_one_under_way_without_promise),
        cmocka_unit_test(test_a_checkpoint_is_asked_for),
        cmocka_unit_test(test_breaks_off),
        cmocka_unit_test(test_trains_after_lost_recording),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
