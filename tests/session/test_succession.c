/* driver_succession: the driver beside a standby, and the driver that a standby becomes.  The test
 * plays all other processes and all engines. */
#include "rig.h"

static const char run[] = "run-1";

/* ---- the driver beside it ---- */

static struct driver_options with_votes(int n_ranks)
{
    struct driver_options o = rig_elastic(n_ranks);
    o.run = run;
    o.term = 4;
    o.cluster.driver_timeout_ms = 20000;
    o.cluster.min_ranks = 1;
    o.cluster.replace_timeout_ms = 10000;
    return o;
}

enum { STANDBY = 0 }; /* its connection, if it comes first */

static void standby_connects(struct rig *r, int conn)
{
    rig_connect(r, conn, "10.0.0.12");
    rig_say_hello(r, conn, &(struct rig_caller){.rank = -1, .standby = "s1"});
}

static void standby_comes(struct rig *r, int conn)
{
    standby_connects(r, conn);
    assert_int_equal(r->sent[conn]->body_case, WIRE__CONTROL__BODY_WELCOME);
}

/* The standby and n ranks, in training. */
static void train(struct rig *r, int n)
{
    struct driver_options o = with_votes(n);
    rig_driver(r, &o);
    standby_comes(r, STANDBY);
    rig_gather(r, n);
    assert_string_equal(r->sent[1]->prepare->standby, "s1");
    rig_go_on_to(r, n, CMD_TRAIN);
}

static void acknowledge(struct rig *r, int conn)
{
    Wire__Control m = *r->sent[conn]; /* it answers with the same */
    assert_int_equal(m.body_case, WIRE__CONTROL__BODY_VOTERS);
    rig_message(r, conn, &m);
}

static void followers_are_told_where_it_is(void **state)
{
    struct rig r;
    (void)state;
    struct driver_options o = with_votes(2);
    rig_driver(&r, &o);
    rig_hello(&r, 1, 1);
    assert_string_equal(r.sent[1]->welcome->standby, "");
    standby_comes(&r, 2);
    assert_string_equal(r.sent[1]->standby->address, "10.0.0.12:7001");
    rig_close(&r, 2);
    assert_string_equal(r.sent[1]->standby->address, "");
    assert_logged(&r, "the standby at 10.0.0.12:7001 was lost");
    rig_free(&r);
}

static void it_votes_in_the_next_formation(void **state)
{
    struct rig r;
    (void)state;
    struct driver_options o = with_votes(2);
    rig_train(&r, &o);
    standby_comes(&r, 2);
    rig_wait(&r, 300);
    assert_int_equal(r.n_requests, 1); /* a regroup, at the end of the step */
    rig_free(&r);
}

/* Two of three followers are gone: the standby may lead them, unless it acknowledges. */
static void the_standby_is_asked(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 4);
    assert_int_equal(r.sent[STANDBY]->voters->generation, 1);
    assert_int_equal(r.sent[STANDBY]->voters->n_ranks, 4);
    rig_close(&r, 1);
    rig_close(&r, 2);
    rig_wait(&r, 11000); /* cluster.replace_timeout */
    assert_int_equal(r.command->kind, CMD_PREPARE);
    RIG_ALL(&r, CMD_PREPARE, 1, 0, 3);
    assert_int_equal(r.command->kind, CMD_PREPARE); /* Form waits */
    assert_int_equal(r.sent[STANDBY]->voters->generation, 2);
    assert_int_equal(r.sent[STANDBY]->voters->n_ranks, 2);
    acknowledge(&r, STANDBY);
    assert_int_equal(r.command->kind, CMD_FORM);
    rig_free(&r);
}

/* One of three is gone, and two are too few for the standby: nobody is asked. */
static void or_need_not_be_asked(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 5);
    rig_close(&r, 1);
    rig_close(&r, STANDBY);
    rig_wait(&r, 11000);
    assert_int_equal(r.command->kind, CMD_PREPARE);
    RIG_ALL(&r, CMD_PREPARE, 1, 0, 2, 3, 4);
    assert_int_equal(r.command->kind, CMD_FORM);
    rig_free(&r);
}

/* Cut off from all, the driver waits, and ends without a word to anybody. */
static void a_driver_that_is_cut_off_ends(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 3);
    rig_close(&r, STANDBY);
    rig_close(&r, 1);
    rig_close(&r, 2);
    int n_commands = r.n_commands;
    rig_wait(&r, 19000);
    assert_int_equal(r.n_commands,
                     n_commands); /* it does not go on alone, as min_ranks would let */
    assert_logged(&r, "the standby may lead this run");
    assert_logged(&r, "waiting for the standby, or for rank 1, rank 2, 5 s more");
    assert_null(strstr(buf_cstr(&r.log), "a replacement of")); /* which alone would not do */
    assert_null(strstr(buf_cstr(&r.log), " 0 s more"));
    rig_wait(&r, 2000);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
    assert_true(r.is_finished);
    assert_int_equal(r.status, STATUS_FAILED);
    assert_has(r.text, "the standby at 10.0.0.12:7001 may lead this run: neither it nor");
    assert_has(r.text, "--set cluster.driver_timeout=0");
    assert_false(r.is_deposed); /* it may be started again */
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_free(&r);
}

/* A stop does not wait for the standby. */
static void one_that_is_cut_off_can_be_stopped(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 3);
    rig_close(&r, STANDBY);
    rig_close(&r, 1);
    rig_close(&r, 2);
    driver_stop(r.d, r.now, "SIGTERM");
    rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
    assert_true(r.is_finished);
    assert_int_equal(r.status, STATUS_STOPPED);
    assert_string_equal(rig_event(&r, EVENT_STANDBY)->standby.standby, "s1"); /* it may lead */
    rig_free(&r);
}

/* The id of a standby that was stopped never comes again. */
static void its_goodbye_gives_the_votes_back(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 3);
    rig_say_goodbye(&r, STANDBY);
    assert_string_equal(rig_event(&r, EVENT_STANDBY)->standby.standby, "");
    rig_close(&r, 1);
    rig_close(&r, 2);
    rig_wait(&r, 11000);
    assert_int_equal(r.command->kind, CMD_PREPARE);
    RIG_ALL(&r, CMD_PREPARE, 1, 0);
    assert_int_equal(r.command->kind, CMD_FORM);
    rig_free(&r);
}

/* A driver that resumes the job must not wait for a standby that has no followers any more. */
static void the_end_of_the_job_gives_the_votes_back(void **state)
{
    struct rig r;
    (void)state;
    for (int is_connected = 0; is_connected < 2; is_connected++) {
        train(&r, 3);
        if (!is_connected)
            rig_close(&r, STANDBY);
        driver_stop(r.d, r.now, "SIGTERM");
        driver_stop(r.d, r.now, "SIGTERM");
        rig_drain(&r);
        assert_string_equal(rig_event(&r, EVENT_STANDBY)->standby.standby, "");
        rig_free(&r);
    }
}

/* ... unless one of its followers comes back: then too few are left for the standby. */
static void or_goes_on_with_enough(void **state)
{
    struct rig r;
    char job[HASH_TEXT_LEN];
    (void)state;
    train(&r, 4);
    rig_close(&r, STANDBY);
    for (int k = 1; k < 4; k++)
        rig_close(&r, k);
    rig_wait(&r, 12000);
    hash_to_text(hash_of("name: x", 7), job);
    for (int k = 1; k < 3; k++) {
        struct rig_caller c = {.rank = k,
                               .run = run,
                               .run_job = job,
                               .term = 4,
                               .formed = 1,
                               .form = voters_of(4, 1, 4, "s1"),
                               .form_rank = k};
        rig_connect(&r, 4 + k, "10.0.0.4");
        rig_say_hello(&r, 4 + k, &c);
        int n_commands = r.n_commands;
        rig_report(&r, 4 + k, rig_opened());
        rig_wait(&r, 300);
        assert_int_equal(r.n_commands - n_commands, k == 2);
    }
    RIG_ALL(&r, CMD_PREPARE, 1, 0, 5, 6);
    assert_int_equal(r.command->kind, CMD_FORM);
    rig_free(&r);
}

static void it_is_deposed_by_the_standby(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 3);
    rig_connect(&r, 13, "10.0.0.12");
    rig_say_hello(&r, 13,
                  &(struct rig_caller){.rank = -1,
                                       .standby = "s1",
                                       .host = "h9",
                                       .run = run,
                                       .leader = "10.0.0.12:7001",
                                       .term = 1004});
    assert_true(r.is_closed[1] && r.is_closed[13]);
    assert_logged(&r, "the one at 10.0.0.12:7001, with term 1004, while this one has 4; so says "
                      "the standby on h9");
    rig_free(&r);
}

static void ranks_that_may_be_the_standbys_are_not_forgotten(void **state)
{
    struct rig r;
    struct driver_options o = with_votes(2);
    (void)state;
    o.resume = "runs/x";
    o.term = 5;
    o.led = (struct led){.generation = 7, .step = 4, .voters = voters_of(4, 7, 2, "s1")};
    rig_driver(&r, &o);
    rig_report(&r, 0, rig_opened());
    rig_come(&r, 1, 1); /* a new follower, which knows nothing */
    assert_int_equal(r.command->kind, CMD_OPEN);
    standby_comes(&r, 2);
    rig_wait(&r, 300);
    assert_int_equal(r.command->kind, CMD_PREPARE); /* the standby can be asked */
    RIG_ALL(&r, CMD_PREPARE, 0, 0, 1);
    standby_connects(&r, 3); /* its connection broke, which the driver has not noticed */
    assert_true(r.is_closed[2]);
    acknowledge(&r, 3);
    assert_int_equal(r.command->kind, CMD_FORM);
    rig_free(&r);
}

/* ---- the driver that it becomes ---- */

static void it_forms_with_those_that_let_it_lead(void **state)
{
    struct rig r;
    char job[HASH_TEXT_LEN];
    struct driver_options o = with_votes(4);
    (void)state;
    o.term = 1004;
    o.standby_id = "s1";
    o.led_by = "10.0.0.1:7000";
    o.leads_at = "10.0.0.9:7001";
    o.led = (struct led){.generation = 7, .voters = voters_of(4, 7, 3, "s1")};
    rig_driver(&r, &o);
    assert_string_equal(rig_event(&r, EVENT_LEADER)->host, "10.0.0.1:7000");
    assert_null(r.command->open.resume);
    rig_report(&r, 0, rig_opened());
    hash_to_text(hash_of("name: x", 7), job);
    for (int k = 1; k < 3; k++) {
        struct rig_caller c = {.rank = k,
                               .run = run,
                               .run_job = job,
                               .term = 4,
                               .formed = 7,
                               .step = 6,
                               .form = voters_of(4, 7, 3, "s1"),
                               .form_rank = k};
        rig_connect(&r, k, "10.0.0.4");
        rig_say_hello(&r, k, &c);
        rig_report(&r, k, rig_opened());
        r.has_state[k] = 1;
        /* all of the formation, though not all of the job, are here after the second */
        assert_int_equal(r.command->kind, k == 2 ? CMD_PREPARE : CMD_OPEN);
    }
    assert_int_equal(r.command->generation, 8);
    RIG_ALL(&r, CMD_PREPARE, 0, 0);
    RIG_ALL(&r, CMD_PREPARE, 6, 1, 2);
    assert_int_equal(r.command->form.source, 1);
    rig_free(&r);
}

/* ---- a follower lost together with the driver ---- */

/* This driver was the standby of a job of four ranks, of which so many had formed. */
static void lead_with(struct rig *r, int n_formed, int64_t min_ranks)
{
    struct driver_options o = with_votes(4);
    o.term = 1004;
    o.standby_id = "s1";
    o.led_by = "10.0.0.1:7000";
    o.leads_at = "10.0.0.9:7001";
    o.led = (struct led){.generation = 7, .voters = voters_of(4, 7, n_formed, "s1")};
    o.cluster.min_ranks = min_ranks;
    rig_driver(r, &o);
    rig_report(r, 0, rig_opened());
}

static void rank_of_comes(struct rig *r, int n_formed, int conn, int k)
{
    char job[HASH_TEXT_LEN];
    struct rig_caller c = {.rank = k,
                           .run = run,
                           .run_job = job,
                           .term = 4,
                           .formed = 7,
                           .step = 6,
                           .form = voters_of(4, 7, n_formed, "s1"),
                           .form_rank = k};
    hash_to_text(hash_of("name: x", 7), job);
    rig_connect(r, conn, "10.0.0.4");
    rig_say_hello(r, conn, &c);
    rig_report(r, conn, rig_opened());
    r->has_state[conn] = 1;
}

static void rank_comes(struct rig *r, int conn, int k) { rank_of_comes(r, 4, conn, k); }

/* The job went on with three ranks before: the fourth was lost long ago. */
static void only_ranks_of_the_formation_are_lost(void **state)
{
    struct rig r;
    (void)state;
    lead_with(&r, 3, 0);
    rank_of_comes(&r, 3, 1, 1);
    rig_wait(&r, 4000);
    assert_int_equal(rig_count(&r, EVENT_LOST), 1);
    assert_int_equal(rig_event(&r, EVENT_LOST)->rank, 2);
    rig_free(&r);
}

static void it_is_replaced(void **state)
{
    struct rig r;
    (void)state;
    lead_with(&r, 4, 0);
    rank_comes(&r, 1, 1);
    rig_wait(&r, 4000);
    assert_int_equal(rig_count(&r, EVENT_LOST), 0); /* rank 1 alone may not let it lead */
    rank_comes(&r, 3, 3);
    rig_wait(&r, 300);
    assert_int_equal(rig_count(&r, EVENT_LOST), 1);
    assert_int_equal(rig_event(&r, EVENT_LOST)->rank, 2);
    assert_has(rig_event(&r, EVENT_LOST)->text, "rank 2 was lost together with the driver");
    assert_logged(&r, "waiting up to 10 s for a replacement");
    assert_int_equal(r.command->kind, CMD_OPEN);
    rig_come(&r, 5, -1);
    assert_int_equal(r.command->kind, CMD_PREPARE);
    rig_assert_prepare(&r, 5, 2, 4);
    rig_free(&r);
}

static void or_comes_late(void **state)
{
    struct rig r;
    (void)state;
    lead_with(&r, 4, 0);
    rank_comes(&r, 1, 1);
    rank_comes(&r, 3, 3);
    rig_wait(&r, 2500);
    assert_int_equal(rig_count(&r, EVENT_LOST), 0); /* it may still come in time */
    rig_wait(&r, 1500);
    assert_int_equal(rig_count(&r, EVENT_LOST), 1);
    rank_comes(&r, 4, 2);
    assert_int_equal(r.command->kind, CMD_PREPARE);
    rig_assert_prepare(&r, 4, 2, 4);
    rig_free(&r);
}

static void or_the_others_go_on(void **state)
{
    struct rig r;
    (void)state;
    for (int min = 3; min <= 4; min++) {
        lead_with(&r, 4, min);
        rank_comes(&r, 1, 1);
        rank_comes(&r, 3, 3);
        rig_wait(&r, 12000);
        assert_int_equal(r.command->kind, CMD_OPEN);
        rig_wait(&r, 2000);
        if (min == 3)
            rig_assert_prepare(&r, 3, 2, 3);
        else
            assert_has(rig_event(&r, EVENT_ERROR)->text, "no replacement came within 10 s");
        rig_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_ranks_of_the_formation_are_lost),
        cmocka_unit_test(it_is_replaced),
        cmocka_unit_test(or_comes_late),
        cmocka_unit_test(or_the_others_go_on),
        cmocka_unit_test(followers_are_told_where_it_is),
        cmocka_unit_test(it_votes_in_the_next_formation),
        cmocka_unit_test(the_standby_is_asked),
        cmocka_unit_test(or_need_not_be_asked),
        cmocka_unit_test(a_driver_that_is_cut_off_ends),
        cmocka_unit_test(one_that_is_cut_off_can_be_stopped),
        cmocka_unit_test(its_goodbye_gives_the_votes_back),
        cmocka_unit_test(the_end_of_the_job_gives_the_votes_back),
        cmocka_unit_test(or_goes_on_with_enough),
        cmocka_unit_test(it_is_deposed_by_the_standby),
        cmocka_unit_test(ranks_that_may_be_the_standbys_are_not_forgotten),
        cmocka_unit_test(it_forms_with_those_that_let_it_lead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
