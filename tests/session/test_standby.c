/* standby, driver_succession, voters: who leads a run that has a standby.  The test plays all other
 * processes and all engines. */
#include "rig.h"

#include "base/alloc.h"

static const char run[] = "run-1";

/* ---- the count ---- */

/* The standby and the followers that stay with the driver never suffice both. */
static void two_never_lead(void **state)
{
    (void)state;
    for (int n_ranks = 1; n_ranks < 40; n_ranks++) {
        struct voters v = voters_of(1, 1, n_ranks, "s1");
        assert_false(voters_let_standby_lead(&v, 0));
        for (int n = 1; n < n_ranks; n++) {
            int n_with_driver = n_ranks - 1 - n;
            /* the driver goes on if those that are not with it could not make the standby lead */
            assert_int_equal(voters_let_standby_lead(&v, n), 2 * (n + 1) >= n_ranks + 1);
            assert_true(!voters_let_standby_lead(&v, n) || 2 * (1 + n_with_driver) <= n_ranks + 1);
        }
    }
    struct voters one = voters_of(1, 1, 2, "s1"), three = voters_of(1, 1, 4, "s1");
    assert_true(voters_let_standby_lead(&one, 1));
    assert_false(voters_let_standby_lead(&three, 1));
    assert_true(voters_let_standby_lead(&three, 2));
    struct voters later = voters_of(2, 1, 2, NULL), same = voters_of(1, 1, 9, "other");
    assert_true(voters_are_newer(&later, &one));
    assert_false(voters_are_newer(&one, &later));
    assert_true(voters_are_equal(&one, &same));
}

/* ---- the standby ---- */

static void beat(struct rig *r)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;
    m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
    m.heartbeat = &h;
    rig_message(r, 0, &m);
}

static void get_welcome(struct rig *r, int64_t term, const char *of_run)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Welcome w = WIRE__WELCOME__INIT;
    char device[] = "cpu", host[] = "h0", where[] = "10.0.0.9:7001";
    w.job = (ProtobufCBinaryData){7, (uint8_t *)(uintptr_t) "name: x"};
    w.n_ranks = 4;
    w.device = device;
    w.host = host;
    w.heartbeat_ms = 1000;
    w.heartbeat_timeout_ms = 5000;
    w.run = (char *)(uintptr_t)of_run;
    w.term = term;
    w.driver_timeout_ms = 60000;
    w.standby = where;
    m.body_case = WIRE__CONTROL__BODY_WELCOME;
    m.welcome = &w;
    rig_message(r, 0, &m);
}

static void get_voters(struct rig *r, const struct voters *v)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Voters x = WIRE__VOTERS__INIT;
    x.term = v->term;
    x.generation = v->generation;
    x.n_ranks = v->n_ranks;
    x.standby = (char *)(uintptr_t)v->standby;
    x.formed = 7;
    m.body_case = WIRE__CONTROL__BODY_VOTERS;
    m.voters = &x;
    rig_message(r, 0, &m);
}

/* Beside a driver whose formation 7 has four ranks. */
static void stand_by_with(struct rig *r, int checks_job)
{
    struct voters v = voters_of(4, 7, 4, "s1");
    rig_standby(r, checks_job);
    assert_string_equal(r->sent[0]->hello->standby, "s1");
    assert_int_equal(r->sent[0]->hello->port, 7001);
    get_welcome(r, 4, run);
    get_voters(r, &v);
    assert_int_equal(r->sent[0]->body_case, WIRE__CONTROL__BODY_VOTERS);
    assert_int_equal(r->sent[0]->voters->generation, 7);
}

static void stand_by(struct rig *r) { stand_by_with(r, 0); }

/* The follower of this rank, which had Form of that formation, has lost the driver. */
static void come(struct rig *r, int conn, int rank, struct voters form)
{
    rig_say_hello(r, conn,
                  &(struct rig_caller){.rank = rank,
                                       .run = run,
                                       .pid = 100 + rank,
                                       .term = 4,
                                       .leader = "10.0.0.1:7000",
                                       .formed = form.generation,
                                       .form = form,
                                       .form_rank = rank,
                                       .entered = form.generation});
}

static void half_of_the_voters_make_it_lead(void **state)
{
    struct rig r;
    (void)state;
    stand_by(&r);
    rig_close(&r, 0);
    assert_logged(&r, "looking for it and for its followers for 60 s");
    come(&r, 1, 1, voters_of(4, 7, 4, "s1"));
    assert_false(r.is_finished);
    come(&r, 2, 1, voters_of(4, 7, 4, "s1")); /* the same follower again */
    assert_false(r.is_finished);
    come(&r, 3, 3, voters_of(4, 7, 4, "s1"));
    assert_true(r.is_finished && r.is_leader);
    struct legacy l = standby_legacy(r.s);
    assert_string_equal(l.run, run);
    assert_int_equal(l.term, 1004);
    assert_int_equal(l.n_ranks, 4);
    assert_int_equal(l.voters.generation, 7);
    assert_true(standby_holds(r.s, 1) && standby_holds(r.s, 3));
    assert_false(r.is_closed[1]);
    struct frame *f = standby_claim(r.s);
    Wire__Control *m;
    struct err err;
    assert_int_equal(msg_unpack(f->data + FRAME_HEADER, f->len - FRAME_HEADER, &m, &err), 0);
    assert_int_equal(m->hello->term, 1004);
    assert_int_equal(m->hello->form_generation, 0); /* it votes no more */
    msg_free(m);
    frame_unref(f);
    rig_free(&r);
}

/* Votes of older formations, of formations without it, of other runs do not count. */
static void other_votes_do_not_count(void **state)
{
    struct rig r;
    (void)state;
    stand_by(&r);
    rig_close(&r, 0);
    for (int k = 1; k < 4; k++)
        come(&r, k, k, voters_of(4, 6, 4, "s1"));
    for (int k = 4; k < 7; k++) /* no such ranks */
        come(&r, 6 + k, k, voters_of(4, 7, 4, "s1"));
    assert_false(r.is_finished);
    come(&r, 4, 1, voters_of(4, 8, 2, "s2")); /* a newer one, in which another standby votes */
    for (int k = 5; k < 8; k++)
        come(&r, k, k - 4, voters_of(4, 7, 4, "s1"));
    assert_false(r.is_finished);
    rig_say_hello(&r, 8, &(struct rig_caller){.run = "another", .form = voters_of(9, 9, 2, "s1")});
    assert_int_equal(r.sent[8]->body_case, WIRE__CONTROL__BODY_REFUSED);
    rig_wait(&r, 61000);
    assert_true(r.is_finished && !r.is_leader);
    assert_int_equal(r.status, STATUS_FAILED);
    assert_has(r.text, "neither it nor enough of its followers came within 60 s");
    rig_free(&r);
}

/* The standby acknowledged a formation whose Form never went out: ranks that prepared it vote. */
static void a_prepared_formation_counts(void **state)
{
    struct rig r;
    (void)state;
    stand_by(&r);
    struct voters next = voters_of(4, 8, 4, "s1");
    get_voters(&r, &next);
    rig_close(&r, 0);
    for (int k = 1; k < 4; k++) {
        assert_false(r.is_finished);
        rig_say_hello(&r, k,
                      &(struct rig_caller){.rank = k,
                                           .run = run,
                                           .term = 4,
                                           .formed = 8,
                                           /* the first two are new to the job: they hold nothing */
                                           .form = voters_of(4, k < 3 ? 0 : 7, 4, "s1"),
                                           .form_rank = k,
                                           .entered = k < 3 ? 0 : 7});
    }
    assert_true(r.is_finished && r.is_leader);
    rig_free(&r);
}

static void check_job(struct rig *r, const char *why)
{
    standby_checked(r->s, r->now, why);
    rig_drain(r);
}

/* It leads no job of which it does not know that it can be led here. */
static void it_leads_no_job_untried(void **state)
{
    struct rig r;
    (void)state;
    stand_by_with(&r, 1);
    rig_close(&r, 0);
    come(&r, 1, 1, voters_of(4, 7, 4, "s1"));
    come(&r, 2, 2, voters_of(4, 7, 4, "s1"));
    assert_false(r.is_finished);
    check_job(&r, NULL);
    assert_true(r.is_finished && r.is_leader);
    rig_free(&r);
    stand_by_with(&r, 1);
    check_job(&r, NULL);
    get_welcome(&r, 4, run); /* the same job: no need to try it again */
    rig_close(&r, 0);
    come(&r, 1, 1, voters_of(4, 7, 4, "s1"));
    come(&r, 2, 2, voters_of(4, 7, 4, "s1"));
    assert_true(r.is_finished && r.is_leader);
    rig_free(&r);
}

/* The driver is told why, and the followers that wait are sent away. */
static void it_leads_no_job_that_it_cannot(void **state)
{
    struct rig r;
    (void)state;
    stand_by_with(&r, 1);
    check_job(&r, "there are no data");
    assert_int_equal(r.sent[0]->body_case, WIRE__CONTROL__BODY_GOODBYE);
    assert_string_equal(r.sent[0]->goodbye->text,
                        "the standby cannot lead this job: there are no data");
    assert_true(r.is_finished && !r.is_leader);
    assert_int_equal(r.status, STATUS_USAGE);
    rig_free(&r);
    stand_by_with(&r, 1);
    rig_close(&r, 0);
    come(&r, 1, 1, voters_of(4, 7, 4, "s1"));
    come(&r, 2, 2, voters_of(4, 7, 4, "s1"));
    check_job(&r, "there are no data");
    assert_true(r.is_finished && !r.is_leader && r.is_closed[1] && r.is_closed[2]);
    rig_free(&r);
}

/* The follower that was stopped votes no more. */
static void one_that_leaves_does_not_count(void **state)
{
    struct rig r;
    (void)state;
    stand_by(&r);
    rig_close(&r, 0);
    come(&r, 1, 1, voters_of(4, 7, 4, "s1"));
    rig_say_goodbye(&r, 1);
    assert_true(r.is_closed[1]);
    assert_false(standby_holds(r.s, 1));
    come(&r, 2, 3, voters_of(4, 7, 4, "s1"));
    assert_false(r.is_finished);
    rig_free(&r);
}

static int n_said(struct rig *r, const char *part)
{
    int n = 0;
    for (const char *at = buf_cstr(&r->log); (at = strstr(at, part)); at++)
        n++;
    return n;
}

/* The log tells of each follower once, however often it comes, until the driver is lost again. */
static void the_log_tells_of_each_follower_once(void **state)
{
    static const char came[] = "lost the driver and came here";
    struct rig r;
    (void)state;
    stand_by(&r);
    rig_close(&r, 0);
    for (int conn = 1; conn < 4; conn++) {
        come(&r, conn, 1, voters_of(4, 7, 4, "s1"));
        rig_close(&r, conn);
    }
    assert_int_equal(n_said(&r, came), 1);
    assert_logged(&r, "a follower on h (rank 1) lost the driver");
    rig_say_hello(&r, 4, &(struct rig_caller){.rank = 2, .run = run, .term = 4, .pid = 102});
    assert_logged(&r, "a follower on h (no rank yet) lost the driver");
    assert_int_equal(n_said(&r, came), 2);
    rig_reconnect(&r);
    get_welcome(&r, 4, run);
    rig_close(&r, 0);
    come(&r, 5, 1, voters_of(4, 7, 4, "s1"));
    assert_int_equal(n_said(&r, came), 3);
    rig_free(&r);
}

/* A follower that lost a driver which is there is sent back at the driver's next word. */
static void it_sends_followers_back(void **state)
{
    struct rig r;
    (void)state;
    stand_by(&r);
    come(&r, 1, 1, voters_of(4, 7, 4, "s1"));
    assert_false(r.is_closed[1]);
    beat(&r);
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_REFUSED);
    assert_true(r.is_closed[1]);
    rig_close(&r, 0);
    come(&r, 2, 1, voters_of(4, 7, 4, "s1"));
    rig_reconnect(&r); /* the driver is there again */
    assert_int_equal(r.sent[0]->hello->form_generation, 7);
    get_welcome(&r, 4, run);
    assert_true(r.is_closed[2]);
    come(&r, 3, 1, voters_of(4, 7, 4, "s1"));
    rig_wait(&r, 5500); /* the driver is silent */
    assert_logged(&r, "no sign of life from the driver for 5");
    come(&r, 4, 2, voters_of(4, 7, 4, "s1"));
    assert_true(r.is_leader);
    rig_free(&r);
}

static void it_ends_as_the_job_does(void **state)
{
    static const struct {
        Wire__Outcome outcome;
        int status;
    } cases[] = {{WIRE__OUTCOME__OUTCOME_FINISHED, STATUS_OK},
                 {WIRE__OUTCOME__OUTCOME_STOPPED, STATUS_STOPPED},
                 {WIRE__OUTCOME__OUTCOME_FAILED, STATUS_FAILED}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Wire__Control m = WIRE__CONTROL__INIT;
        Wire__Stop stop = WIRE__STOP__INIT;
        char text[] = "that is all";
        struct rig r;
        stand_by(&r);
        stop.outcome = cases[i].outcome;
        stop.text = text;
        m.body_case = WIRE__CONTROL__BODY_STOP;
        m.stop = &stop;
        rig_message(&r, 0, &m);
        assert_true(r.is_finished && !r.is_leader);
        assert_int_equal(r.status, cases[i].status);
        rig_free(&r);
    }
}

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
    assert_string_equal(rig_event(&r, EVENT_STANDBY)->voters.standby, "s1"); /* it may lead */
    rig_free(&r);
}

/* The id of a standby that was stopped never comes again. */
static void its_goodbye_gives_the_votes_back(void **state)
{
    struct rig r;
    (void)state;
    train(&r, 3);
    rig_say_goodbye(&r, STANDBY);
    assert_string_equal(rig_event(&r, EVENT_STANDBY)->voters.standby, "");
    rig_close(&r, 1);
    rig_close(&r, 2);
    rig_wait(&r, 11000);
    assert_int_equal(r.command->kind, CMD_PREPARE);
    RIG_ALL(&r, CMD_PREPARE, 1, 0);
    assert_int_equal(r.command->kind, CMD_FORM);
    rig_free(&r);
}

/* Whoever resumes the job must not wait for a standby that has no followers any more. */
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
        assert_string_equal(rig_event(&r, EVENT_STANDBY)->voters.standby, "");
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

/* This driver was the standby of four ranks. */
static void lead_four(struct rig *r, int64_t min_ranks)
{
    struct driver_options o = with_votes(4);
    o.term = 1004;
    o.standby_id = "s1";
    o.led_by = "10.0.0.1:7000";
    o.leads_at = "10.0.0.9:7001";
    o.led = (struct led){.generation = 7, .voters = voters_of(4, 7, 4, "s1")};
    o.cluster.min_ranks = min_ranks;
    rig_driver(r, &o);
    rig_report(r, 0, rig_opened());
}

static void rank_comes(struct rig *r, int conn, int k)
{
    char job[HASH_TEXT_LEN];
    struct rig_caller c = {.rank = k,
                           .run = run,
                           .run_job = job,
                           .term = 4,
                           .formed = 7,
                           .step = 6,
                           .form = voters_of(4, 7, 4, "s1"),
                           .form_rank = k};
    hash_to_text(hash_of("name: x", 7), job);
    rig_connect(r, conn, "10.0.0.4");
    rig_say_hello(r, conn, &c);
    rig_report(r, conn, rig_opened());
    r->has_state[conn] = 1;
}

static void it_is_replaced(void **state)
{
    struct rig r;
    (void)state;
    lead_four(&r, 0);
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
    lead_four(&r, 0);
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
        lead_four(&r, min);
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
        cmocka_unit_test(it_is_replaced),
        cmocka_unit_test(or_comes_late),
        cmocka_unit_test(or_the_others_go_on),
        cmocka_unit_test(two_never_lead),
        cmocka_unit_test(half_of_the_voters_make_it_lead),
        cmocka_unit_test(other_votes_do_not_count),
        cmocka_unit_test(a_prepared_formation_counts),
        cmocka_unit_test(it_leads_no_job_untried),
        cmocka_unit_test(it_leads_no_job_that_it_cannot),
        cmocka_unit_test(one_that_leaves_does_not_count),
        cmocka_unit_test(the_log_tells_of_each_follower_once),
        cmocka_unit_test(it_sends_followers_back),
        cmocka_unit_test(it_ends_as_the_job_does),
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
