/* Tests of coll/nccl over the fakes when something fails: nothing is lost, left open or wrongly
 * applied, and every rank comes to an end, whichever call fails and whenever the driver aborts. */
#include <sched.h>

#include "base/util.h"
#include "rig.h"

/* ---- failures ---- */

/* The n-th call of rank 0's threads fails, for every n; rank 1 hears of it from the driver. */
static void every_call_may_fail(void **state)
{
    int n = 1, n_failures = 0;

    (void)state;
    for (;; n++) {
        struct job j = {0};
        const struct rank *r = &j.rank[0];

        fake_reset();
        fake_fail_at(0, n);
        job_run(&j, 2);
        if (fake_fail_left(0) > 0)
            break;
        n_failures++;
        if (r->rc == 0 && r->n_applied != N_STEPS)
            fail_msg("call %d (%s) failed, and nobody noticed", n, fake_failed_call());
        if (r->rc < 0 && r->err.code != ERR_DEVICE)
            fail_msg("call %d (%s): %s", n, fake_failed_call(), r->err.msg);
        if (j.rank[1].rc < 0 && j.rank[1].err.code != ERR_CANCELED)
            fail_msg("call %d (%s): rank 1: %s", n, fake_failed_call(), j.rank[1].err.msg);
        if (j.n_stuck == 0 && fake_open_things() != 0)
            fail_msg("call %d (%s): %d things are left", n, fake_failed_call(), fake_open_things());
    }
    printf("%d calls failed, one at a time\n", n_failures);
    assert_true(n_failures > 150);
}

static int do_step(struct rank *r, struct coll *c, struct err *err)
{
    int rc = rank_record_step(r, c, err);

    if (rc == 0)
        rc = rank_launch(r, err);
    return rc < 0 ? rc : rank_finish_step(r, c, err);
}

/* Rank 1 takes part in one step, and leaves when rank 0 is in the second: with an error, or in a
 * way that only NCCL notices. */
static int vanish(struct rank *r, struct err *err)
{
    struct job *j = r->job;
    struct coll *c = j->coll[r->k];
    int rc = do_step(r, c, err);

    if (rc < 0)
        return rc;
    if (r->k == 1) {
        while (!j->n_there || (j->nccl_sees && !job_is_over(j)))
            sched_yield();
        return err_set(err, ERR_IO, "this rank fails");
    }
    rc = rank_launch(r, err);
    if (j->nccl_sees)
        fake_async_error(0);
    j->n_there++;
    return rc < 0 ? rc : rank_finish_step(r, c, err);
}

static const char *const stop_words[] = {"ncclCommAbort", "cudaGraphExecDestroy",
                                         "ncclCommFinalize", "ncclCommDestroy", NULL};

static void assert_order(const char *const *want)
{
    char *log = fake_log(stop_words);
    const char *at = log;

    for (; *want; want++) {
        const char *next = strstr(at, *want);

        if (!next)
            fail_msg("no %s in its place in %s", *want, log);
        at = next + strlen(*want);
    }
    free(log);
}

/* A rank fails in the midst of a step: the driver aborts; nothing of that step is applied. */
static void a_lost_rank_ends_the_step(void **state)
{
    struct job j = {.after = vanish};

    (void)state;
    job_run(&j, 2);
    assert_int_equal(j.rank[0].err.code, ERR_CANCELED);
    assert_int_equal(j.rank[0].quiesced, ERR_CANCELED);
    assert_non_null(strstr(j.rank[0].end.msg, "stopped by aborting: collectives were canceled"));
    assert_int_equal(j.rank[0].n_applied, 1);
    assert_int_equal(j.n_stuck, 0);
    assert_int_equal(fake_open_things(), 0);
    assert_order((const char *const[]){"0:ncclCommAbort", "0:cudaGraphExecDestroy", NULL});
}

/* NCCL itself notices that a rank is gone, and coll_poll returns the error. */
static void an_asynchronous_error_ends_the_step(void **state)
{
    struct job j = {.after = vanish, .nccl_sees = 1};

    (void)state;
    job_run(&j, 2);
    assert_int_equal(j.rank[0].err.code, ERR_PEER);
    assert_non_null(strstr(j.rank[0].err.msg, "remote process exited"));
    assert_int_equal(j.rank[0].n_applied, 1);
    assert_int_equal(j.n_stuck, 0);
    assert_int_equal(fake_open_things(), 0);
    assert_order((const char *const[]){"0:ncclCommAbort", "0:cudaGraphExecDestroy", NULL});
}

/* One step that both ranks have completed when the function returns: otherwise an abort could still
 * end the other rank's first step. */
static int do_step_both(struct rank *r, struct coll *c, struct err *err)
{
    int rc = do_step(r, c, err);

    r->job->n_there++;
    while (rc == 0 && r->job->n_there < 2)
        sched_yield();
    return rc;
}

/* Rank 0 waits for a sum that rank 1 never joins, because it fails. */
static int wait_for_lost(struct rank *r, struct err *err)
{
    struct coll *c = r->job->coll[r->k];
    int64_t ticket;
    int rc;

    if (r->k == 1) {
        while (!r->job->n_there)
            sched_yield();
        return err_set(err, ERR_IO, "this rank fails");
    }
    ticket = coll_allreduce(c, COLL_URGENT, r->param, BUCKET, DTYPE_F32, 0, err);
    while ((rc = coll_device_passed(c, ticket, err)) == 1)
        r->job->n_there = 1;
    return rc;
}

/* The abort ends the sum's kernel, too, but the sum never counts as complete. */
static void a_sum_that_is_stopped_never_passes(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct job j = {.after = wait_for_lost};

        fake_reset();
        job_run(&j, 2);
        assert_int_equal(j.rank[0].rc, ERR_CANCELED);
        assert_int_equal(j.n_stuck, 0);
        assert_int_equal(fake_open_things(), 0);
    }
}

/* The sum has ended when NCCL tells rank 0 of an error. */
static int ask_behind_error(struct rank *r, struct err *err)
{
    struct coll *c = r->job->coll[r->k];
    const int64_t ticket = coll_allreduce(c, COLL_URGENT, r->param, BUCKET, DTYPE_F32, 0, err);
    int rc;

    while ((rc = coll_device_passed(c, ticket, err)) == 1)
        ;
    r->job->n_there++;
    while (rc == 0 && r->job->n_there < 2)
        sched_yield();
    if (rc < 0 || r->k == 1)
        return rc;
    fake_async_error(0);
    return coll_device_passed(c, ticket, err);
}

/* So the failure is seen by a rank that does nothing but ask for its sum. */
static void asking_for_a_sum_finds_a_failure(void **state)
{
    struct job j = {.after = ask_behind_error};

    (void)state;
    job_run(&j, 2);
    assert_int_equal(j.rank[0].rc, ERR_PEER);
    assert_int_equal(j.rank[1].rc, 0);
    assert_int_equal(j.n_stuck, 0);
    assert_int_equal(fake_open_things(), 0);
}

/* Rank 1's GPU breaks in the second step, before rank 0 is in it. */
static int break_down(struct rank *r, struct err *err)
{
    struct job *j = r->job;
    struct coll *c = j->coll[r->k];
    int rc = do_step_both(r, c, err);

    while (rc == 0 && r->k == 0 && j->n_there < 3)
        sched_yield();
    if (rc == 0)
        rc = rank_launch(r, err);
    if (r->k == 1) {
        fake_break(1);
        j->n_there++;
    }
    return rc < 0 ? rc : rank_finish_step(r, c, err);
}

/* Rank 1's GPU breaks after rank 0 has failed, while the step is being stopped. */
static int break_late(struct rank *r, struct err *err)
{
    struct job *j = r->job;
    struct coll *c = j->coll[r->k];
    int rc = do_step_both(r, c, err);

    if (rc < 0)
        return rc;
    if (r->k == 0)
        return err_set(err, ERR_IO, "this rank fails");
    rc = rank_launch(r, err);
    while (!job_is_over(j))
        sched_yield();
    fake_break(1);
    return rc < 0 ? rc : rank_finish_step(r, c, err);
}

/* A broken device is an error, so that the process ends in order: nothing runs on the device any
 * more, so nothing is stuck. */
static void a_device_that_breaks_is_told(void **state)
{
    static const struct {
        int (*after)(struct rank *r, struct err *err);
        int first_of_0, first_of_1;
        const char *says;
    } cases[] = {
        {break_down, ERR_CANCELED, ERR_DEVICE, "cannot go on: NCCL: "},
        {break_late, ERR_IO, ERR_CANCELED, "cannot finish what is queued: cuda error "},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct job j = {.after = cases[i].after};

        fake_reset();
        job_run(&j, 2);
        assert_int_equal(j.rank[0].err.code, cases[i].first_of_0);
        assert_int_equal(j.rank[1].err.code, cases[i].first_of_1);
        assert_int_equal(j.rank[0].quiesced, ERR_CANCELED);
        assert_int_equal(j.rank[1].quiesced, ERR_DEVICE);
        assert_non_null(strstr(j.rank[1].end.msg, cases[i].says));
        for (int k = 0; k < 2; k++)
            assert_int_equal(j.rank[k].n_applied, 1);
        assert_int_equal(j.n_stuck, 0);
        assert_int_equal(fake_open_things(), 0);
    }
}

/* A step that the engine launches after the coll was stopped ends, too, and applies nothing. */
static int launch_late(struct rank *r, struct err *err)
{
    struct coll *c = r->job->coll[r->k];
    int rc = rank_record_step(r, c, err);

    if (rc < 0)
        return rc;
    job_abort(r->job);
    for (int i = 0; rc == 0 && i < 2; i++)
        rc = rank_launch(r, err);
    return rc;
}

static void a_launch_may_come_after_the_end(void **state)
{
    struct job j = {.after = launch_late};

    (void)state;
    job_run(&j, 2);
    for (int k = 0; k < 2; k++) {
        if (j.rank[k].rc < 0 && j.rank[k].err.code != ERR_CANCELED)
            fail_msg("rank %d: %s", k, j.rank[k].err.msg);
        assert_int_equal(j.rank[k].quiesced, ERR_CANCELED);
        assert_int_equal(j.rank[k].n_applied, 0);
    }
    assert_int_equal(j.n_stuck, 0);
    assert_int_equal(fake_open_things(), 0);
}

/* This is the last test, since it leaves threads and memory behind. */
static void what_cannot_be_stopped_ends_the_process(void **state)
{
    static const struct {
        enum fake_hang hang;
        int64_t stop_ms; /* long if something else must stop first */
        const char *says;
    } cases[] = {
        {FAKE_HANG_KERNELS, 1000, "aborting it has not stopped its kernels"},
        {FAKE_HANG_DESTROY, 5000, "ending it has not come to an end"},
    };
    static struct job jobs[ARRAY_LEN(cases)]; /* threads go on using them */
    static const char *const words[] = {"cudaFreeHost", NULL};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct job *j = &jobs[i];
        char *freed = fake_log(words), *after;
        const char *said;

        *j = (struct job){.after = vanish, .stop_ms = cases[i].stop_ms};
        fake_hang(cases[i].hang);
        job_run(j, 2);
        assert_int_equal(j->rank[0].n_applied, 1);
        assert_true(j->n_stuck > 0);
        said = *j->rank[0].stuck ? j->rank[0].stuck : j->rank[1].stuck; /* either may be first */
        if (!strstr(said, cases[i].says) || !strstr(said, "this process must end"))
            fail_msg("\"%s\" does not say \"%s\"", said, cases[i].says);
        after = fake_log(words);
        if (cases[i].hang == FAKE_HANG_DESTROY)
            assert_string_equal(after, freed); /* both ranks leave their memory to NCCL */
        free(after);
        free(freed);
    }
}

/* ---- connecting ---- */

static const struct {
    enum fake_hang hang;
    const char *says;
} late[] = {
    {FAKE_HANG_INIT, "by nccl: cannot reach the other ranks: NCCL has not done it in time"},
    {FAKE_HANG_SPLIT, "by nccl: cannot make the urgent channel: NCCL has not done it in time"},
};

/* Two ranks form, with a call of NCCL that hangs, and end by the deadline.  Returns the rank that
 * waited; the other may have been told to leave before it began. */
static int connect_late(struct job *j, enum fake_hang hang, int deadline_ms)
{
    *j = (struct job){.connect_ms = deadline_ms};
    fake_reset();
    fake_hang(hang);
    job_run(j, 2);
    return j->rank[0].err.code != ERR_TIMEOUT;
}

/* On a slow machine a short deadline may pass before the call that hangs: then it is doubled. */
static void connecting_has_a_deadline(void **state)
{
    enum { SHORT_MS = 100, LONG_MS = 5000 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(late); i++) {
        struct job j;
        int k, ms = SHORT_MS;

        do {
            k = connect_late(&j, late[i].hang, ms);
            assert_int_equal(j.rank[k].err.code, ERR_TIMEOUT);
            assert_int_equal(j.rank[k].quiesced, ERR_TIMEOUT); /* the first failure stays */
            ms *= 2;
        } while (!strstr(j.rank[k].err.msg, late[i].says) && ms < LONG_MS);
        if (!strstr(j.rank[k].err.msg, late[i].says))
            fail_msg("\"%s\" does not say \"%s\"", j.rank[k].err.msg, late[i].says);
        assert_int_equal(j.n_stuck, 0);
        assert_int_equal(fake_open_things(), 0);
        assert_order((const char *const[]){k ? "1:ncclCommAbort" : "0:ncclCommAbort", NULL});
    }
}

static void *abort_when_there(void *arg)
{
    struct job *j = arg;
    int n = 0;

    while (n < j->size) {
        n = 0;
        pthread_mutex_lock(&j->lock);
        for (int k = 0; k < j->size; k++)
            n += j->coll[k] != NULL;
        pthread_mutex_unlock(&j->lock);
        sched_yield();
    }
    job_abort(j);
    return NULL;
}

static void connecting_can_be_aborted(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(late); i++) {
        struct job j = {0};
        pthread_t thread;

        fake_reset();
        fake_hang(late[i].hang);
        job_begin(&j, 2);
        pthread_create(&thread, NULL, abort_when_there, &j);
        job_run(&j, 2);
        pthread_join(thread, NULL);
        assert_int_equal(j.rank[0].err.code, ERR_CANCELED);
        assert_int_equal(j.rank[1].err.code, ERR_CANCELED);
        assert_int_equal(fake_open_things(), 0);
    }
}

/* If ncclCommFinalize stays in progress, it is given up in time, and the communicator aborted. */
static void finalizing_has_a_deadline(void **state)
{
    struct job j = {.stop_ms = 300};

    (void)state;
    fake_hang(FAKE_HANG_FINALIZE);
    job_run(&j, 2);
    job_assert_fine(&j);
    assert_order((const char *const[]){"0:ncclCommFinalize", "0:ncclCommAbort", NULL});
    assert_order((const char *const[]){"1:ncclCommFinalize", "1:ncclCommAbort", NULL});
}

/* Abort at any moment, from another thread, while the ranks train. */
static void *abort_soon(void *arg)
{
    struct job *j = arg;

    while (!j->n_there)
        sched_yield();
    for (int i = 0; i < j->n_there * 7; i++)
        sched_yield();
    job_abort(j);
    return NULL;
}

static void aborts_come_at_any_moment(void **state)
{
    (void)state;
    for (int i = 1; i < 150; i++) {
        struct job j = {0};
        pthread_t thread;

        fake_reset();
        j.n_there = i;
        job_begin(&j, 2);
        pthread_create(&thread, NULL, abort_soon, &j);
        job_run(&j, 2);
        pthread_join(thread, NULL);
        for (int k = 0; k < 2; k++)
            if (j.rank[k].rc < 0 && j.rank[k].err.code != ERR_CANCELED)
                fail_msg("rank %d: %s", k, j.rank[k].err.msg);
        assert_int_equal(j.n_stuck, 0);
        assert_int_equal(fake_open_things(), 0);
    }
}

static void abort_now(void *arg) { job_abort(arg); }

/* The abort comes just before the n-th call of the CUDA runtime by rank 0, for every n, and NCCL is
 * stopping when that call goes on.  No call of NCCL comes after that, as the fake asserts. */
static void aborts_come_before_each_call(void **state)
{
    int n = 1;

    (void)state;
    for (;; n++) {
        struct job j = {0};

        fake_reset();
        job_begin(&j, 2);
        fake_strike_at(0, n, abort_now, &j);
        job_run(&j, 2);
        if (fake_strike_left(0) > 0)
            break;
        for (int k = 0; k < 2; k++)
            if (j.rank[k].rc < 0 && j.rank[k].err.code != ERR_CANCELED)
                fail_msg("call %d: rank %d: %s", n, k, j.rank[k].err.msg);
        assert_int_equal(j.n_stuck, 0);
        assert_int_equal(fake_open_things(), 0);
    }
    printf("an abort before each of %d calls\n", n - 1);
    assert_true(n > 50);
}

/* A library that cannot record its collectives.  If it returns an error, the step is not recorded;
 * if it hangs, the driver's deadline ends the wait.  A partial recording is never used. */
static int record_and_say(struct rank *r, struct err *err)
{
    r->job->n_there++;
    return rank_record_step(r, r->job->coll[r->k], err);
}

static void recording_can_be_aborted(void **state)
{
    struct job j = {.after = record_and_say};
    pthread_t thread;

    (void)state;
    fake_hang(FAKE_HANG_RECORD);
    job_begin(&j, 2);
    pthread_create(&thread, NULL, abort_soon, &j);
    job_run(&j, 2);
    pthread_join(thread, NULL);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(j.rank[k].err.code, ERR_CANCELED);
        assert_null(j.rank[k].step);
        assert_int_equal(j.rank[k].n_applied, 0);
    }
    assert_int_equal(j.n_stuck, 0);
    assert_int_equal(fake_open_things(), 0);
}

/* The bulk communicator has failed while the urgent one is at work for ever: the failure ends the
 * wait, without the driver. */
static int record_after_an_error(struct rank *r, struct err *err)
{
    cudaGraph_t g = NULL;
    int64_t ticket;

    if (r->k == 0)
        fake_async_error(0);
    if (cudaStreamBeginCapture(r->cuda.stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
        return err_set(err, ERR_DEVICE, "cannot record");
    ticket = coll_allreduce(r->job->coll[r->k], COLL_URGENT, r->stats, N_STATS, DTYPE_F64, 0, err);
    (void)cudaStreamEndCapture(r->cuda.stream, &g);
    if (g)
        (void)cudaGraphDestroy(g);
    return ticket < 0 ? (int)ticket : 0;
}

static void a_failure_of_one_channel_ends_the_other(void **state)
{
    struct job j = {.after = record_after_an_error};

    (void)state;
    fake_hang(FAKE_HANG_RECORD);
    job_run(&j, 2);
    assert_int_equal(j.rank[0].err.code, ERR_PEER);
    assert_int_equal(j.rank[1].err.code, ERR_CANCELED);
    assert_int_equal(j.n_stuck, 0);
    assert_int_equal(fake_open_things(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_call_may_fail, job_setup),
        cmocka_unit_test_setup(a_lost_rank_ends_the_step, job_setup),
        cmocka_unit_test_setup(an_asynchronous_error_ends_the_step, job_setup),
        cmocka_unit_test_setup(a_sum_that_is_stopped_never_passes, job_setup),
        cmocka_unit_test_setup(asking_for_a_sum_finds_a_failure, job_setup),
        cmocka_unit_test_setup(a_device_that_breaks_is_told, job_setup),
        cmocka_unit_test_setup(a_launch_may_come_after_the_end, job_setup),
        cmocka_unit_test_setup(connecting_has_a_deadline, job_setup),
        cmocka_unit_test_setup(connecting_can_be_aborted, job_setup),
        cmocka_unit_test_setup(finalizing_has_a_deadline, job_setup),
        cmocka_unit_test_setup(aborts_come_at_any_moment, job_setup),
        cmocka_unit_test_setup(aborts_come_before_each_call, job_setup),
        cmocka_unit_test_setup(recording_can_be_aborted, job_setup),
        cmocka_unit_test_setup(a_failure_of_one_channel_ends_the_other, job_setup),
        cmocka_unit_test_setup(what_cannot_be_stopped_ends_the_process, job_setup),
    };

    /* Each rank has stages of some MiB, of which these tests use the first bytes alone; coll/nccl
     * fills all. */
    fake_fill_at_most(16 << 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
