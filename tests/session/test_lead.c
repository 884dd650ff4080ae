/* driver_lead: a driver goes on with a run that another one led, or tells the followers of a
 * finished one.  The test plays the followers and all engines. */
#include "rig.h"

#include "base/util.h"

/* ---- a driver ---- */

static const char run[] = "run-1";

static struct driver_options resuming(int n_ranks)
{
    struct driver_options o = rig_elastic(n_ranks);
    o.resume = "runs/x";
    o.run = run;
    o.term = 2;
    o.cluster.driver_timeout_ms = 60000;
    o.led = (struct led){.generation = 3, .step = 4, .epoch_step = 4, .validated_step = 4};
    o.start_ns = 1000 * (int64_t)MS;
    return o;
}

static struct rig_caller keeper(int rank, int64_t step, char job[HASH_TEXT_LEN])
{
    hash_to_text(hash_of("name: x", 7), job);
    return (struct rig_caller){.rank = rank,
                               .run = run,
                               .run_job = job,
                               .term = 1,
                               .leader = "the-leader:7000",
                               .formed = 5,
                               .step = step,
                               .in_step = 1};
}

/* The follower on this connection comes with the state of `step`. */
static void come_back(struct rig *r, int conn, int rank, int64_t step)
{
    char job[HASH_TEXT_LEN];
    struct rig_caller c = keeper(rank, step, job);
    rig_connect(r, conn, "10.0.0.9");
    rig_say_hello(r, conn, &c);
    assert_int_equal(r->sent[conn]->body_case, WIRE__CONTROL__BODY_WELCOME);
    r->has_state[conn] = 1;
    rig_report(r, conn, rig_opened());
}

/* Rank 0 resumes at `step`. */
static void own_opened(struct rig *r, int64_t step)
{
    struct report *p = rig_opened();
    p->opened.step = step;
    rig_report(r, 0, p);
}

static void a_driver_goes_on_from_its_followers(void **state)
{
    struct rig r;
    struct driver_options o = resuming(3);
    (void)state;
    rig_driver(&r, &o);
    own_opened(&r, 4);
    come_back(&r, 1, 1, 6);
    assert_string_equal(r.sent[1]->welcome->run, run);
    assert_int_equal(r.sent[1]->welcome->term, 2);
    assert_int_equal(r.sent[1]->welcome->driver_timeout_ms, 60000);
    come_back(&r, 2, 2, 5);
    assert_int_equal(r.command->kind, CMD_PREPARE);
    assert_int_equal(r.command->generation, 6); /* after the newest that a rank was in */
    RIG_ALL(&r, CMD_PREPARE, 4, 0);
    RIG_ALL(&r, CMD_PREPARE, 6, 1);
    RIG_ALL(&r, CMD_PREPARE, 5, 2);
    assert_int_equal(r.command->form.source, 1);
    r.now += 500 * MS;
    RIG_ALL(&r, CMD_FORM, 6, 0, 1, 2);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    assert_int_equal(r.command->train.epoch, 2);
    assert_int_equal(rig_count(&r, EVENT_RECOVERED), 0);
    struct report *step = report_new(REPORT_STEP, 6);
    step->step.step = 7;
    rig_report(&r, 0, step);
    const struct session_event *e = rig_event(&r, EVENT_RECOVERED);
    assert_string_equal(e->text, "followers");
    assert_int_equal(e->recovered.steps_lost, 1); /* the step after 6 was under way */
    assert_true(e->recovered.seconds >= 0.5 && e->recovered.seconds < 0.6);
    rig_free(&r);
}

static void or_from_the_checkpoint(void **state)
{
    struct rig r;
    struct driver_options o = resuming(2);
    (void)state;
    o.led.step = 7;
    rig_driver(&r, &o);
    own_opened(&r, 6);
    come_back(&r, 1, 1, 6);
    RIG_ALL(&r, CMD_PREPARE, 6, 0, 1);
    assert_int_equal(r.command->form.source, 0);
    RIG_ALL(&r, CMD_FORM, 6, 0, 1);
    struct report *step = report_new(REPORT_STEP, 6);
    rig_report(&r, 0, step);
    assert_string_equal(rig_event(&r, EVENT_RECOVERED)->text, "checkpoint");
    assert_int_equal(rig_event(&r, EVENT_RECOVERED)->recovered.steps_lost, 1);
    rig_free(&r);
}

/* The follower's divided state, of step 6, is not whole.  Rank 0 opened step 0, as a standby does,
 * and loads the newest checkpoint, which may be as new as the follower's state. */
static void or_from_a_checkpoint_that_is_as_new(void **state)
{
    (void)state;
    for (int64_t held = 4; held <= 6; held++) {
        struct rig r;
        struct driver_options o = resuming(2);
        o.led.step = 7;
        rig_driver(&r, &o);
        own_opened(&r, 0);
        come_back(&r, 1, 1, 6);
        RIG_ALL(&r, CMD_PREPARE, 0, 0);
        RIG_ALL(&r, CMD_PREPARE, 6, 1);
        struct report *formed = rig_answer(r.command);
        formed->formed.step = held;
        formed->formed.from_checkpoint = 1;
        rig_report(&r, 0, formed);
        RIG_ALL(&r, CMD_FORM, held, 1);
        rig_report(&r, 0, report_new(REPORT_STEP, 6));
        assert_string_equal(rig_event(&r, EVENT_RECOVERED)->text, "checkpoint");
        assert_int_equal(rig_event(&r, EVENT_RECOVERED)->recovered.steps_lost, 7 - held);
        rig_free(&r);
    }
}

/* Rank 0 loaded no checkpoint: the ranks hold an older step, which was left whole. */
static void or_from_an_older_step_of_the_followers(void **state)
{
    struct rig r;
    struct driver_options o = resuming(2);
    (void)state;
    rig_driver(&r, &o);
    own_opened(&r, 0);
    come_back(&r, 1, 1, 6);
    RIG_ALL(&r, CMD_PREPARE, 0, 0);
    RIG_ALL(&r, CMD_PREPARE, 6, 1);
    RIG_ALL(&r, CMD_FORM, 5, 0, 1);
    rig_report(&r, 0, report_new(REPORT_STEP, 6));
    assert_string_equal(rig_event(&r, EVENT_RECOVERED)->text, "followers");
    rig_free(&r);
}

/* The driver before died between an epoch's last step and its checkpoint. */
static void an_epoch_is_ended_again(int64_t told_step)
{
    struct rig r;
    struct driver_options o = resuming(2);
    int is_told = told_step >= 4;
    o.led.epoch_step = told_step;
    rig_driver(&r, &o);
    own_opened(&r, 0);
    come_back(&r, 1, 1, 4);
    RIG_ALL(&r, CMD_PREPARE, 0, 0);
    RIG_ALL(&r, CMD_PREPARE, 4, 1);
    RIG_ALL(&r, CMD_FORM, 4, 0, 1);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    assert_int_equal(r.command->train.epoch, 1);
    rig_go_on_to(&r, 2, CMD_CHECKPOINT);
    assert_int_equal(rig_count(&r, EVENT_EPOCH), !is_told);
    rig_answer_all(&r, 2);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    assert_int_equal(r.command->train.epoch, 2);
    rig_go_on_to(&r, 2, CMD_CHECKPOINT);
    assert_int_equal(rig_count(&r, EVENT_EPOCH), 2 - is_told);
    rig_free(&r);
}

/* max_steps or stop_after ends the job inside an epoch, and the driver died before it told so, or
 * after.  At a stop nothing is validated. */
static void a_job_that_ends_inside_an_epoch_is_ended_again(int is_told, int is_stop)
{
    struct rig r;
    struct driver_options o = resuming(2);
    o.max_steps = is_stop ? 0 : 6;
    o.stop_after = is_stop ? 6 : 0;
    o.led = (struct led){.generation = 3, .step = 6, .epoch_step = 4, .validated_step = 4};
    if (is_told)
        o.led.epoch_step = 6;
    if (is_told && !is_stop)
        o.led.validated_step = 6;
    rig_driver(&r, &o);
    own_opened(&r, 4);
    come_back(&r, 1, 1, 6);
    RIG_ALL(&r, CMD_PREPARE, 4, 0);
    RIG_ALL(&r, CMD_PREPARE, 6, 1);
    RIG_ALL(&r, CMD_FORM, 6, 0, 1);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    int64_t generation = r.command->generation;
    for (int k = 0; k < 2; k++) {
        struct report *p = rig_answer(
            &(struct cmd){.kind = CMD_TRAIN, .generation = generation, .train.epoch = 2});
        p->epoch.step = 6;
        p->epoch.end = is_stop ? EPOCH_STOPPED : EPOCH_MAX_STEPS;
        rig_report(&r, k, p);
    }
    rig_go_on_to(&r, 2, CMD_CHECKPOINT);
    assert_true(r.command->checkpoint.is_last);
    assert_int_equal(rig_count(&r, EVENT_EPOCH), !is_told);
    rig_free(&r);
}

/* The job was given up in the validation, and rank 0 wrote the state then. */
static void a_validation_that_was_broken_off_is_done(void **state)
{
    struct rig r;
    struct driver_options o = resuming(2);
    (void)state;
    o.led.validated_step = 0;
    rig_driver(&r, &o);
    own_opened(&r, 4);
    rig_come(&r, 1, 1);
    RIG_ALL(&r, CMD_PREPARE, 4, 0, 1);
    RIG_ALL(&r, CMD_FORM, 4, 0, 1);
    assert_int_equal(r.command->train.epoch, 1);
    rig_go_on_to(&r, 2, CMD_CHECKPOINT);
    assert_int_equal(rig_count(&r, EVENT_EPOCH), 1);
    assert_true(rig_event(&r, EVENT_EPOCH)->epoch.is_validated);
    rig_free(&r);
}

static void no_epoch_is_told_twice_or_never(void **state)
{
    (void)state;
    an_epoch_is_ended_again(0);
    an_epoch_is_ended_again(4);
    for (int i = 0; i < 4; i++)
        a_job_that_ends_inside_an_epoch_is_ended_again(i % 2, i / 2);
    an_epoch_is_ended_again(100); /* the run had come further, and that is lost */
}

static void expect_stale(struct rig *r, int conn, const struct rig_caller *c, const char *why)
{
    rig_connect(r, conn, "10.0.0.9");
    rig_say_hello(r, conn, c);
    assert_int_equal(r->sent[conn]->body_case, WIRE__CONTROL__BODY_REFUSED);
    assert_int_equal(r->sent[conn]->refused->reason, WIRE__REASON__REASON_STALE);
    assert_has(r->sent[conn]->refused->text, why);
    assert_string_equal(r->sent[conn]->refused->run, run);
}

static void a_state_of_no_use_is_refused(void **state)
{
    struct rig r;
    char job[HASH_TEXT_LEN];
    struct driver_options o = resuming(3);
    (void)state;
    rig_driver(&r, &o);
    struct rig_caller c = keeper(1, 5, job);
    c.run = "another";
    expect_stale(&r, 1, &c, "of another run");
    c = keeper(1, 5, job);
    job[0] = job[0] == '0' ? '1' : '0';
    expect_stale(&r, 2, &c, "with other options of the job");
    own_opened(&r, 4);
    come_back(&r, 4, 1, 5);
    come_back(&r, 5, 2, 5);
    c = keeper(1, 5, job);
    c.formed = 7; /* the formation that begins now is 6 */
    expect_stale(&r, 6, &c, "a formation that this driver does not know");
    rig_free(&r);
}

/* A follower has obeyed a later leader of the run: this driver ends and writes nothing more. */
static void a_driver_that_was_replaced_ends(void **state)
{
    struct rig r;
    char job[HASH_TEXT_LEN];
    struct driver_options o = rig_elastic(3);
    struct rig_caller c = keeper(1, 5, job);
    (void)state;
    o.run = run;
    o.term = 2;
    rig_train(&r, &o);
    int n_events = r.n_events;
    rig_close(&r, 1);
    c.term = 2; /* it obeyed this one */
    rig_connect(&r, 3, "10.0.0.9");
    rig_say_hello(&r, 3, &c);
    assert_false(r.is_closed[2]);
    n_events = r.n_events;
    c.term = 3;
    rig_connect(&r, 4, "10.0.0.9");
    rig_say_hello(&r, 4, &c);
    assert_logged(&r, "another driver leads this run: the one at the-leader:7000, with term 3");
    assert_true(r.is_closed[2] && r.is_closed[3] && r.is_closed[4]);
    assert_true(r.sent[2]->body_case != WIRE__CONTROL__BODY_ABORT || r.sent[2]->abort->recover);
    assert_int_equal(r.command->kind, CMD_STOP);
    rig_connect(&r, 5, "10.0.0.9"); /* Refused would end its state, which the leader needs */
    rig_say_hello(&r, 5, &c);
    assert_true(r.is_closed[5]);
    assert_int_equal(r.n_sent[5], 0);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
    assert_true(r.is_finished);
    assert_int_equal(r.status, STATUS_FAILED);
    assert_int_equal(r.n_events, n_events);
    rig_free(&r);

    rig_train(&r, &o);
    rig_go_on_to(&r, 3, CMD_VALIDATE); /* the epoch's line is still to come */
    n_events = r.n_events;
    driver_deposed(r.d, r.now, "its name is gone");
    rig_drain(&r);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
    assert_has(r.text, "its name is gone; this one ends, and writes nothing more");
    assert_true(r.is_deposed);
    assert_int_equal(r.status, STATUS_FAILED);
    assert_int_equal(r.n_events, n_events);
    rig_free(&r);
}

/* A rank that comes back while its old connection still holds the seat takes another. */
static void a_rank_takes_the_seat_that_is_free(void **state)
{
    struct rig r;
    struct driver_options o = resuming(3);
    (void)state;
    rig_driver(&r, &o);
    own_opened(&r, 4);
    come_back(&r, 1, 1, 5);
    come_back(&r, 2, 1, 5);
    rig_assert_prepare(&r, 1, 1, 3);
    rig_assert_prepare(&r, 2, 2, 3);
    rig_free(&r);
}

/* The job has fewer ranks than the one that the follower was part of. */
static void a_rank_that_is_gone_takes_another_seat(void **state)
{
    struct rig r;
    struct driver_options o = resuming(2);
    (void)state;
    o.cluster.max_ranks = 2;
    rig_driver(&r, &o);
    own_opened(&r, 4);
    come_back(&r, 1, 3, 5);
    rig_assert_prepare(&r, 1, 1, 2);
    rig_free(&r);
}

/* ---- claims ---- */

/* Rank 1 was replaced; then the new rank, or one that has trained, says that it holds `step`. */
static void claims(int is_new, int64_t step, int is_true)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    rig_train(&r, &o);
    rig_close(&r, 1);
    rig_come(&r, 3, 1);
    r.has_state[3] = 1; /* for the rig, which else says 0 */
    RIG_ALL(&r, CMD_PREPARE, 2, 0);
    RIG_ALL(&r, CMD_PREPARE, is_new ? 2 : step, 2);
    RIG_ALL(&r, CMD_PREPARE, is_new ? step : 0, 3);
    if (is_true)
        assert_int_equal(r.command->kind, CMD_FORM);
    else
        assert_has(rig_event(&r, EVENT_LOST)->text, "it claims to hold step");
    rig_free(&r);
}

static void false_claims_are_not_believed(void **state)
{
    (void)state;
    claims(1, 0, 1);
    claims(1, 1, 0); /* it is new to the job */
    claims(0, 4, 1); /* the last of the epoch that was under way */
    claims(0, 5, 0);
}

/* ---- a finished job ---- */

/* A driver of a run that holds all its steps. */
static void begin_finished(struct rig *r, struct driver_options *o)
{
    o->cluster.driver_timeout_ms = min_i64(o->cluster.driver_timeout_ms, 7000);
    rig_driver(r, o);
    own_opened(r, 8);
}

static void assert_told(struct rig *r, int conn)
{
    assert_int_equal(r->sent[conn]->body_case, WIRE__CONTROL__BODY_STOP);
    assert_int_equal(r->sent[conn]->stop->outcome, WIRE__OUTCOME__OUTCOME_FINISHED);
}

/* The driver before was killed before it could tell them. */
static void the_followers_of_a_finished_job_are_told(void **state)
{
    struct rig r;
    struct driver_options o = resuming(3);
    (void)state;
    begin_finished(&r, &o);
    assert_logged(&r, "waiting up to 7 s for them");
    assert_int_equal(rig_count(&r, EVENT_DONE), 0);
    come_back(&r, 1, 2, 8);
    rig_wait(&r, 3000);
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_WELCOME);
    come_back(&r, 2, 1, 8);
    rig_wait(&r, 300);
    assert_told(&r, 1);
    assert_told(&r, 2);
    assert_int_equal(rig_count(&r, EVENT_DONE), 1);
    char job[HASH_TEXT_LEN]; /* one that was held up: a spare perhaps */
    struct rig_caller c = keeper(2, 8, job);
    rig_connect(&r, 3, "10.0.0.9");
    rig_say_hello(&r, 3, &c);
    assert_int_equal(r.sent[3]->refused->reason, WIRE__REASON__REASON_FINISHED);
    c.run = NULL;
    rig_connect(&r, 4, "10.0.0.9");
    rig_say_hello(&r, 4, &c);
    assert_int_equal(r.sent[4]->refused->reason, WIRE__REASON__REASON_ENDING);
    rig_close(&r, 1);
    rig_close(&r, 2);
    rig_close(&r, 3);
    rig_close(&r, 4);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 0));
    assert_true(r.is_finished);
    assert_int_equal(r.status, STATUS_OK);
    assert_int_equal(rig_count(&r, EVENT_FORM), 0);
    rig_free(&r);
}

static void one_that_does_not_come_is_not_waited_for_long(void **state)
{
    struct rig r;
    struct driver_options o = resuming(3);
    (void)state;
    begin_finished(&r, &o);
    come_back(&r, 1, 2, 8);
    rig_wait(&r, 6500);
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_WELCOME);
    rig_wait(&r, 1000);
    assert_told(&r, 1);
    rig_free(&r);
}

/* The gathering's deadline, which counts from an earlier moment, makes no failure of a job that is
 * finished. */
static void nor_longer_than_a_gathering_may_take(void **state)
{
    struct rig r;
    struct driver_options o = resuming(3);
    (void)state;
    o.cluster.deadlines.gather_ms = 5000;
    rig_driver(&r, &o);
    rig_wait(&r, 3000);
    own_opened(&r, 8);
    come_back(&r, 1, 2, 8);
    rig_wait(&r, 1500);
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_WELCOME);
    rig_wait(&r, 1000);
    assert_told(&r, 1);
    assert_int_equal(rig_count(&r, EVENT_DONE), 1);
    rig_close(&r, 1);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 0));
    assert_true(r.is_finished);
    assert_int_equal(r.status, STATUS_OK);
    rig_free(&r);
}

/* The standby is told, too. */
static void its_standby_is_waited_for(void **state)
{
    struct rig r;
    struct driver_options o = resuming(2);
    (void)state;
    o.led.voters = voters_of(1, 3, 2, "s1");
    begin_finished(&r, &o);
    come_back(&r, 1, 1, 8);
    rig_wait(&r, 1000);
    assert_int_equal(rig_count(&r, EVENT_DONE), 0);
    rig_connect(&r, 2, "10.0.0.8");
    char job[HASH_TEXT_LEN];
    struct rig_caller c = keeper(-1, 0, job);
    c.standby = "s1";
    rig_say_hello(&r, 2, &c);
    rig_wait(&r, 300);
    assert_told(&r, 1);
    assert_told(&r, 2);
    rig_free(&r);
}

static void nobody_is_waited_for(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct rig r;
        struct driver_options o = resuming(i == 0 ? 1 : 3);
        if (i == 1)
            o.led.is_done = 1; /* they were told */
        if (i == 2)
            o.led.generation = 0; /* they never formed */
        if (i == 3)
            o.cluster.driver_timeout_ms = 0; /* they do not look for it */
        begin_finished(&r, &o);
        assert_int_equal(r.command->kind, CMD_STOP);
        assert_int_equal(rig_count(&r, EVENT_DONE), 1);
        rig_free(&r);
    }
}

/* ---- too few ---- */

static void a_driver_that_is_not_joined(void **state)
{
    struct rig r;
    struct driver_options o = resuming(3);
    (void)state;
    o.cluster.driver_timeout_ms = 5000;
    o.cluster.min_ranks = 2;
    rig_driver(&r, &o);
    own_opened(&r, 4);
    rig_wait(&r, 6000);
    assert_int_equal(r.command->kind, CMD_OPEN); /* alone it does not go on */
    come_back(&r, 1, 2, 5);
    rig_wait(&r, 300);
    rig_assert_prepare(&r, 1, 1, 2);
    assert_logged(&r, "no more ranks came: going on with 2");
    rig_free(&r);

    o.cluster.min_ranks = 0; /* all of them, then */
    rig_driver(&r, &o);
    own_opened(&r, 4);
    come_back(&r, 1, 2, 5);
    rig_wait(&r, 20000);
    assert_int_equal(r.command->kind, CMD_OPEN);
    rig_free(&r);

    o.cluster.min_ranks = 2;
    o.cluster.driver_timeout_ms =
        0; /* no follower keeps a state, so there is nothing to hurry for */
    rig_driver(&r, &o);
    own_opened(&r, 4);
    rig_come(&r, 1, 1);
    rig_wait(&r, 20000);
    assert_int_equal(r.command->kind, CMD_OPEN);
    rig_free(&r);

    o.cluster.driver_timeout_ms = 5000;
    o.resume = NULL; /* a run that begins has the ranks that it was given */
    rig_driver(&r, &o);
    own_opened(&r, 0);
    rig_come(&r, 1, 1);
    rig_wait(&r, 20000);
    assert_int_equal(r.command->kind, CMD_OPEN);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_goes_on_from_its_followers),
        cmocka_unit_test(or_from_the_checkpoint),
        cmocka_unit_test(or_from_a_checkpoint_that_is_as_new),
        cmocka_unit_test(or_from_an_older_step_of_the_followers),
        cmocka_unit_test(a_validation_that_was_broken_off_is_done),
        cmocka_unit_test(no_epoch_is_told_twice_or_never),
        cmocka_unit_test(a_state_of_no_use_is_refused),
        cmocka_unit_test(a_driver_that_was_replaced_ends),
        cmocka_unit_test(a_rank_takes_the_seat_that_is_free),
        cmocka_unit_test(a_rank_that_is_gone_takes_another_seat),
        cmocka_unit_test(false_claims_are_not_believed),
        cmocka_unit_test(the_followers_of_a_finished_job_are_told),
        cmocka_unit_test(one_that_does_not_come_is_not_waited_for_long),
        cmocka_unit_test(nor_longer_than_a_gathering_may_take),
        cmocka_unit_test(its_standby_is_waited_for),
        cmocka_unit_test(nobody_is_waited_for),
        cmocka_unit_test(a_driver_that_is_not_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
