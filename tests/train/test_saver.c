/* saver: checkpoints that are written beside training, on a disk whose fsync can be held up or can
 * fail. */
#include "../test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "disk.h"
#include "ranks.h"
#include "state/snapshot.h"
#include "train/trainer_impl.h"

/* ---- a trainer with its state, and what the saver reports ---- */

struct desk {
    char dir[64];
    const char *job;
    struct trainer *t;
    atomic_int is_canceled, n_asked;
    pthread_mutex_t lock; /* guards what follows */
    int64_t ok[16], bad[16];
    int n_ok, n_bad;
    char error[512];
    int n_wrong, n_mended; /* files that the disk did not give back, those written again */
    int64_t wrong_step;
    char wrong[64];
};

static void take_report(void *arg, struct report *r)
{
    struct desk *k = arg;

    pthread_mutex_lock(&k->lock);
    if (r->kind == REPORT_CHECKPOINT) {
        assert_true(r->checkpoint.is_unasked);
        assert_true(r->checkpoint.seconds > 0);
        assert_true(!r->checkpoint.path != !r->checkpoint.error);
        if (r->checkpoint.path)
            k->ok[k->n_ok++] = r->checkpoint.step;
        else
            k->bad[k->n_bad++] = r->checkpoint.step;
        if (r->checkpoint.error)
            snprintf(k->error, sizeof k->error, "%s", r->checkpoint.error);
    }
    if (r->kind == REPORT_CORRUPTION) {
        assert_int_equal(r->corruption.what, CORRUPTION_CHECKPOINT);
        assert_int_equal(r->corruption.rank, 0);
        assert_false(r->corruption.ends || r->corruption.leaves);
        k->n_wrong++;
        k->n_mended += r->corruption.is_healed;
        k->wrong_step = r->corruption.step;
        snprintf(k->wrong, sizeof k->wrong, "%s", r->corruption.tensor);
    }
    pthread_mutex_unlock(&k->lock);
    report_free(r);
}

static int canceled(void *arg)
{
    struct desk *k = arg;

    atomic_fetch_add(&k->n_asked, 1);
    return atomic_load(&k->is_canceled);
}

static int open_trainer(struct desk *k, struct err *err)
{
    struct trainer_hooks hooks = run_idle_hooks(k);
    struct cmd *c = cmd_new(CMD_OPEN, 0);
    struct report *r = report_new(REPORT_OPENED, 0);
    int rc;

    hooks.report = take_report;
    hooks.canceled = canceled;
    k->t = trainer_new(&(struct trainer_options){.n_threads = 1, .run_dir = k->dir}, &hooks);
    c->open.n_ranks = 1;
    c->open.job = blob_of(k->job, strlen(k->job));
    rc = trainer_open(k->t, c, r, err);
    cmd_free(c);
    report_free(r);
    return rc;
}

static int make_desk(void **state)
{
    struct desk *k = xcalloc(1, sizeof *k);
    struct err err;

    *state = k;
    k->job = JOB;
    set_disk(0, 0);
    pthread_mutex_init(&k->lock, NULL);
    strcpy(k->dir, "/tmp/dptrain-saver-XXXXXX");
    return mkdtemp(k->dir) && open_trainer(k, &err) == 0 ? 0 : -1;
}

static int clear_desk(void **state)
{
    struct desk *k = *state;
    int rc;

    set_disk(0, 0);
    trainer_free(k->t);
    rc = remove_tree(k->dir);
    free(k);
    return rc;
}

/* One number of the state. */
static float *number(struct desk *k) { return state_data(k->t->state, &slot_parameters); }

/* Set the state to `step`; one number of the state tells the step. */
static void move_to(struct desk *k, int64_t step)
{
    k->t->state->at.step = step;
    *number(k) = (float)step;
}

static void ignore(void *arg, const char *text) { (void)arg, (void)text; }

/* Take the newest generation; returns its step, or -1 if there is none. */
static int64_t load_newest(struct desk *k)
{
    struct ckpt *c;
    struct err err;
    int64_t step;

    if (ckpt_load_latest(k->dir, ignore, NULL, &c, &err) != 0)
        return -1;
    step = c->state.step;
    assert_int_equal(state_load(k->t->state, c, &err), 0);
    ckpt_close(c);
    return step;
}

/* The same, where the newest generation's parameters must tell its step, too. */
static int64_t on_disk(struct desk *k)
{
    const int64_t step = load_newest(k);

    if (step >= 0)
        assert_int_equal((int64_t)*number(k), step);
    return step;
}

/* ---- cases ---- */

/* The file holds the state at the moment of the request, however training goes on. */
static void test_copy(void **state)
{
    struct desk *k = *state;
    double seconds;
    struct err err;
    int64_t step;

    set_disk(1, 0);
    move_to(k, 7);
    assert_int_equal(saver_begin(k->t->saver, 1, &err), 0);
    wait_held();
    assert_true(saver_under_way(k->t->saver, &step, &seconds) && step == 7);
    move_to(k, 8);
    assert_int_equal(k->n_ok, 0);
    set_disk(0, 0);
    saver_finish(k->t->saver);
    assert_false(saver_under_way(k->t->saver, NULL, NULL));
    assert_int_equal(k->n_ok, 1);
    assert_int_equal(k->ok[0], 7);
    assert_int_equal(on_disk(k), 7);
}

/* 25 MB of parameters and momentum. */
#define WIDE                                                         \
    "model: {arch: mlp, hidden: [4096]}\n"                           \
    "data: {format: digits, samples: 320, validation_samples: 10}\n" \
    "train: {global_batch: 10}\noptimizer: {momentum: 0.9}\n"

/* A trainer of the desk's job after a step: the step has written all of the state, whose zeros take
 * no memory before. */
static void open_and_touch(struct desk *k)
{
    struct state *s;
    struct err err;

    trainer_free(k->t);
    assert_int_equal(open_trainer(k, &err), 0);
    s = k->t->state;
    for (int i = 0; i < s->n_slots; i++)
        memset(s->slot[i].data, 0, s->slot[i].n_bytes);
}

/* A checkpoint takes no memory that was not there when training began. */
static void test_memory_is_there_before(void **state)
{
    struct desk *k = *state;
    struct err err;
    double mib;

    k->job = WIDE;
    open_and_touch(k);
    mib = rss_mib();
    move_to(k, 7);
    assert_int_equal(saver_begin(k->t->saver, 1, &err), 0);
    saver_finish(k->t->saver);
    assert_int_equal(k->n_ok, 1);
    assert_true(rss_mib() - mib < 8);
}

/* The last checkpoint is written from the state itself: it takes no memory, and none is taken for
 * copies if the job asks for no other checkpoint. */
static void test_last_takes_no_memory(void **state)
{
    struct report *r = report_new(REPORT_CHECKPOINT, 0);
    struct desk *k = *state;
    struct err err;
    double mib;

    k->job = WIDE "checkpoint: {every_epochs: 0}\n";
    open_and_touch(k);
    mib = rss_mib();
    move_to(k, 7);
    assert_int_equal(saver_save(k->t->saver, 1, r, &err), 0);
    assert_non_null(r->checkpoint.path);
    move_to(k, 8);
    assert_int_equal(saver_begin_last(k->t->saver, 1, &err), 0);
    saver_finish(k->t->saver);
    assert_int_equal(k->n_ok, 1);
    assert_true(rss_mib() - mib < 8);
    move_to(k, 9); /* one inside an epoch is asked for by a signal, such as a drain's */
    assert_int_equal(saver_begin(k->t->saver, 1, &err), 0);
    saver_finish(k->t->saver);
    assert_true(rss_mib() - mib > 20);
    assert_int_equal(on_disk(k), 9);
    report_free(r);
}

/* The saver's thread copies the parameters, and they may change once saver_copied has returned. */
static void test_copy_beside(void **state)
{
    struct desk *k = *state;
    struct err err;
    float *last;

    k->job = WIDE;
    open_and_touch(k);
    last = number(k) + k->t->layout->n_total - 1;
    for (int step = 7; step < 10; step++) {
        move_to(k, step);
        *last = (float)step;
        assert_int_equal(saver_begin_beside(k->t->saver, 1, &err), 0);
        saver_copied(k->t->saver);
        move_to(k, step + 1);
        *last = (float)step + 1;
        saver_finish(k->t->saver);
        assert_int_equal(on_disk(k), step);
        assert_int_equal((int)*last, step);
    }
    saver_copied(k->t->saver); /* nothing is under way */
    assert_int_equal(k->n_ok, 3);
}

#define NORMED                                                                    \
    "model: {arch: layers, layers: [conv: {channels: 4, kernel: 3}, batch_norm, " \
    "flatten, linear: {units: 10}]}\n"                                            \
    "data: {format: digits, samples: 320, validation_samples: 10}\n"              \
    "train: {global_batch: 10}\n"

/* Running statistics, which are small, are copied at once, and the rest later. */
static void test_first_and_rest(void **state)
{
    struct desk *k = *state;
    const struct ckpt_told told = {k, NULL};
    struct snapshot *p;
    struct err err;
    char *path = NULL;
    float *stats;

    k->job = NORMED;
    trainer_free(k->t);
    assert_int_equal(open_trainer(k, &err), 0);
    stats = state_data(k->t->state, &slot_statistics);
    assert_int_equal(snapshot_new(k->t->state, 1, &p, &err), 0);
    move_to(k, 1);
    *stats = 1;
    assert_int_equal(snapshot_take_first(p, k->t->state, 1, &err), 0);
    *number(k) = *stats = 2;
    snapshot_take_rest(p);
    *number(k) = *stats = 3;
    assert_int_equal(snapshot_save(p, k->dir, 1, &told, &path, &err), 0);
    snapshot_free(p);
    free(path);
    assert_int_equal(load_newest(k), 1);
    assert_int_equal((int)*stats, 1);
    assert_int_equal((int)*number(k), 2);
}

static void test_same_step_once(void **state)
{
    struct desk *k = *state;
    struct report *r = report_new(REPORT_CHECKPOINT, 0);
    struct err err;

    set_disk(1, 0);
    move_to(k, 7);
    for (int i = 0; i < 3; i++) /* while it is under way */
        assert_int_equal(saver_begin(k->t->saver, 1, &err), 0);
    set_disk(0, 0);
    assert_int_equal(saver_save(k->t->saver, 1, r, &err), 0); /* waits for that one */
    assert_int_equal(k->n_ok, 1);
    assert_null(r->checkpoint.path);
    assert_null(r->checkpoint.error);
    report_free(r);
}

/* A formation may take a state older than the last checkpoint: its step is written again. */
static void test_going_back(void **state)
{
    struct desk *k = *state;
    struct err err;

    for (int step = 7; step >= 6; step--) {
        move_to(k, step);
        assert_int_equal(saver_begin(k->t->saver, 1, &err), 0);
        saver_finish(k->t->saver);
    }
    assert_int_equal(k->n_ok, 2);
    assert_int_equal(k->ok[1], 6);
}

struct call { /* of saver_begin or saver_save, on a thread */
    struct desk *k;
    pthread_t thread;
    int is_save, rc, n_before; /* reports that had come when the call returned */
    struct report *r;
    struct err err;
};

static void *run_call(void *arg)
{
    struct call *c = arg;

    c->rc = c->is_save ? saver_save(c->k->t->saver, 1, c->r, &c->err)
                       : saver_begin(c->k->t->saver, 1, &c->err);
    pthread_mutex_lock(&c->k->lock);
    c->n_before = c->k->n_ok + c->k->n_bad;
    pthread_mutex_unlock(&c->k->lock);
    return NULL;
}

/* Start a call that waits: it has asked whether it is canceled. */
static void start_call(struct call *c, struct desk *k, int is_save)
{
    int before = atomic_load(&k->n_asked);

    *c = (struct call){.k = k, .is_save = is_save, .r = report_new(REPORT_CHECKPOINT, 0)};
    assert_int_equal(pthread_create(&c->thread, NULL, run_call, c), 0);
    while (atomic_load(&k->n_asked) == before)
        sched_yield();
}

static void test_second_waits(void **state)
{
    struct desk *k = *state;
    struct err err;

    for (int is_save = 0; is_save < 2; is_save++) {
        struct call c;

        k->n_ok = 0;
        set_disk(1, 0);
        move_to(k, 10 + is_save * 10);
        assert_int_equal(saver_begin(k->t->saver, 1, &err), 0);
        wait_held();
        move_to(k, 11 + is_save * 10);
        start_call(&c, k, is_save);
        set_disk(0, 0);
        pthread_join(c.thread, NULL);
        assert_int_equal(c.rc, 0);
        assert_true(c.n_before >= 1); /* the first one's outcome comes first */
        assert_true(!is_save == !c.r->checkpoint.path);
        saver_finish(k->t->saver);
        assert_int_equal(k->ok[0], 10 + is_save * 10);
        assert_int_equal(k->n_ok, 2 - is_save);
        assert_int_equal(on_disk(k), 11 + is_save * 10);
        report_free(c.r);
    }
}

/* The formation breaks off: the engine leaves its wait, and the checkpoint is finished all the
 * same.  It is written from the state, so the next formation waits for it before that changes. */
static void test_canceled_wait(void **state)
{
    struct desk *k = *state;
    struct call c;

    set_disk(1, 0);
    move_to(k, 5);
    start_call(&c, k, 1);
    atomic_store(&k->is_canceled, 1);
    trainer_interrupt(k->t);
    pthread_join(c.thread, NULL);
    assert_int_equal(c.rc, ERR_CANCELED);
    assert_int_equal(k->n_ok, 0);
    assert_int_equal(trainer_prepare(k->t, 0, 1, 1, 1, &c.err), ERR_CANCELED);
    atomic_store(&k->is_canceled, 0);
    set_disk(0, 0);
    assert_int_equal(trainer_prepare(k->t, 0, 1, 1, 1, &c.err), 0);
    assert_false(saver_under_way(k->t->saver, NULL, NULL));
    trainer_finish(k->t, 0);
    assert_int_equal(k->n_ok, 1);
    assert_int_equal(on_disk(k), 5);
    report_free(c.r);
}

/* The report names the step, the checkpoints on disk stay, and the same step is tried again. */
static void test_failing_disk(void **state)
{
    struct desk *k = *state;
    struct report *r = report_new(REPORT_CHECKPOINT, 0);
    struct err err;

    move_to(k, 3);
    assert_int_equal(saver_begin(k->t->saver, 1, &err), 0);
    saver_finish(k->t->saver);
    set_disk(0, ENOSPC);
    move_to(k, 4);
    assert_int_equal(saver_begin(k->t->saver, 1, &err), 0);
    saver_finish(k->t->saver);
    assert_int_equal(k->n_bad, 1);
    assert_int_equal(k->bad[0], 4);
    assert_non_null(strstr(k->error, ": fsync: No space left on device"));
    assert_int_equal(saver_save(k->t->saver, 1, r, &err), 0);
    assert_int_equal(r->checkpoint.step, 4);
    assert_non_null(r->checkpoint.error);
    report_free(r);
    assert_int_equal(on_disk(k), 3);
    set_disk(0, 0);
    move_to(k, 4);
    r = report_new(REPORT_CHECKPOINT, 0);
    assert_int_equal(saver_save(k->t->saver, 1, r, &err), 0);
    assert_non_null(r->checkpoint.path);
    assert_int_equal(k->n_bad, 1); /* a call that waits has the failure in its answer */
    assert_int_equal(on_disk(k), 4);
    report_free(r);
}

/* A file that the disk does not give back is written again; if that one is wrong, too, the
 * checkpoint fails, and the one before stays. */
static void test_lying_disk(void **state)
{
    struct desk *k = *state;
    struct err err;

    move_to(k, 3);
    spoil_disk(1);
    assert_int_equal(saver_begin(k->t->saver, 1, &err), 0);
    saver_finish(k->t->saver);
    assert_int_equal(k->n_ok, 1);
    assert_int_equal(k->n_wrong, 1);
    assert_int_equal(k->n_mended, 1);
    assert_int_equal(k->wrong_step, 3);
    assert_string_equal(k->wrong, "model.safetensors");
    move_to(k, 4);
    spoil_disk(2);
    assert_int_equal(saver_begin(k->t->saver, 1, &err), 0);
    saver_finish(k->t->saver);
    assert_int_equal(k->n_bad, 1);
    assert_int_equal(k->n_wrong, 2);
    assert_int_equal(k->n_mended, 1);
    assert_non_null(strstr(k->error, "gives back other bytes than were written"));
    assert_int_equal(on_disk(k), 3);
}

static void test_free_finishes(void **state)
{
    struct desk *k = *state;
    struct err err;
    char dir[64];

    strcpy(dir, k->dir);
    move_to(k, 9);
    assert_int_equal(saver_begin(k->t->saver, 1, &err), 0);
    trainer_free(k->t);
    assert_int_equal(k->n_ok, 1);
    assert_int_equal(open_trainer(k, &err), 0);
    assert_int_equal(on_disk(k), 9);
}

static void test_memory(void **state)
{
    struct desk *k = *state;
    struct snapshot *p;
    struct err err;
    uint64_t before;

    alloc_fail_at(1);
    assert_int_equal(snapshot_new(k->t->state, 1, &p, &err), ERR_NOMEM);
    assert_non_null(strstr(err.msg, "checkpoints: out of memory"));
    assert_int_equal(snapshot_new(k->t->state, 1, &p, &err), 0);
    before = alloc_count();
    for (int i = 0; i < 3; i++)
        assert_int_equal(snapshot_take(p, k->t->state, 1, &err), 0);
    assert_int_equal(alloc_count(), before);
    snapshot_free(p);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, make_desk, clear_desk)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_copy),
        CASE(test_memory_is_there_before),
        CASE(test_last_takes_no_memory),
        CASE(test_copy_beside),
        CASE(test_first_and_rest),
        CASE(test_same_step_once),
        CASE(test_going_back),
        CASE(test_second_waits),
        CASE(test_canceled_wait),
        CASE(test_failing_disk),
        CASE(test_lying_disk),
        CASE(test_free_finishes),
        CASE(test_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
