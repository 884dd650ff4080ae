/* driver_run, driver_end: checkpoints, and stops that wait for them.
 * The test plays all engines and followers. */
#include "rig.h"

#include "base/alloc.h"

static void a_polite_stop_saves(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 2, CMD_TRAIN);
    driver_stop(r.d, r.now, "SIGINT");
    rig_drain(&r);
    assert_int_equal(r.n_requests, 1);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    struct cmd *c = r.command;
    r.command = NULL;
    for (int k = 0; k < 2; k++) {
        struct report *p = rig_answer(c);
        p->epoch.step = 3;
        p->epoch.end = EPOCH_STOPPED;
        rig_report(&r, k, p);
    }
    cmd_free(c);
    assert_int_equal(r.command->kind, CMD_CHECKPOINT);
    assert_int_equal(r.command->checkpoint.step, 3);
    rig_answer_all(&r, 2);
    assert_int_equal(r.sent[1]->stop->outcome, WIRE__OUTCOME__OUTCOME_STOPPED);
    rig_end(&r, 2);
    assert_int_equal(r.status, STATUS_STOPPED);
    assert_string_equal(r.text, "stopped by SIGINT after step 3 (epoch 1); resume with: dpdriver "
                                "--resume");
    rig_free(&r);
}

static void stops_before_and_at_once(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    rig_hello(&r, 1, 1);
    driver_stop(r.d, r.now, "SIGTERM");
    rig_drain(&r);
    rig_end(&r, 2);
    assert_int_equal(r.status, STATUS_STOPPED);
    assert_string_equal(r.text, "stopped by SIGTERM before training began");
    rig_free(&r);

    rig_driver(&r, &o);
    rig_go_to(&r, 2, CMD_VALIDATE);
    for (int i = 0; i < 2; i++)
        driver_stop(r.d, r.now, "SIGTERM");
    rig_drain(&r);
    assert_logged(&r, "SIGTERM: stopping after this validation, with a checkpoint; once more to");
    assert_int_equal(r.n_aborts, 1);
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_ABORT);
    rig_wait(&r, 1000); /* neither engine nor follower answer */
    assert_true(r.is_finished);
    assert_true(r.is_engine_stuck);
    assert_int_equal(r.status, STATUS_STOPPED);
    rig_free(&r);
}

/* A second signal while the job ends: nobody is waited for any more, but the engine has its moment.
 */
static void an_idle_engine_is_not_left_behind(void **state)
{
    struct driver_options o = rig_options(2);

    (void)state;
    for (int ends = 0; ends < 2; ends++) {
        struct rig r;
        rig_driver(&r, &o);
        rig_hello(&r, 1, 1);
        for (int i = 0; i < 3; i++)
            driver_stop(r.d, r.now, "SIGTERM");
        rig_drain(&r);
        assert_false(r.is_finished);
        if (ends)
            rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
        else
            rig_wait(&r, 1000);
        assert_true(r.is_finished);
        assert_int_equal(r.is_engine_stuck, !ends);
        assert_int_equal(r.status, STATUS_STOPPED);
        rig_free(&r);
    }
}

static struct report *unasked(int64_t step, const char *path, const char *error)
{
    struct report *p = report_new(REPORT_CHECKPOINT, 1);
    p->checkpoint.step = step;
    p->checkpoint.path = path ? xstrdup(path) : NULL;
    p->checkpoint.error = error ? xstrdup(error) : NULL;
    p->checkpoint.is_unasked = 1;
    return p;
}

/* A checkpoint that is written beside training is reported once, whatever the stage. */
static void checkpoints_are_written_beside(void **state)
{
    static const enum cmd_kind when[] = {CMD_TRAIN, CMD_VALIDATE, CMD_CHECKPOINT};
    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(when); i++) {
        const char *error = i % 2 ? "no space left" : NULL;
        struct rig r;
        struct driver_options o = rig_options(2);
        rig_driver(&r, &o);
        rig_go_to(&r, 2, CMD_CHECKPOINT);
        assert_false(r.command->checkpoint.is_last);
        rig_report(&r, 0, rig_answer(r.command)); /* the state is copied, but not yet written */
        rig_report(&r, 1, rig_answer(r.command));
        rig_go_on_to(&r, 2, when[i / 2]);
        assert_int_equal(rig_count(&r, EVENT_CHECKPOINT), 0);
        rig_report(&r, 0, unasked(4, error ? NULL : "p", error));
        assert_int_equal(rig_count(&r, EVENT_CHECKPOINT), !error);
        assert_int_equal(rig_count(&r, EVENT_ERROR), error != NULL);
        rig_go_on_to(&r, 2, CMD_CHECKPOINT);
        assert_true(r.command->checkpoint.is_last); /* of the second and last epoch */
        rig_answer_all(&r, 2);
        rig_end(&r, 2);
        assert_int_equal(r.status, STATUS_OK);
        rig_free(&r);
    }
}

/* The job is asked to stop while the state is copied.  The end waits until the checkpoint is
 * written. */
static void stops_when_the_checkpoint_is_written(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct rig r;
        struct driver_options o = rig_options(1);
        rig_driver(&r, &o);
        rig_go_to(&r, 1, CMD_CHECKPOINT);
        struct cmd *c = r.command;
        r.command = NULL;
        driver_stop(r.d, r.now, "SIGTERM");
        rig_report(&r, 0, rig_answer(c));
        cmd_free(c);
        assert_int_equal(r.command->kind, CMD_CHECKPOINT);
        assert_int_equal(r.command->checkpoint.step, 4);
        assert_true(r.command->checkpoint.is_last);
        struct report *p = rig_answer(r.command);
        if (fails)
            p->checkpoint.error = xstrdup("no space left");
        else
            rig_report(&r, 0, unasked(4, "p", NULL)); /* was under way, is not written twice */
        rig_report(&r, 0, p);
        rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
        assert_int_equal(r.status, fails ? STATUS_FAILED : STATUS_STOPPED);
        assert_int_equal(rig_count(&r, EVENT_CHECKPOINT), !fails);
        rig_free(&r);
    }
}

static void beat(struct rig *r, int conn, enum phase phase)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;
    h.epoch = 1;
    h.phase = (Wire__Phase)phase;
    m.generation = 1;
    m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
    m.heartbeat = &h;
    rig_message(r, conn, &m);
}

/* While rank 0 writes a checkpoint in the middle of training, the others wait for it.  That time
 * does not count as standing still. */
static void waiting_for_the_disk_is_not_idleness(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2); /* a step: 23 s, a checkpoint: 25 s */
    struct progress p = {.generation = 1, .epoch = 1, .bucket = -1};
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 2, CMD_TRAIN);
    for (int s = 0; s < 40; s++) {
        p.phase = s < 20 ? PHASE_CHECKPOINT : PHASE_LOAD;
        p.step = s < 20 ? 0 : s;
        driver_progress(r.d, r.now, &p);
        rig_drain(&r);
        beat(&r, 1, PHASE_REDUCE);
        rig_wait(&r, 1000);
        if (rig_count(&r, EVENT_ERROR))
            fail_msg("after %d s: %s", s, rig_event(&r, EVENT_ERROR)->text);
    }
    for (int s = 0; s < 10 && rig_count(&r, EVENT_ERROR) == 0; s++) { /* now it is late */
        beat(&r, 1, PHASE_REDUCE);
        rig_wait(&r, 1000);
    }
    assert_has(rig_event(&r, EVENT_ERROR)->text, "no progress for 23 s (cluster.deadlines.step)");
    rig_free(&r);
}

/* A checkpoint in the middle of an epoch has its own deadline, from its start on. */
static void a_checkpoint_within_an_epoch_has_its_time(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2); /* a checkpoint: 25 s */
    struct progress p = {.generation = 1, .epoch = 1, .bucket = -1};
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 2, CMD_TRAIN);
    for (int s = 0; s < 42 && rig_count(&r, EVENT_ERROR) == 0; s++) {
        p.phase = s < 15 ? PHASE_LOAD : PHASE_CHECKPOINT;
        p.step = s < 15 ? s : 15;
        driver_progress(r.d, r.now, &p);
        rig_drain(&r);
        beat(&r, 1, PHASE_REDUCE);
        rig_wait(&r, 1000);
        if (s < 38 && rig_count(&r, EVENT_ERROR))
            fail_msg("after %d s: %s", s, rig_event(&r, EVENT_ERROR)->text);
    }
    assert_has(rig_event(&r, EVENT_ERROR)->text,
               "no progress for 25 s (cluster.deadlines.checkpoint)");
    rig_free(&r);
}

/* If rank 0's own disk does not answer, rank 0 gets no more time for it when the job ends. */
static void a_disk_that_hangs_is_not_waited_for(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    struct progress p = {.generation = 1, .epoch = 1, .phase = PHASE_CHECKPOINT, .bucket = -1};
    (void)state;
    o.cluster.heartbeat_timeout_ms = 100000;
    rig_driver(&r, &o);
    rig_go_to(&r, 2, CMD_CHECKPOINT);
    rig_report(&r, 1, rig_answer(r.command));
    driver_progress(r.d, r.now, &p);
    rig_wait(&r, 25500);
    assert_has(rig_event(&r, EVENT_ERROR)->text, "checkpoint took longer than 25 s");
    rig_close(&r, 1);
    rig_wait(&r, 1000);
    assert_true(r.is_finished);
    assert_true(r.is_engine_stuck);
    rig_free(&r);
}

/* Another rank's failure leaves rank 0 the time to finish a checkpoint, if it says that it writes
 * one.  The operator's second signal ends that time. */
static void the_operator_does_not_wait_for_the_disk(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    struct progress p = {.generation = 1, .epoch = 1, .phase = PHASE_CHECKPOINT, .bucket = -1};
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 2, CMD_TRAIN);
    rig_close(&r, 1);
    driver_progress(r.d, r.now, &p);
    rig_wait(&r, 2000);
    driver_stop(r.d, r.now, "SIGTERM");
    rig_drain(&r);
    assert_false(r.is_finished);
    assert_logged(&r, "SIGTERM: the job ends already, and waits for rank 0 to write its "
                      "checkpoint; a second signal ends it at once");
    driver_stop(r.d, r.now, "SIGTERM");
    rig_drain(&r);
    assert_true(r.is_finished);
    assert_true(r.is_engine_stuck);
    rig_free(&r);
}

/* The same while rank 0 does its step, after which it would save its state. */
static void the_operator_does_not_wait_for_the_step(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    struct progress p = {
        .generation = 1, .epoch = 1, .step = 4, .phase = PHASE_BACKWARD, .bucket = -1};
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 2, CMD_TRAIN);
    driver_progress(r.d, r.now, &p);
    rig_close(&r, 1);
    rig_wait(&r, 2000);
    driver_progress(r.d, r.now, &p);
    driver_stop(r.d, r.now, "SIGINT");
    rig_drain(&r);
    assert_false(r.is_finished);
    assert_logged(&r, "SIGINT: the job ends already, and waits for rank 0, which saves its state "
                      "when it has done backward of step 4; a second signal ends it at once");
    driver_stop(r.d, r.now, "SIGINT");
    rig_drain(&r);
    assert_true(r.is_finished);
    rig_free(&r);
}

/* The same without a signal: the job ends when the checkpoint is written. */
static void a_failure_waits_for_what_is_written(void **state)
{
    (void)state;
    for (int is_saving = 0; is_saving < 2; is_saving++) {
        struct rig r;
        struct driver_options o = rig_options(2);
        rig_driver(&r, &o);
        rig_go_to(&r, 2, CMD_TRAIN);
        struct progress p = {.generation = 1, .epoch = 1, .phase = PHASE_REDUCE, .bucket = -1};
        driver_progress(r.d, r.now, &p);
        rig_close(&r, 1);
        assert_int_equal(r.command->kind, CMD_STOP);
        assert_true(r.command->stop.saves);
        p.phase = PHASE_CHECKPOINT;
        if (is_saving)
            driver_progress(r.d, r.now, &p);
        rig_wait(&r, 1000);
        assert_int_equal(r.is_finished, !is_saving);
        if (is_saving) {
            rig_wait(&r, 20000);
            assert_false(r.is_finished);
            rig_report(&r, 0, unasked(4, "p", NULL));
            rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
            assert_true(r.is_finished);
            assert_int_equal(rig_count(&r, EVENT_CHECKPOINT), 1);
        }
        assert_int_equal(r.is_engine_stuck, !is_saving);
        assert_int_equal(r.status, STATUS_FAILED);
        rig_free(&r);
    }
}

/* Rank 0 may be in the middle of a step when another rank fails.  It saves its state once that is
 * done, as long as it takes; a collective breaks off, so rank 0 leaves it at once.  Nobody waits
 * longer than for a step in training, or if nothing is to be saved.  The phase that rank 0
 * told last may be over: `next` is what it tells 0.2 s later. */
static void a_failure_waits_for_the_step_under_way(void **state)
{
    static const struct {
        enum phase phase, next;
        int code;
        int wait_ms, ends; /* 1: the job has ended by then */
        int is_divided;    /* no rank can save the state alone */
    } cases[] = {{PHASE_BACKWARD, PHASE_BACKWARD, ERR_DEVICE, 19300, 0},
                 {PHASE_BACKWARD, PHASE_BACKWARD, ERR_DEVICE, 22000, 1},
                 {PHASE_LOAD, PHASE_FORWARD, ERR_DEVICE, 19300, 0},
                 {PHASE_REDUCE, PHASE_UPDATE, ERR_DEVICE, 19300, 0},
                 {PHASE_IDLE, PHASE_LOAD, ERR_DEVICE, 19300, 0},
                 {PHASE_VALIDATE, PHASE_VALIDATE, ERR_DEVICE, 29300, 0},
                 {PHASE_REDUCE, PHASE_REDUCE, ERR_DEVICE, 1000, 1},
                 {PHASE_BACKWARD, PHASE_BACKWARD, ERR_DEVICE, 1000, 1, 1},
                 {PHASE_BACKWARD, PHASE_BACKWARD, ERR_NUMERIC, 1000, 1}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(2);
        struct progress p = {.generation = 1, .epoch = 1, .step = 4, .bucket = -1};
        o.cluster.deadlines.step_ms = 20000;
        o.cluster.deadlines.validate_ms = 30000;
        o.is_divided = cases[i].is_divided;
        rig_driver(&r, &o);
        rig_go_to(&r, 2, CMD_TRAIN);
        p.phase = cases[i].phase;
        driver_progress(r.d, r.now, &p);
        struct report *f = report_new(REPORT_FAULT, 1);
        err_set(&f->fault.err, cases[i].code, "it broke");
        f->fault.phase = PHASE_FORWARD;
        rig_report(&r, 1, f);
        rig_close(&r, 1);
        assert_int_equal(r.command->kind, CMD_STOP);
        assert_int_equal(r.command->stop.saves, cases[i].code != ERR_NUMERIC);
        rig_wait(&r, 200);
        p.phase = cases[i].next;
        driver_progress(r.d, r.now, &p);
        rig_wait(&r, cases[i].wait_ms);
        assert_int_equal(r.is_finished, cases[i].ends);
        assert_int_equal(r.is_engine_stuck, cases[i].ends);
        if (!cases[i].ends) {
            assert_logged(&r, "rank 0 saves its state when it has done ");
            p.phase = PHASE_IDLE; /* a moment later it obeys CMD_STOP */
            driver_progress(r.d, r.now, &p);
            rig_wait(&r, 450);
            assert_false(r.is_finished);
            p.phase = PHASE_CHECKPOINT;
            driver_progress(r.d, r.now, &p);
            rig_wait(&r, 20000);
            assert_false(r.is_finished);
            rig_report(&r, 0, unasked(4, "p", NULL));
            rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
            assert_true(r.is_finished);
            assert_false(r.is_engine_stuck);
            assert_int_equal(rig_count(&r, EVENT_CHECKPOINT), 1);
        }
        assert_int_equal(r.status, STATUS_FAILED);
        rig_free(&r);
    }
}

static void checkpoints_may_fail_but_the_last(void **state)
{
    (void)state;
    for (int when = 1; when <= 2; when++) {
        struct rig r;
        struct driver_options o = rig_options(1);
        rig_driver(&r, &o);
        rig_report(&r, 0, rig_opened());
        for (int epoch = 1; epoch <= 2; epoch++) {
            while (r.command->kind != CMD_CHECKPOINT)
                rig_answer_all(&r, 1);
            struct report *p = rig_answer(r.command);
            if (epoch == when)
                p->checkpoint.error = xstrdup("no space left");
            else
                p->checkpoint.path = xstrdup("p");
            rig_report(&r, 0, p);
        }
        assert_int_equal(rig_count(&r, EVENT_ERROR), 1);
        assert_int_equal(rig_count(&r, EVENT_DONE), when == 1);
        rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
        assert_int_equal(r.status, when == 1 ? STATUS_OK : STATUS_FAILED);
        if (when == 2)
            assert_has(buf_cstr(&r.log), "trained to step 8, but the final checkpoint could not be "
                                         "written: no space left\n");
        rig_free(&r);
    }
}

static void what_is_saved_is_not_saved_again(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(1);
    (void)state;
    o.validate_every = 0;
    rig_driver(&r, &o);
    rig_report(&r, 0, rig_opened());
    while (r.command->kind != CMD_TRAIN)
        rig_answer_all(&r, 1);
    rig_report(&r, 0, unasked(4, "p", NULL)); /* checkpoint.every_steps */
    rig_answer_all(&r, 1);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    assert_int_equal(r.command->train.epoch, 2);
    assert_int_equal(rig_count(&r, EVENT_CHECKPOINT), 1);
    rig_free(&r);
}

static void without_validation_the_last_epoch_has_none(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(1);
    (void)state;
    o.validate_every = 0;
    o.n_epochs = 1;
    rig_driver(&r, &o);
    rig_go_to(&r, 1, CMD_TRAIN);
    rig_answer_all(&r, 1);
    assert_int_equal(r.command->kind, CMD_CHECKPOINT);
    rig_free(&r);
}

static void nonfinite_saves_and_fails(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(1);
    (void)state;
    rig_driver(&r, &o);
    rig_report(&r, 0, rig_opened());
    while (r.command->kind != CMD_TRAIN)
        rig_answer_all(&r, 1);
    struct report *p = rig_answer(r.command);
    p->epoch.step = 2;
    p->epoch.end = EPOCH_NONFINITE;
    p->epoch.note = xstrdup("conv1 gave inf");
    rig_report(&r, 0, p);
    assert_int_equal(r.command->kind, CMD_CHECKPOINT);
    rig_answer_all(&r, 1);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
    assert_int_equal(r.status, STATUS_FAILED);
    assert_string_equal(
        r.text,
        "step 2 was not applied: rank 0 (h0): conv1 gave inf; the state before it is in step-2");
    rig_free(&r);
}

/* A follower has the reason.  The job ends, because a replacement would compute the same. */
static void what_a_follower_finds_nonfinite_ends_the_job(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    rig_train(&r, &o);
    struct cmd *c = r.command;
    r.command = NULL;
    for (int k = 0; k < 2; k++) {
        struct report *p = rig_answer(c);
        p->epoch.step = 2;
        p->epoch.end = EPOCH_NONFINITE;
        p->epoch.note = k == 1 ? xstrdup("conv1 got inf") : NULL;
        rig_report(&r, k, p);
    }
    cmd_free(c);
    assert_int_equal(r.command->kind, CMD_CHECKPOINT);
    rig_answer_all(&r, 2);
    rig_end(&r, 2);
    assert_int_equal(r.status, STATUS_FAILED);
    assert_int_equal(rig_count(&r, EVENT_LOST), 0);
    assert_string_equal(
        r.text,
        "step 2 was not applied: rank 1 (h1): conv1 got inf; the state before it is in step-2");
    rig_free(&r);
}

static void own_input_errors_are_usage(void **state)
{
    static const struct {
        int code, status;
    } cases[] = {{ERR_CORRUPT, STATUS_USAGE},
                 {ERR_IO, STATUS_USAGE},
                 {ERR_DEVICE, STATUS_FAILED},
                 {ERR_NOMEM, STATUS_FAILED}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(2);
        struct report *f = report_new(REPORT_FAULT, 0);
        rig_driver(&r, &o);
        err_set(&f->fault.err, cases[i].code, "data: bad magic");
        f->fault.phase = PHASE_OPEN;
        rig_report(&r, 0, f);
        rig_report(&r, 0, report_new(REPORT_STOPPED, 0));
        assert_int_equal(r.status, cases[i].status);
        assert_string_equal(r.text, "rank 0 (h0) failed in open: data: bad magic");
        rig_free(&r);
    }
}

/* The same error once training has begun is a failure of the run. */
static void a_disk_error_in_training_is_a_failure(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    struct report *f = report_new(REPORT_FAULT, 1);
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 2, CMD_TRAIN);
    err_set(&f->fault.err, ERR_IO, "data: cannot be read");
    f->fault.phase = PHASE_LOAD;
    rig_report(&r, 0, f);
    rig_end(&r, 2);
    assert_int_equal(r.status, STATUS_FAILED);
    rig_free(&r);
}

/* Only the answer that names the step of the command is taken. */
static void a_checkpoint_of_another_step_breaks_the_protocol(void **state)
{
    (void)state;
    for (int off = -1; off <= 1; off += 2) {
        struct rig r;
        struct driver_options o = rig_options(2);
        rig_driver(&r, &o);
        rig_go_to(&r, 2, CMD_CHECKPOINT);
        struct report *p = rig_answer(r.command);
        p->checkpoint.step += off;
        rig_report(&r, 1, p);
        assert_logged(&r, "rank 1 (h1) broke the protocol during checkpoint");
        rig_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_of_another_step_breaks_the_protocol),
        cmocka_unit_test(a_polite_stop_saves),
        cmocka_unit_test(stops_before_and_at_once),
        cmocka_unit_test(an_idle_engine_is_not_left_behind),
        cmocka_unit_test(checkpoints_are_written_beside),
        cmocka_unit_test(stops_when_the_checkpoint_is_written),
        cmocka_unit_test(waiting_for_the_disk_is_not_idleness),
        cmocka_unit_test(a_disk_that_hangs_is_not_waited_for),
        cmocka_unit_test(the_operator_does_not_wait_for_the_disk),
        cmocka_unit_test(the_operator_does_not_wait_for_the_step),
        cmocka_unit_test(a_failure_waits_for_what_is_written),
        cmocka_unit_test(a_failure_waits_for_the_step_under_way),
        cmocka_unit_test(checkpoints_may_fail_but_the_last),
        cmocka_unit_test(what_is_saved_is_not_saved_again),
        cmocka_unit_test(nonfinite_saves_and_fails),
        cmocka_unit_test(what_a_follower_finds_nonfinite_ends_the_job),
        cmocka_unit_test(own_input_errors_are_usage),
        cmocka_unit_test(without_validation_the_last_epoch_has_none),
        cmocka_unit_test(a_disk_error_in_training_is_a_failure),
        cmocka_unit_test(a_checkpoint_within_an_epoch_has_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
