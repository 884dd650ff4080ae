/* saves: the checkpoints of ranks that train, on a disk whose fsync can be held up or can fail, and
 * what the last one has. */
#include "../test.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "disk.h"
#include "ranks.h"
#include "state/snapshot.h"
#include "train/trainer_impl.h"

static void ignore(void *arg, const char *text) { (void)arg, (void)text; }

static int make_folder(void **state)
{
    char *dir = strdup("/tmp/dptrain-saves-XXXXXX");

    set_disk(0, 0);
    *state = dir;
    return dir && mkdtemp(dir) ? 0 : -1;
}

static int clear_folder(void **state)
{
    const int rc = remove_tree(*state);

    set_disk(0, 0);
    free(*state);
    return rc;
}

/* ---- a slow or full disk ---- */

/* A disk that hangs from the first checkpoint on, for longer than its deadline; it is freed when
 * the 20th step comes. */
static void hold_disk(void *arg, struct trainer *t, int64_t step)
{
    int64_t *since_ns = arg;

    if (step == 1) {
        wait_held();
        *since_ns = clock_mono_ns();
    }
    while (step == 10 && clock_since_s(*since_ns) < 0.1)
        sched_yield();
    if (step == 20)
        set_disk(0, 0);
    if (step > 20 && !t->state->shards) /* all ranks' checkpoints go on after steps */
        saver_finish(t->saver);
}

static int64_t step_on_disk(const char *dir)
{
    struct ckpt *c;
    struct err err;
    int64_t step;

    assert_int_equal(ckpt_load_latest(dir, ignore, NULL, &c, &err), 0);
    step = c->state.step;
    ckpt_close(c);
    return step;
}

/* The checkpoints that these faults name are due while the disk hangs, so they begin later. */
#define SLIPS(follower) "delay:rank0@checkpoint7:1ms,delay:" follower "@checkpoint9:2ms"

static void want_slips(const struct run_result *r)
{
    assert_non_null(strstr(r->injected, "a pause of 0.001 s when a checkpoint begins (step 7)"));
    assert_non_null(strstr(r->injected, "a pause of 0.002 s when a checkpoint begins (step 9)"));
}

static void test_steps_do_not_wait(void **state)
{
    const char *dir = *state;
    static const char job[] = JOB "checkpoint: {every_steps: 1, keep: 100}\n";
    static struct run_result r;
    int64_t since_ns;

    set_disk(1, 0);
    run_job_ok(&(struct run_plan){.job = job,
                                  .n_ranks = 2,
                                  .n_epochs = 1,
                                  .run_dir = dir,
                                  .inject = SLIPS("rank1"),
                                  .on_step = hold_disk,
                                  .arg = &since_ns},
               &r);
    assert_int_equal(r.n_steps, 32);
    want_slips(&r);
    assert_int_equal(r.saved[0], 1);
    assert_true(r.saved[1] == 21 || r.saved[1] == 22);
    for (int i = 2; i < r.n_saved; i++)
        assert_int_equal(r.saved[i], r.saved[i - 1] + 1);
    assert_int_equal(r.saved[r.n_saved - 1], 31); /* the last one was waited for */
    assert_non_null(strstr(r.warning, "the checkpoint of step 1 has been under way for"));
    assert_null(strstr(strstr(r.warning, "of step 1 ") + 1, "of step 1 ")); /* once */
    assert_int_equal(step_on_disk(dir), 32);
}

#define DIVIDED "checkpoint: {every_steps: 1, keep: 100}\nstrategy: {zero: 2}\n"

/* The same where all ranks write. */
static void test_steps_do_not_wait_for_any_rank(void **state)
{
    const char *dir = *state;
    static struct run_result r;
    int64_t since_ns;

    set_disk(1, 0);
    run_job_ok(&(struct run_plan){.job = JOB DIVIDED,
                                  .n_ranks = 3,
                                  .n_epochs = 1,
                                  .run_dir = dir,
                                  .inject = SLIPS("rank2"),
                                  .on_step = hold_disk,
                                  .arg = &since_ns},
               &r);
    assert_int_equal(r.n_steps, 32);
    want_slips(&r);
    assert_int_equal(r.saved[0], 1);
    assert_true(r.n_saved < 2 || r.saved[1] > 20);
    assert_non_null(strstr(r.warning, "the checkpoint of step 1 has been under way for"));
    assert_int_equal(step_on_disk(dir), 32);
}

/* The copies that saver_begin_beside leaves to the saver's thread begin so much later. */
static int copy_delay_ms;

void __real_snapshot_take_rest(struct snapshot *p);
void __wrap_snapshot_take_rest(struct snapshot *p);
void __wrap_snapshot_take_rest(struct snapshot *p)
{
    usleep((unsigned)copy_delay_ms * 1000);
    __real_snapshot_take_rest(p);
}

/* The first parameter as each step finds it.  A checkpoint is written before the next begins. */
static void note_parameter(void *arg, struct trainer *t, int64_t step)
{
    float *found = arg;

    found[step] = *(const float *)state_data(t->state, &slot_parameters);
    if (step % 2 == 1)
        saver_finish(t->saver);
}

/* The next update waits for a copy that is slow. */
static void test_copy_is_of_its_step(void **state)
{
    const char *dir = *state;
    static const char job[] = JOB "checkpoint: {every_steps: 2, keep: 100}\n";
    static struct run_result r;
    float found[33], saved;
    struct ckpt *c;
    struct err err;

    copy_delay_ms = 20;
    run_job_ok(&(struct run_plan){.job = job,
                                  .n_ranks = 2,
                                  .n_epochs = 1,
                                  .run_dir = dir,
                                  .on_step = note_parameter,
                                  .arg = found},
               &r);
    copy_delay_ms = 0;
    assert_true(r.n_saved > 10);
    for (int i = 0; i < r.n_saved; i++) {
        char *path = xasprintf("%s/checkpoints/step-%08lld", dir, (long long)r.saved[i]);

        assert_int_equal(ckpt_load_folder(path, &c, &err), 0);
        assert_int_equal(st_read(c->model, st_at(c->model, 0), 0, &saved, sizeof saved, &err), 0);
        assert_true(saved == found[r.saved[i]]);
        ckpt_close(c);
        free(path);
    }
}

/* The disk is full from the second step on, and has room again once a checkpoint has failed. */
static void fill_disk(void *arg, struct trainer *t, int64_t step)
{
    enum { STEP_MS = 20, LAST = 30 }; /* the checkpoint of step 32 finds room in any case */
    const struct run_result *r = arg;

    (void)t;
    if (step == 2)
        set_disk(0, ENOSPC);
    else if (step > 2 && step < LAST && !*r->unsaved)
        usleep(STEP_MS * 1000);
    else if (step > 2)
        set_disk(0, 0);
}

/* A rank that cannot write costs that checkpoint alone. */
static void test_full_disk_of_all_ranks(void **state)
{
    const char *dir = *state;
    static struct run_result r;

    run_job_ok(&(struct run_plan){.job = JOB DIVIDED,
                                  .n_ranks = 3,
                                  .n_epochs = 1,
                                  .run_dir = dir,
                                  .on_step = fill_disk,
                                  .arg = &r},
               &r);
    assert_int_equal(r.n_steps, 32);
    assert_non_null(strstr(r.unsaved, "No space left on device"));
    assert_int_equal(step_on_disk(dir), 32);
}

/* ---- the last step of a job, inside an epoch ---- */

#define SHORT                                                                                    \
    "model: {arch: mlp, hidden: [8], batch_norm: true}\n"                                        \
    "data: {format: digits, samples: 320, validation_samples: 10}\n"                             \
    "train: {global_batch: 10, max_steps: 20, best: {metric: validation_loss}, average: {name: " \
    "swa, start: 0, every: 1}}\ncheckpoint: {every_steps: 20}\n"

/* The checkpoint has what follows the step: the decision by the validation, and the statistics of
 * averaged weights, which begin at 0. */
static void want_all_of_last_step(const char *dir, const char *job)
{
    static struct run_result r;
    struct ckpt *c = NULL;
    double loop[LOOP_LEN];
    float mean = 0;
    struct err err;

    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 1, .run_dir = dir}, &r);
    assert_int_equal(r.step[0], 20);
    assert_int_equal(ckpt_load_latest(dir, ignore, NULL, &c, &err), 0);
    assert_int_equal(c->state.step, 20);
    assert_int_equal(
        st_read(c->optimizer, st_find(c->optimizer, "loop"), 0, loop, sizeof loop, &err), 0);
    assert_true(loop[LOOP_STEP] == 20 && loop[LOOP_N_BEST] == 1 && loop[LOOP_BEST] == 20);
    assert_int_equal(
        st_read(c->average, st_find(c->average, "bn1.running_mean"), 0, &mean, sizeof mean, &err),
        0);
    assert_true(mean != 0);
    ckpt_close(c);
}

static void test_last_step_inside_an_epoch(void **state) { want_all_of_last_step(*state, SHORT); }

static void test_last_step_of_divided_state(void **state)
{
    want_all_of_last_step(*state, SHORT "strategy: {zero: 2}\n");
}

/* ---- checkpoints to which all ranks may go back ---- */

#define BACK(keep)                                                        \
    "model: {arch: mlp, hidden: [8], batch_norm: true}\n"                 \
    "data: {format: digits, samples: 320, validation_samples: 10}\n"      \
    "train: {global_batch: 10, on_spike: rewind}\noptimizer: {lr: 0.1}\n" \
    "checkpoint: {every_epochs: 0, every_steps: 16, keep: " keep "}\n"

static int is_saved_at(const char *dir, int64_t step)
{
    char *path = xasprintf("%s/checkpoints/step-%08lld", dir, (long long)step);
    const int is = ckpt_is_folder(path);

    free(path);
    return is;
}

/* The run stops at an epoch's end, after which a checkpoint is planned. */
static void test_planned_after_resume(void **state)
{
    const char *dir = *state;
    static struct run_result r;
    struct run_plan plan = {.job = BACK("100"), .n_ranks = 2, .n_epochs = 1, .run_dir = dir};

    run_job_ok(&plan, &r);
    assert_true(is_saved_at(dir, 16) && is_saved_at(dir, 32));
    plan.resume = 1;
    run_job_ok(&plan, &r);
    assert_true(is_saved_at(dir, 33) && is_saved_at(dir, 48) && is_saved_at(dir, 64));
    assert_false(is_saved_at(dir, 34));
}

/* The newest planned one stays beside the newest. */
static void test_planned_is_kept(void **state)
{
    const char *dir = *state;
    static struct run_result r;
    struct run_plan plan = {
        .job = BACK("1"), .n_ranks = 1, .n_epochs = 1, .run_dir = dir, .stop_at = 20};

    run_job_ok(&plan, &r);
    assert_true(is_saved_at(dir, 16) && is_saved_at(dir, r.step[0]));
    assert_in_range(r.step[0], 20, 22);
    plan.stop_at = 0;
    plan.resume = 1;
    run_job_ok(&plan, &r);
    assert_true(is_saved_at(dir, 16) && is_saved_at(dir, 32));
    assert_false(is_saved_at(dir, 20) || is_saved_at(dir, 21) || is_saved_at(dir, 22));
}

#define BEST(keep)                                                                   \
    "model: {arch: mlp, hidden: [8], batch_norm: true}\n"                            \
    "data: {format: digits, samples: 320, validation_samples: 10}\n"                 \
    "train: {global_batch: 10, on_spike: rewind, best: {metric: validation_loss}}\n" \
    "optimizer: {lr: 0.1}\ncheckpoint: {every_epochs: 0, every_steps: 16, keep: " keep "}\n"

/* An epoch's end that is saved because it is train.best's is not planned.  So the checkpoint that
 * is due there by its steps still comes a step later, and that one is kept. */
static void test_planned_after_best(void **state)
{
    const char *dir = *state;
    static struct run_result r;
    struct run_plan plan = {
        .job = BEST("100"), .n_ranks = 2, .n_epochs = 2, .run_dir = dir, .saves_epochs = 1};

    run_job_ok(&plan, &r);
    assert_true(is_saved_at(dir, 16) && is_saved_at(dir, 32) && is_saved_at(dir, 33));
    assert_true(is_saved_at(dir, 48) && is_saved_at(dir, 64));
    assert_false(is_saved_at(dir, 34));
    plan.job = BEST("1");
    plan.resume = 1;
    plan.n_epochs = 1;
    plan.stop_at = 70;
    run_job_ok(&plan, &r);
    assert_true(is_saved_at(dir, 65) && is_saved_at(dir, r.step[0]));
    assert_false(is_saved_at(dir, 33) || is_saved_at(dir, 48));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, make_folder, clear_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_copy_is_of_its_step),
        CASE(test_steps_do_not_wait),
        CASE(test_steps_do_not_wait_for_any_rank),
        CASE(test_full_disk_of_all_ranks),
        CASE(test_last_step_inside_an_epoch),
        CASE(test_last_step_of_divided_state),
        CASE(test_planned_after_resume),
        CASE(test_planned_is_kept),
        CASE(test_planned_after_best),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
