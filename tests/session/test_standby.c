/* standby, voters: who leads a run that has a standby.  The test plays all other processes. */
#include "rig.h"

#include "base/hash.h"

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

/* A heartbeat with the account of the run, or with numbers of another version. */
static void beat_with_account(struct rig *r, size_t n, int64_t first)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;
    int64_t account[ACCOUNT_NUMBERS + 1] = {first, 20, [ACCOUNT_KINDS] = 77, 5};
    h.n_account = n;
    h.account = account;
    h.package_mj = n == ACCOUNT_NUMBERS ? 900 : 950;
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
    beat_with_account(&r, ACCOUNT_NUMBERS, 30);
    beat_with_account(&r, ACCOUNT_NUMBERS + 1, 31); /* of another version: the first one stays */
    beat_with_account(&r, 0, 31);
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
    assert_true(l.account_ns > 0);
    assert_int_equal(account_wall_ns(&l.account.times), 50);
    assert_int_equal(l.account.times.rank_us, 77);
    assert_int_equal(l.energy.mj[ENERGY_PACKAGE], 950);
    assert_int_equal(l.energy.mj[ENERGY_GPU], 0);
    assert_int_equal(l.account.mark[0].step, 5);
    assert_int_equal(l.account.mark[0].ns, 30);
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
    char hash[HASH_TEXT_LEN];
    (void)state;
    hash_to_text(hash_of("name: x", 7), hash);
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
    assert_string_equal(r.sent[0]->hello->run_job, hash); /* by which it knows the job */
    get_welcome(&r, 4, run);
    assert_true(r.is_closed[2]);
    come(&r, 3, 1, voters_of(4, 7, 4, "s1"));
    rig_wait(&r, 5500); /* the driver is silent */
    assert_logged(&r, "no sign of life from the driver for 5");
    come(&r, 4, 2, voters_of(4, 7, 4, "s1"));
    assert_true(r.is_leader);
    rig_free(&r);
}

/* A second signal to the driver ends the job at once.  A failure does so, too. */
static void it_ends_at_once_as_the_job_does(void **state)
{
    (void)state;
    for (int stopped = 0; stopped < 2; stopped++) {
        Wire__Control m = WIRE__CONTROL__INIT;
        Wire__Abort a = WIRE__ABORT__INIT;
        char text[] = "that is all";
        struct rig r;
        stand_by(&r);
        a.text = text;
        a.stopped = stopped;
        m.body_case = WIRE__CONTROL__BODY_ABORT;
        m.abort = &a;
        rig_message(&r, 0, &m);
        assert_true(r.is_finished && !r.is_leader);
        assert_int_equal(r.status, stopped ? STATUS_STOPPED : STATUS_FAILED);
        rig_free(&r);
    }
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

/* The Hello of a follower of formation 7 that entered this formation. */
static void come_from(struct rig *r, int conn, int rank, int64_t term, int64_t entered)
{
    rig_say_hello(r, conn,
                  &(struct rig_caller){.rank = rank,
                                       .run = run,
                                       .pid = 100 + rank,
                                       .term = term,
                                       .leader = "10.0.0.1:7000",
                                       .formed = 7,
                                       .form = voters_of(4, 7, 4, "s1"),
                                       .form_rank = rank,
                                       .entered = entered});
}

/* The driver said that all ranks entered formation 7: these two have an older state. */
static void it_leads_with_the_newest_state(void **state)
{
    struct rig r;
    (void)state;
    stand_by(&r);
    rig_close(&r, 0);
    come_from(&r, 1, 1, 4, 6);
    come_from(&r, 2, 2, 4, 6);
    assert_false(r.is_finished);
    come_from(&r, 3, 3, 4, 7);
    assert_true(r.is_finished && r.is_leader);
    rig_free(&r);
}

/* Rank 0 is the driver, and no follower.  The new term is higher than any that a follower knows. */
static void claims_of_followers(void **state)
{
    struct rig r;
    (void)state;
    stand_by(&r);
    rig_close(&r, 0);
    come_from(&r, 1, 0, 4, 7);
    come_from(&r, 2, 2, 4, 7);
    assert_false(r.is_finished);
    come_from(&r, 3, 3, 9, 7);
    assert_true(r.is_finished && r.is_leader);
    assert_int_equal(standby_legacy(r.s).term, 1009);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_leads_with_the_newest_state),
        cmocka_unit_test(claims_of_followers),
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
        cmocka_unit_test(it_ends_at_once_as_the_job_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
