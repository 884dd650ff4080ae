/* follower_keep: a follower keeps its state without a driver.  The test plays the drivers and the
 * engine. */
#include "rig.h"

#include "base/util.h"
#include "samples.h"

enum { WELCOME = 10, REFUSED, PREPARE, FORM, TRAIN, ABORT = 17, STOP };

/* ---- a follower ---- */

/* The driver sends sample `i`, with this generation. */
static void get(struct rig *r, int i, int64_t generation)
{
    struct arena a;
    Wire__Control m;
    arena_init(&a);
    assert_true(sample_make(&a, i, &m));
    m.generation = generation;
    rig_message(r, 0, &m);
    arena_fini(&a);
}

static void get_welcome(struct rig *r, int64_t term, int64_t timeout_ms, const char *run)
{
    struct arena a;
    Wire__Control m;
    arena_init(&a);
    assert_true(sample_make(&a, WELCOME, &m));
    m.welcome->term = term;
    m.welcome->driver_timeout_ms = timeout_ms;
    m.welcome->spare = 0;
    if (run)
        m.welcome->run = arena_strdup(&a, run);
    rig_message(r, 0, &m);
    arena_fini(&a);
}

#define RUN "5f2c9a0b77e14d38" /* of the sample of Welcome */

static void get_refused(struct rig *r, Wire__Reason reason, const char *run)
{
    struct arena a;
    Wire__Control m;
    arena_init(&a);
    assert_true(sample_make(&a, REFUSED, &m));
    m.refused->reason = reason;
    m.refused->run = arena_strdup(&a, run);
    rig_message(r, 0, &m);
    arena_fini(&a);
}

static void answer(struct rig *r) { rig_report(r, 1, rig_answer(r->command)); }

static void is_at(struct rig *r, enum phase phase, int64_t step)
{
    follower_progress(
        r->f, r->now,
        &(struct progress){.generation = 1, .epoch = 1, .step = step, .phase = phase});
}

/* In training, in the step after step 5. */
static void train(struct rig *r, int64_t timeout_ms)
{
    rig_keeper(r);
    get_welcome(r, 4, timeout_ms, NULL);
    rig_report(r, 1, rig_opened());
    for (int i = PREPARE; i <= TRAIN; i++) {
        get(r, i, 1);
        if (i < TRAIN)
            answer(r);
    }
    is_at(r, PHASE_BACKWARD, 5);
}

static void stop_engine(struct rig *r)
{
    rig_report(r, 1, report_new(REPORT_STOPPED, 1));
    assert_true(r->is_finished);
}

static void it_keeps_its_state(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 60000);
    int n_commands = r.n_commands;
    rig_close(&r, 0);
    assert_logged(&r, "lost the driver at 10.0.0.1:7000 in backward of step 5");
    assert_logged(&r, "looking for it for 60 s (cluster.driver_timeout)");
    assert_int_equal(r.n_aborts, 1);
    struct report *late = report_new(REPORT_FAULT, 1); /* the collective that was broken off */
    late->fault.is_consequence = 1;
    rig_report(&r, 1, late);
    rig_wait(&r, 30000);
    assert_false(r.is_finished);
    is_at(&r, PHASE_IDLE, 6); /* the step could be ended */
    rig_reconnect(&r);
    const Wire__Hello *h = r.sent[0]->hello;
    assert_string_equal(h->run, "5f2c9a0b77e14d38");
    assert_int_equal(strlen(h->run_job), HASH_TEXT_LEN - 1);
    assert_int_equal(h->term, 4);
    assert_string_equal(h->leader, "10.0.0.1:7000");
    assert_int_equal(h->formed, 1);
    assert_int_equal(h->step, 6);
    assert_true(h->in_step);
    assert_int_equal(h->rank, 1);
    assert_string_equal(h->device, "cpu");
    get_welcome(&r, 5, 60000, NULL);
    assert_int_equal(r.sent[0]->body_case, WIRE__CONTROL__BODY_READY);
    assert_int_equal(r.n_commands, n_commands); /* the engine is the same */
    get(&r, PREPARE, 2);
    assert_int_equal(r.command->kind, CMD_PREPARE);
    assert_int_equal(r.command->generation, 2);
    rig_close(&r, 0); /* and once more */
    rig_reconnect(&r);
    assert_int_equal(r.sent[0]->hello->term, 5);
    assert_string_equal(r.sent[0]->hello->leader, "10.0.0.2:7000");
    rig_free(&r);
}

static void get_drain(struct rig *r, int taken_back, int wrong)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Drain drain = WIRE__DRAIN__INIT;
    drain.taken_back = taken_back;
    drain.wrong = wrong;
    m.generation = 1;
    m.body_case = WIRE__CONTROL__BODY_DRAIN;
    m.drain = &drain;
    rig_message(r, 0, &m);
}

/* A rank whose bits were found wrong, and which the job needs, tells each driver that leads later;
 * one whose drain was taken back does not. */
static void it_tells_of_its_wrong_bits(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        struct rig r;
        train(&r, 60000);
        get_drain(&r, 1, wrong);
        for (int64_t term = 5; term < 7; term++) {
            rig_close(&r, 0);
            rig_reconnect(&r);
            assert_int_equal(r.sent[0]->hello->wrong, wrong);
            get_welcome(&r, term, 60000, NULL);
        }
        rig_free(&r);
    }
}

/* After it has joined again, the formation before is gone for it. */
static void it_awaits_prepare(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 60000);
    rig_close(&r, 0);
    rig_reconnect(&r);
    get_welcome(&r, 5, 60000, NULL);
    get(&r, TRAIN, 1);
    stop_engine(&r);
    assert_has(r.text, "it came before Prepare");
    rig_free(&r);
}

/* Before the first formation there is no state, but an engine that has opened its data. */
static void it_looks_for_its_driver_while_it_gathers(void **state)
{
    struct rig r;
    (void)state;
    rig_keeper(&r);
    get_welcome(&r, 4, 60000, NULL);
    rig_close(&r, 0);
    assert_int_equal(r.n_aborts, 0);
    rig_report(&r, 1, rig_opened()); /* there is no driver to be told */
    rig_reconnect(&r);
    assert_int_equal(r.sent[0]->hello->formed, 0);
    assert_int_equal(r.sent[0]->hello->step, 0);
    get_welcome(&r, 5, 60000, NULL);
    assert_int_equal(r.sent[0]->body_case, WIRE__CONTROL__BODY_READY);
    get(&r, PREPARE, 1);
    assert_int_equal(r.command->kind, CMD_PREPARE);
    rig_free(&r);
}

static void it_gives_up(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 20000);
    rig_close(&r, 0);
    rig_wait(&r, 19000);
    assert_false(r.is_finished);
    rig_wait(&r, 1500);
    stop_engine(&r);
    assert_has(r.text, "none that goes on with the run was found within 20 s");
    assert_int_equal(r.status, STATUS_FAILED);
    assert_int_equal(r.retry, RETRY_SOON);
    rig_free(&r);
}

/* A driver without an answer costs time, and the search goes on, up to the same moment. */
static void silent_drivers_are_left(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 20000);
    rig_wait(&r, 6000);
    assert_logged(&r, "no sign of life from the driver");
    assert_true(r.is_closed[0]);
    rig_reconnect(&r);
    rig_wait(&r, 10500);
    assert_int_equal(r.n_seeks, 1);
    assert_false(r.is_finished);
    rig_wait(&r, 10000);
    stop_engine(&r);
    rig_free(&r);
}

static void nothing_is_kept(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 0); /* the job says so */
    rig_close(&r, 0);
    assert_int_equal(r.n_seeks, 0);
    stop_engine(&r);
    rig_free(&r);

    train(&r, 60000);
    get(&r, ABORT, 1);
    assert_int_equal(r.n_seeks, 0);
    stop_engine(&r);
    rig_free(&r);

    train(&r, 60000);
    get(&r, STOP, 1);
    rig_close(&r, 0);
    assert_int_equal(r.n_seeks, 0);
    stop_engine(&r);
    rig_free(&r);

    train(&r, 60000);
    follower_stop(r.f, r.now, "SIGTERM");
    rig_drain(&r);
    rig_close(&r, 0);
    assert_int_equal(r.n_seeks, 0);
    stop_engine(&r);
    assert_int_equal(r.status, STATUS_STOPPED);
    rig_free(&r);
}

static void it_is_stopped_while_it_looks(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 60000);
    rig_close(&r, 0);
    follower_stop(r.f, r.now, "SIGTERM");
    rig_drain(&r);
    stop_engine(&r);
    assert_int_equal(r.status, STATUS_STOPPED);
    rig_free(&r);
}

/* A batch system may signal twice.  The engine has its moment all the same. */
static void it_is_stopped_twice(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 60000);
    rig_close(&r, 0);
    for (int i = 0; i < 3; i++)
        follower_stop(r.f, r.now, "SIGTERM");
    rig_drain(&r);
    assert_false(r.is_finished);
    stop_engine(&r);
    assert_true(r.is_finished);
    assert_false(r.is_engine_stuck);
    assert_int_equal(r.status, STATUS_STOPPED);
    rig_free(&r);
}

static void its_engine_fails_while_it_looks(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 60000);
    rig_close(&r, 0);
    struct report *fault = report_new(REPORT_FAULT, 1);
    err_set(&fault->fault.err, ERR_NOMEM, "no memory");
    rig_report(&r, 1, fault);
    stop_engine(&r);
    assert_has(r.text, "no memory");
    assert_int_equal(r.status, STATUS_FAILED);
    rig_free(&r);
}

static void what_other_drivers_say(void **state)
{
    static const struct {
        Wire__Reason reason;
        const char *run;
        int is_proven, goes_on;
        enum retry retry;
    } cases[] = {
        {WIRE__REASON__REASON_FULL, RUN, 1, 1, RETRY_NOT},
        {WIRE__REASON__REASON_RANK_TAKEN, RUN, 1, 1, RETRY_NOT},
        {WIRE__REASON__REASON_ENDING, "", 1, 0, RETRY_SOON},
        {WIRE__REASON__REASON_ENDING, RUN, 0, 0, RETRY_SOON},
        {WIRE__REASON__REASON_ENDING, "another", 0, 1, RETRY_NOT},
        {WIRE__REASON__REASON_FINISHED, RUN, 0, 0, RETRY_SOON},
        {WIRE__REASON__REASON_FINISHED, "another", 0, 1, RETRY_NOT},
        {WIRE__REASON__REASON_STALE, "another", 1, 0, RETRY_AS_NEW},
        {WIRE__REASON__REASON_STALE, RUN, 0, 0, RETRY_AS_NEW},
        {WIRE__REASON__REASON_STALE, "another", 0, 1, RETRY_NOT},
        {WIRE__REASON__REASON_VERSION, "", 1, 0, RETRY_LATER},
        {WIRE__REASON__REASON_VERSION, RUN, 0, 0, RETRY_LATER},
        {WIRE__REASON__REASON_VERSION, "", 0, 1, RETRY_NOT},
    };
    struct rig r;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        train(&r, 60000);
        rig_close(&r, 0);
        r.is_unproven = !cases[i].is_proven;
        rig_reconnect(&r);
        get_refused(&r, cases[i].reason, cases[i].run);
        assert_true(r.is_closed[0]);
        assert_int_equal(r.n_seeks, cases[i].goes_on);
        if (!cases[i].goes_on) {
            stop_engine(&r);
            assert_int_equal(r.retry, cases[i].retry);
            assert_int_equal(r.status, cases[i].reason == WIRE__REASON__REASON_FINISHED
                                           ? STATUS_OK
                                           : STATUS_REFUSED);
        }
        rig_free(&r);
    }
    train(&r, 60000);
    rig_close(&r, 0);
    rig_reconnect(&r);
    get_welcome(&r, 3, 60000, NULL); /* of an older term than the one that was lost */
    assert_true(r.is_closed[0]);
    assert_int_equal(r.n_seeks, 1);
    rig_reconnect(&r);
    get_welcome(&r, 5, 60000, "another");
    assert_logged(&r, "another run");
    assert_true(r.is_closed[0]);
    assert_int_equal(r.n_seeks, 1);
    rig_free(&r);
}

/* Whatever another process answers at the driver's address, the search goes on, up to the same
 * moment. */
static void what_is_no_driver_does_not_end_the_search(void **state)
{
    struct rig r;
    struct err garbage;
    (void)state;
    err_set(&garbage, ERR_PROTO, "10.0.0.2:7000: not a frame of dptrain: \"HTTP/1.1\"");
    train(&r, 20000);
    rig_close(&r, 0);
    rig_reconnect(&r);
    follower_closed(r.f, r.now, &garbage);
    rig_drain(&r);
    assert_int_equal(r.n_seeks, 1);
    assert_logged(&r, "not a frame of dptrain");
    rig_reconnect(&r);
    get(&r, TRAIN, 1); /* neither Welcome nor Refused */
    assert_true(r.is_closed[0]);
    assert_int_equal(r.n_seeks, 1);
    rig_wait(&r, 19000);
    assert_false(r.is_finished);
    rig_wait(&r, 1500);
    stop_engine(&r);
    assert_has(r.text, "none that goes on with the run was found within 20 s");
    assert_int_equal(r.status, STATUS_FAILED);
    rig_free(&r);
}

/* The number of log lines that have this part. */
static int n_logged(struct rig *r, const char *part)
{
    int n = 0;
    for (const char *at = buf_cstr(&r->log); (at = strstr(at, part)); at++)
        n++;
    return n;
}

/* Each time after a longer pause, and only a new reason is logged. */
static void a_driver_of_no_use_is_asked_again(void **state)
{
    static const char useless[] = "is of no use yet";
    struct rig r;
    (void)state;
    train(&r, 60000);
    rig_close(&r, 0);
    assert_false(r.seeks_again);
    for (int i = 0; i < 3; i++) {
        rig_reconnect(&r);
        get_refused(&r, WIRE__REASON__REASON_FULL, RUN);
        assert_true(r.seeks_again);
        assert_int_equal(n_logged(&r, useless), 1);
    }
    for (int i = 0; i < 3; i++) {
        rig_reconnect(&r);
        rig_close(&r, 0);
        assert_true(r.seeks_again);
        assert_int_equal(n_logged(&r, useless), 2);
    }
    rig_reconnect(&r);
    get_welcome(&r, 5, 60000, NULL);
    rig_close(&r, 0); /* another search */
    assert_false(r.seeks_again);
    rig_reconnect(&r);
    rig_close(&r, 0);
    assert_int_equal(n_logged(&r, useless), 3);
    rig_free(&r);
}

/* The dialer may find a driver while the engine of a follower that gave up still stops. */
static void a_driver_that_comes_too_late_is_left(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 20000);
    rig_close(&r, 0);
    rig_wait(&r, 20500);
    assert_false(r.is_finished);
    int n_sent = r.n_sent[0];
    rig_reconnect(&r);
    assert_true(r.is_closed[0]);
    assert_int_equal(r.n_sent[0], n_sent);
    stop_engine(&r);
    assert_has(r.text, "none that goes on with the run was found within 20 s");
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_keeps_its_state),
        cmocka_unit_test(it_tells_of_its_wrong_bits),
        cmocka_unit_test(it_awaits_prepare),
        cmocka_unit_test(it_looks_for_its_driver_while_it_gathers),
        cmocka_unit_test(it_gives_up),
        cmocka_unit_test(silent_drivers_are_left),
        cmocka_unit_test(nothing_is_kept),
        cmocka_unit_test(it_is_stopped_while_it_looks),
        cmocka_unit_test(it_is_stopped_twice),
        cmocka_unit_test(its_engine_fails_while_it_looks),
        cmocka_unit_test(what_other_drivers_say),
        cmocka_unit_test(what_is_no_driver_does_not_end_the_search),
        cmocka_unit_test(a_driver_of_no_use_is_asked_again),
        cmocka_unit_test(a_driver_that_comes_too_late_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
