/* driver: a whole job, its deadlines and first causes.
 * The simulator (sim.h) tests their combinations. */
#include "rig.h"

static void a_job_runs_to_its_end(void **state)
{
    static const enum cmd_kind wanted[] = {CMD_PREPARE,    CMD_FORM,  CMD_TRAIN,    CMD_VALIDATE,
                                           CMD_CHECKPOINT, CMD_TRAIN, CMD_VALIDATE, CMD_CHECKPOINT};
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    rig_gather(&r, 2);
    assert_int_equal(rig_count(&r, EVENT_START), 1);
    assert_int_equal(rig_event(&r, EVENT_START)->start.n_parameters, 1000);
    assert_int_equal(rig_event(&r, EVENT_JOIN)->rank, 1);
    assert_string_equal(rig_event(&r, EVENT_JOIN)->host, "h1");
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        assert_int_equal(r.command->kind, wanted[i]);
        assert_int_equal(r.command->generation, 1);
        rig_answer_all(&r, 2);
    }
    assert_int_equal(r.command->kind, CMD_STOP);
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_STOP);
    assert_int_equal(r.sent[1]->stop->outcome, WIRE__OUTCOME__OUTCOME_FINISHED);
    rig_close(&r, 1);
    assert_false(r.is_finished);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
    assert_true(r.is_finished);
    assert_int_equal(r.status, STATUS_OK);
    assert_int_equal(rig_count(&r, EVENT_EPOCH), 2);
    assert_int_equal(rig_count(&r, EVENT_CHECKPOINT), 2);
    const struct session_event *e = rig_event(&r, EVENT_DONE);
    assert_int_equal(e->done.epoch.epoch, 2);
    assert_int_equal(e->step, 8);
    assert_true(e->done.epoch.is_validated);
    assert_true(e->done.epoch.validation_loss == 3.0 / 12);
    assert_true(e->done.epoch.validation_accuracy == 0.5);
    assert_int_equal(r.n_aborts, 0);
    rig_free(&r);
}

static struct report *opened_at(int64_t step)
{
    struct report *p = rig_opened();

    p->opened.step = step;
    return p;
}

/* Also one of a run that is finished: it validates once, trains nothing and saves nothing. */
static void an_evaluation_validates_alone(void **state)
{
    static const enum cmd_kind wanted[] = {CMD_PREPARE, CMD_FORM, CMD_VALIDATE};
    struct driver_options o = rig_options(1);
    struct rig r;

    (void)state;
    o.evaluate = "runs/x";
    o.run = NULL;
    rig_driver(&r, &o);
    assert_string_equal(r.command->open.evaluate, "runs/x");
    rig_report(&r, 0, opened_at(8));
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        struct report *p = rig_answer(r.command);

        assert_int_equal(r.command->kind, wanted[i]);
        if (wanted[i] == CMD_FORM)
            p->formed.step = 8;
        if (wanted[i] == CMD_VALIDATE) {
            assert_int_equal(r.command->validate.epoch, 2);
            p->validated.n_samples = p->validated.n_targets = 12;
            p->validated.weight = 3; /* of class weights */
            p->validated.n_correct = 6;
            p->validated.has_top5 = 1;
            p->validated.n_top5 = 9;
            p->validated.stops_early = p->validated.is_best = 1; /* decides nothing any more */
        }
        rig_report(&r, 0, p);
    }
    assert_int_equal(r.command->kind, CMD_STOP);
    assert_false(r.command->stop.saves);
    assert_int_equal(rig_count(&r, EVENT_EPOCH), 0);
    assert_int_equal(rig_event(&r, EVENT_DONE)->step, 8);
    assert_int_equal(rig_event(&r, EVENT_DONE)->done.epoch.n_samples, 12);
    assert_true(rig_event(&r, EVENT_DONE)->done.epoch.validation_accuracy == 0.5);
    assert_true(rig_event(&r, EVENT_DONE)->done.epoch.validation_loss == 1.5 / 3);
    assert_true(rig_event(&r, EVENT_DONE)->done.epoch.has_top5);
    assert_true(rig_event(&r, EVENT_DONE)->done.epoch.validation_top5 == 0.75);
    assert_false(rig_event(&r, EVENT_DONE)->done.epoch.is_best);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
    assert_int_equal(r.status, STATUS_OK);
    rig_free(&r);
}

static void an_evaluation_needs_data_and_ends_at_once(void **state)
{
    struct driver_options o = rig_options(1);
    struct report *p = opened_at(8);
    struct rig r;

    (void)state;
    o.evaluate = "runs/x";
    p->opened.n_validation = 0;
    rig_driver(&r, &o);
    rig_report(&r, 0, p);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 0));
    assert_int_equal(r.status, STATUS_USAGE);
    assert_has(r.text, "no data for validation");
    rig_free(&r);

    rig_driver(&r, &o);
    rig_report(&r, 0, opened_at(8));
    rig_answer_all(&r, 1);
    assert_int_equal(r.command->kind, CMD_FORM);
    rig_answer_all(&r, 1);
    assert_int_equal(r.command->kind, CMD_VALIDATE);
    driver_stop(r.d, r.now, "SIGINT");
    rig_drain(&r);
    assert_int_equal(r.command->kind, CMD_STOP);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
    assert_int_equal(r.status, STATUS_STOPPED);
    assert_has(r.text, "the evaluation was stopped by SIGINT");
    rig_free(&r);
}

/* train.stop_after ends the job as a signal does, also at an epoch's end, without its validation.
 * A run that is there already trains no further step. */
static void it_stops_after_the_step_asked_for(void **state)
{
    static const struct {
        int64_t step, stop_after;
        enum epoch_end end;
    } cases[] = {{3, 3, EPOCH_STOPPED}, {4, 4, EPOCH_WHOLE}};
    struct driver_options o = rig_options(2);
    struct rig r;
    (void)state;
    o.how_past_stop = "dpdriver --resume --set train.stop_after=0";
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        o.stop_after = cases[i].stop_after;
        rig_driver(&r, &o);
        rig_go_to(&r, 2, CMD_TRAIN);
        struct cmd *c = r.command;
        r.command = NULL;
        for (int k = 0; k < 2; k++) {
            struct report *p = rig_answer(c);
            p->epoch.step = cases[i].step;
            p->epoch.end = cases[i].end;
            rig_report(&r, k, p);
        }
        cmd_free(c);
        assert_int_equal(r.command->kind, CMD_CHECKPOINT);
        assert_int_equal(r.command->checkpoint.is_last, 1);
        rig_answer_all(&r, 2);
        rig_end(&r, 2);
        assert_int_equal(r.status, STATUS_STOPPED);
        assert_has(r.text, "stopped by train.stop_after after step ");
        assert_has(r.text, "; resume with: dpdriver --resume --set train.stop_after=0");
        rig_free(&r);
    }

    struct report *p = rig_opened();
    o.n_ranks = 1;
    p->opened.step = 4;
    rig_driver(&r, &o);
    rig_report(&r, 0, p);
    assert_int_equal(r.command->kind, CMD_STOP);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 0));
    assert_int_equal(r.status, STATUS_STOPPED);
    assert_string_equal(r.text, "nothing to do: 4 steps are done, and train.stop_after is 4; "
                                "resume with: dpdriver --resume --set train.stop_after=0");
    rig_free(&r);
}

static void the_step_held_decides_what_is_left(void **state)
{
    static const struct {
        int64_t step, n_epochs, max_steps, every;
        int64_t want_epoch; /* 0: nothing to do */
    } cases[] = {
        {0, 2, 0, 1, 1}, {3, 2, 0, 1, 1}, {4, 2, 0, 1, 2}, {6, 2, 0, 1, 2}, {8, 2, 0, 1, 0},
        {9, 2, 0, 1, 0}, {0, 0, 0, 1, 0}, {5, 9, 5, 1, 0}, {5, 9, 6, 1, 2},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(1);
        struct report *p = rig_opened();
        o.n_epochs = cases[i].n_epochs;
        o.max_steps = cases[i].max_steps;
        p->opened.step = cases[i].step;
        rig_driver(&r, &o);
        rig_report(&r, 0, p);
        if (cases[i].want_epoch == 0) {
            assert_int_equal(r.command->kind, CMD_STOP);
            rig_report(&r, 0, report_new(REPORT_STOPPED, 0));
            assert_int_equal(r.status, STATUS_OK);
            assert_has(r.text, "nothing to do");
            assert_has(r.text,
                       cases[i].max_steps ? "train.max_steps is 5; raise it" : "train.epochs is ");
            assert_int_equal(rig_count(&r, EVENT_DONE), 1);
            assert_int_equal(rig_event(&r, EVENT_DONE)->step, cases[i].step);
        } else {
            rig_answer_all(&r, 1);
            struct report *f = rig_answer(r.command);
            f->formed.step = cases[i].step;
            rig_report(&r, 0, f);
            assert_int_equal(r.command->kind, CMD_TRAIN);
            assert_int_equal(r.command->train.epoch, cases[i].want_epoch);
        }
        rig_free(&r);
    }
}

static void deadlines_name_the_missing(void **state)
{
    static const struct {
        enum cmd_kind at;
        int64_t ms;
        const char *text;
    } cases[] = {
        {CMD_PREPARE, 21000,
         "prepare took longer than 21 s (cluster.deadlines.prepare): rank 0 (h0, pid 100) is in "
         "prepare "
         "for 21.0 s, rank 2 likewise; rank 1 waits for them"},
        {CMD_TRAIN, 23000,
         "no progress for 23 s (cluster.deadlines.step): rank 2 (h2, pid 102) is in load of step 0 "
         "for "
         "23.0 s, silent for 23.0 s; ranks 0 1 wait for it"},
        {CMD_VALIDATE, 24000,
         "(cluster.deadlines.validate): rank 0 (h0, pid 100) is in validate for 24.0 s"},
        {CMD_CHECKPOINT, 25000,
         "(cluster.deadlines.checkpoint): rank 0 (h0, pid 100) is in checkpoint for 25.0 s"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(3);
        o.cluster.heartbeat_timeout_ms = 100000;
        rig_driver(&r, &o);
        rig_go_to(&r, 3, cases[i].at);
        rig_report(&r, 1, rig_answer(r.command));
        struct progress p = {.generation = 1, .phase = PHASE_REDUCE, .step = 0, .bucket = 0};
        if (cases[i].at == CMD_TRAIN)
            driver_progress(r.d, r.now, &p);
        rig_wait(&r, cases[i].ms - 10);
        assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
        rig_wait(&r, 300);
        assert_has(rig_event(&r, EVENT_ERROR)->text, cases[i].text);
        assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_ABORT);
        assert_string_equal(r.sent[1]->abort->text, rig_event(&r, EVENT_ERROR)->text);
        rig_end(&r, 3);
        assert_int_equal(r.status, STATUS_FAILED);
        rig_free(&r);
    }
}

/* ---- causes ---- */

static struct report *fault(int is_consequence, const char *text)
{
    struct report *f = report_new(REPORT_FAULT, 1);
    err_set(&f->fault.err, is_consequence ? ERR_PEER : ERR_DEVICE, "%s", text);
    f->fault.phase = PHASE_REDUCE;
    f->fault.step = 3;
    f->fault.is_consequence = is_consequence;
    return f;
}

static void a_consequence_is_no_first_cause(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 3, CMD_TRAIN);
    rig_report(&r, 0, fault(1, "a peer left"));
    rig_report(&r, 1, fault(1, "a peer left"));
    rig_wait(&r, 400);
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_report(&r, 2, fault(0, "bad memory"));
    assert_string_equal(rig_event(&r, EVENT_ERROR)->text,
                        "rank 2 (h2) failed in reduce of step 3: bad memory");
    assert_int_equal(rig_event(&r, EVENT_ERROR)->rank, 2);
    assert_int_equal(rig_count(&r, EVENT_LOST), 0);
    rig_free(&r);

    rig_driver(&r, &o); /* no other cause comes: all try again, but not for ever */
    rig_go_to(&r, 3, CMD_TRAIN);
    rig_report(&r, 1, fault(1, "a peer left"));
    for (int i = 0; i < 20; i++) {
        Wire__Control m = WIRE__CONTROL__INIT;
        Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;
        m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
        m.heartbeat = &h;
        rig_wait(&r, 100);
        for (int k = 1; k < 3; k++)
            rig_message(&r, k, &m);
    }
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    assert_logged(&r, "rank 1 (h1) failed in reduce of step 3: a peer left");
    assert_int_equal(r.command->kind, CMD_PREPARE);
    assert_int_equal(r.command->generation, 2);
    assert_int_equal(r.command->prepare.n_ranks, 3);
    rig_free(&r);
}

/* A rank that hangs while all form cannot be told from the others.  When all form again it can be
 * told, because it does not follow. */
static void a_formation_that_hangs_is_tried_again(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    o.cluster.heartbeat_timeout_ms = 100000;
    rig_driver(&r, &o);
    rig_go_to(&r, 3, CMD_FORM);
    rig_wait(&r, 22300);
    assert_logged(&r, "(cluster.deadlines.form): all that have not finished wait for each other");
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    assert_int_equal(r.command->kind, CMD_PREPARE);
    rig_report(&r, 1, rig_answer(r.command));
    rig_report(&r, 0, rig_answer(r.command));
    rig_wait(&r, 21300);
    assert_has(rig_event(&r, EVENT_ERROR)->text,
               "cluster.deadlines.prepare): rank 2 (h2, pid 102) is in prepare");
    rig_free(&r);
}

static void protocol_is_kept_or_the_job_fails(void **state)
{
    static const struct {
        int what;
        const char *text; /* NULL: nothing happens */
    } cases[] = {
        {0, "rank 1 (h1) broke the protocol during train: unexpected message Train"},
        {1, "unexpected report \"formed\""},
        {2, "EpochDone of generation 2, want at most 1"},
        {3, NULL},                          /* of an older generation */
        {4, "unexpected report \"epoch\""}, /* another epoch */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(2);
        rig_driver(&r, &o);
        rig_go_to(&r, 2, CMD_TRAIN);
        if (cases[i].what == 0) {
            Wire__Control m = WIRE__CONTROL__INIT;
            Wire__Train t = WIRE__TRAIN__INIT;
            t.epoch = 1;
            m.generation = 1;
            m.body_case = WIRE__CONTROL__BODY_TRAIN;
            m.train = &t;
            rig_message(&r, 1, &m);
        } else {
            struct report *p =
                cases[i].what == 1 ? report_new(REPORT_FORMED, 1) : rig_answer(r.command);
            p->generation += cases[i].what == 2 ? 1 : cases[i].what == 3 ? -1 : 0;
            if (cases[i].what == 4)
                p->epoch.epoch = 2;
            rig_report(&r, 1, p);
        }
        if (cases[i].text)
            assert_has(rig_event(&r, EVENT_ERROR)->text, cases[i].text);
        else
            assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
        rig_free(&r);
    }
}

/* If two ranks differ, rank 0 counts as right. */
static void of_two_replicas_the_other_is_named(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 2, CMD_TRAIN);
    struct report *p = rig_answer(r.command);
    p->epoch.replica.lo = 1;
    rig_report(&r, 1, p);
    rig_report(&r, 0, rig_answer(r.command));
    assert_has(rig_event(&r, EVENT_ERROR)->text, "rank 1 (h1) differs from rank 0 (h0)");
    assert_int_equal(rig_event(&r, EVENT_ERROR)->rank, 1);
    assert_int_equal(rig_count(&r, EVENT_CORRUPTION), 2); /* either may be wrong */
    assert_int_equal(rig_event(&r, EVENT_CORRUPTION)->corruption.share, -1);
    rig_free(&r);
}

/* An epoch's wait for data is that of the rank that waited longest; other figures are rank 0's. */
static void the_longest_wait_for_data_is_told(void **state)
{
    static const double shares[] = {0.25, 2, 0.5}; /* a share above 1 is 1 */
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 3, CMD_TRAIN);
    struct cmd *c = r.command;
    r.command = NULL;
    for (int k = 0; k < 3; k++) {
        struct report *p = rig_answer(c);
        p->epoch.data_wait_share = shares[k];
        p->epoch.data_wait_ms_median = 10 * k;
        p->epoch.data_wait_cause = k + 1;
        p->epoch.step_ms_median = 20 + k;
        p->epoch.n_skipped = 3 - k;
        rig_report(&r, k, p);
    }
    cmd_free(c);
    rig_answer_all(&r, 3); /* validation */
    const struct session_epoch *e = &rig_event(&r, EVENT_EPOCH)->epoch;
    assert_int_equal(e->data_wait_rank, 1);
    assert_true(e->data_wait_share == 1);
    assert_true(e->data_wait_ms_median == 10);
    assert_int_equal(e->data_wait_cause, 2);
    assert_true(e->step_ms_median == 20);
    assert_int_equal(e->n_skipped, 3);
    rig_free(&r);
}

static void a_replica_that_differs_is_named(void **state)
{
    (void)state;
    for (int first = 0; first < 4; first++) { /* any rank may answer first */
        struct rig r;
        struct driver_options o = rig_options(4);
        rig_driver(&r, &o);
        rig_go_to(&r, 4, CMD_TRAIN);
        struct cmd *c = r.command;
        r.command = NULL;
        for (int i = 0; i < 4; i++) {
            int k = (first + i) % 4;
            struct report *p = rig_answer(c);
            if (k == 2)
                p->epoch.replica.lo = p->epoch.tensor[1].hash.lo = 1;
            rig_report(&r, k, p);
        }
        cmd_free(c);
        assert_string_equal(rig_event(&r, EVENT_ERROR)->text,
                            "the replicas differ after epoch 1 (step 4): rank 2 (h2) differs from "
                            "rank 0 (h0) in conv1.bias");
        assert_int_equal(rig_count(&r, EVENT_CORRUPTION), 1);
        assert_int_equal(rig_event(&r, EVENT_CORRUPTION)->rank, 2);
        assert_int_equal(rig_count(&r, EVENT_EPOCH), 1); /* the epoch's numbers are told */
        assert_int_equal(r.command->kind, CMD_STOP);
        assert_false(r.command->stop.saves); /* rank 0's may be the wrong numbers */
        rig_free(&r);
    }
}

/* Numbers that are wrong somewhere: no other rank takes the place, and rank 0 saves nothing. */
static void wrong_numbers_end_an_elastic_run(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    rig_train(&r, &o);
    struct report *f = fault(0, "rank 2's copy of rank 1's part of the state differs");
    f->fault.err.code = ERR_NUMERIC;
    rig_report(&r, 2, f);
    assert_string_equal(rig_event(&r, EVENT_ERROR)->text,
                        "rank 2 (h2) failed in reduce of step 3: rank 2's copy of rank 1's part of "
                        "the state differs");
    assert_int_equal(rig_count(&r, EVENT_LOST), 0);
    assert_int_equal(r.command->kind, CMD_STOP);
    assert_false(r.command->stop.saves);
    rig_free(&r);
}

/* Samples that are damaged would be damaged for a replacement, too: the first rank that reads them
 * ends the run, and the state before them is saved.  A file that cannot be read may be another
 * rank's to read. */
static void damaged_samples_end_an_elastic_run(void **state)
{
    static const struct {
        int rank, code;
        enum phase phase;
        int ends;
    } cases[] = {{2, ERR_CORRUPT, PHASE_LOAD, 1},
                 {2, ERR_CORRUPT, PHASE_STEP, 1},
                 {0, ERR_CORRUPT, PHASE_LOAD, 1},
                 {2, ERR_IO, PHASE_LOAD, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct rig r;
        struct driver_options o = rig_elastic(3);
        rig_train(&r, &o);
        struct report *f = fault(0, "training data: images: /d/cat/7.jpg: cut short");
        f->fault.err.code = cases[i].code;
        f->fault.phase = cases[i].phase;
        rig_report(&r, cases[i].rank, f);
        assert_int_equal(rig_count(&r, EVENT_ERROR), cases[i].ends);
        assert_int_equal(rig_count(&r, EVENT_LOST), !cases[i].ends);
        if (cases[i].ends) {
            assert_has(rig_event(&r, EVENT_ERROR)->text,
                       "training data: images: /d/cat/7.jpg: cut short");
            assert_int_equal(rig_event(&r, EVENT_ERROR)->rank, cases[i].rank);
            assert_int_equal(r.command->kind, CMD_STOP);
            assert_true(r.command->stop.saves);
        }
        rig_free(&r);
    }
}

/* ---- time ---- */

static void silence_and_stalls_are_told_apart(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 2, CMD_TRAIN);
    int beats = r.n_beats;
    rig_wait(&r, 3000);
    assert_in_range(r.n_beats - beats, 2, 4); /* one a second */
    r.now += INT64_C(60000) * MS;             /* our own loop was stuck */
    driver_tick(r.d, r.now);
    rig_drain(&r);
    rig_wait(&r, 1000);
    assert_int_equal(rig_count(&r, EVENT_LOST), 0);
    rig_wait(&r, 2000);
    assert_int_equal(rig_event(&r, EVENT_LOST)->rank, 1);
    assert_has(rig_event(&r, EVENT_LOST)->text,
               "rank 1 (h1) was lost, last seen in load of step 0: no sign");
    rig_free(&r);
}

static void who_comes_late_is_told(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 2, CMD_TRAIN);
    rig_close(&r, 1);
    assert_int_equal(rig_count(&r, EVENT_LOST), 1);
    rig_hello(&r, 3, 1);
    assert_int_equal(r.sent[3]->refused->reason, WIRE__REASON__REASON_ENDING);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_runs_to_its_end),
        cmocka_unit_test(an_evaluation_validates_alone),
        cmocka_unit_test(an_evaluation_needs_data_and_ends_at_once),
        cmocka_unit_test(the_step_held_decides_what_is_left),
        cmocka_unit_test(it_stops_after_the_step_asked_for),
        cmocka_unit_test(deadlines_name_the_missing),
        cmocka_unit_test(a_consequence_is_no_first_cause),
        cmocka_unit_test(a_formation_that_hangs_is_tried_again),
        cmocka_unit_test(protocol_is_kept_or_the_job_fails),
        cmocka_unit_test(of_two_replicas_the_other_is_named),
        cmocka_unit_test(the_longest_wait_for_data_is_told),
        cmocka_unit_test(a_replica_that_differs_is_named),
        cmocka_unit_test(wrong_numbers_end_an_elastic_run),
        cmocka_unit_test(damaged_samples_end_an_elastic_run),
        cmocka_unit_test(silence_and_stalls_are_told_apart),
        cmocka_unit_test(who_comes_late_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
