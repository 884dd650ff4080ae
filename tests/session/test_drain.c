/* driver_drain: which ranks may be drained, when, and how the job goes on. Answers and events are
 * compared as scripts read them. */
#include "rig.h"

/* `part` is a part of the answer, or of the reason of a refusal. */
static void drain(struct rig *r, const char *who, int rc, const char *part)
{
    struct drained drained = {.n = 0};
    struct buf answer = {0};
    struct err err = {0};
    assert_int_equal(driver_drain(r->d, r->now, who, &drained, &err), rc);
    rig_drain(r);
    for (int i = 0; i < drained.n; i++)
        buf_printf(&answer, "%s\n", drained.leaver[i].line);
    assert_has(rc ? err.msg : buf_cstr(&answer), part);
    assert_true(!rc || drained.n == 0);
    drained_fini(&drained);
    buf_fini(&answer);
}

/* Scripts read the answer's first leaver, and its event. */
static void drain_one(struct rig *r, const char *who, int rank, int spare, const char *when)
{
    struct drained drained = {.n = 0};
    struct err err = {0};
    assert_int_equal(driver_drain(r->d, r->now, who, &drained, &err), 0);
    rig_drain(r);
    const struct leaver *l = &drained.leaver[0];
    const struct session_event *e = rig_event(r, EVENT_DRAIN);
    assert_int_equal(drained.n, 1);
    assert_int_equal(l->rank, rank);
    assert_int_equal(l->spare, spare);
    assert_string_equal(l->when, when);
    assert_int_equal(e->rank, rank);
    assert_int_equal(e->drain.spare, spare);
    assert_string_equal(e->host, l->host);
    assert_int_equal(e->drain.pid, l->pid);
    assert_string_equal(e->text, when);
    drained_fini(&drained);
}

static void the_operator_drains_a_rank(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    o.cluster.min_ranks = 2;
    rig_train(&r, &o);
    drain(&r, "0", ERR_REFUSED, "rank 0 cannot be drained: the driver itself runs there");
    drain(&r, "h0", ERR_REFUSED, "h0 cannot be drained: the driver itself runs there");
    drain(&r, "3", ERR_REFUSED, "3 cannot be drained: there is no such rank or spare now");
    drain(&r, "spare0", ERR_REFUSED, "there is no such rank or spare now");
    drain(&r, "spare1", ERR_REFUSED, "there is no such rank or spare now");
    drain(&r, "4294967297", ERR_REFUSED, "neither a rank, nor a spare, nor the host of one");
    drain(&r, "", ERR_REFUSED, "neither a rank, nor a spare, nor the host of one");
    drain(&r, "h3", ERR_REFUSED, "h3 cannot be drained: neither a rank");
    drain_one(&r, "1", 1, 0, "step");
    drain(&r, "1", 0, "rank 1 (h1, pid 101) leaves already, when the step under way is done\n");
    assert_int_equal(rig_count(&r, EVENT_DRAIN), 1);
    drain(&r, "2", ERR_REFUSED,
          "2 cannot be drained: 1 rank would be left, and the job needs 2 (cluster.min_ranks) and "
          "lets in no other before one leaves (cluster.spares)");
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_TRAIN);
    RIG_ALL(&r, CMD_TRAIN, 2, 0, 1, 2);
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_STOP);
    assert_true(r.is_drained[1]);
    assert_string_equal(rig_event(&r, EVENT_LOST)->text, "rank 1 (h1) was drained");
    rig_assert_prepare(&r, 2, 1, 2);
    drain(&r, "1", ERR_REFUSED, "start another follower first"); /* there is room now */
    rig_free(&r);
}

/* A drain can also be requested while the ranks form again. */
static void a_drain_waits_for_the_formation(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(4);
    (void)state;
    o.cluster.min_ranks = 2;
    o.cluster.spares = 1;
    rig_train(&r, &o);
    rig_come(&r, 5, -1);
    rig_close(&r, 1);
    rig_assert_prepare(&r, 5, 1, 4);
    drain_one(&r, "2", 2, 0, "formed");
    RIG_ALL(&r, CMD_PREPARE, 0, 0, 5, 2, 3);
    drain(&r, "3", 0, "rank 3 (h3, pid 103) leaves as soon as the ranks have formed again");
    RIG_ALL(&r, CMD_FORM, 0, 0, 5, 2, 3);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    rig_wait(&r, 300);
    assert_true(r.n_requests > 0);
    RIG_ALL(&r, CMD_TRAIN, 1, 0, 5, 2, 3);
    assert_true(r.is_drained[2] && r.is_drained[3]);
    rig_assert_prepare(&r, 5, 1, 2);
    rig_free(&r);
}

/* Rank k is on hosts[k - 1]. */
static void train_on_hosts(struct rig *r, const struct driver_options *o,
                           const char *const hosts[4])
{
    rig_driver(r, o);
    rig_report(r, 0, rig_opened());
    for (int conn = 1; conn < 5; conn++) {
        rig_hello_from(r, conn, conn, hosts[conn - 1]);
        rig_report(r, conn, rig_opened());
    }
    while (r->command->kind != CMD_TRAIN)
        rig_answer_all(r, 5);
}

static void a_host_is_drained_whole_or_not_at_all(void **state)
{
    static const char *const hosts[] = {"a", "b", "b", "c"};
    struct rig r;
    struct driver_options o = rig_elastic(5);
    (void)state;
    o.cluster.min_ranks = 3;
    train_on_hosts(&r, &o, hosts);
    drain(&r, "c", 0, "rank 4 (c, pid 104) leaves when the step under way is done\n");
    drain(&r, "b", ERR_REFUSED, "b cannot be drained: 2 ranks would be left");
    assert_int_equal(r.n_requests, 1);
    RIG_ALL(&r, CMD_TRAIN, 2, 0, 1, 2, 3, 4);
    rig_assert_prepare(&r, 3, 3, 4);
    rig_come(&r, 6, -1);
    RIG_ALL(&r, CMD_PREPARE, 2, 0, 1, 2, 3);
    RIG_ALL(&r, CMD_FORM, 2, 0, 1, 2, 3);
    drain(&r, "b", 0,
          "rank 2 (b, pid 102) leaves when the step under way is done\nrank 3 (b, pid 103)");
    RIG_ALL(&r, CMD_TRAIN, 3, 0, 1, 2, 3);
    assert_int_equal(rig_count(&r, EVENT_LOST), 3);
    rig_assert_prepare(&r, 6, 2, 3);
    rig_free(&r);
}

static void it_can_be_too_early_or_too_late(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    o.cluster.min_ranks = 1;
    rig_driver(&r, &o);
    rig_gather(&r, 3);
    drain(&r, "1", ERR_REFUSED, "1 cannot be drained: training has not begun; end that follower");
    while (r.command->kind != CMD_TRAIN)
        rig_answer_all(&r, 3);
    driver_stop(r.d, r.now, "SIGTERM");
    rig_drain(&r);
    drain(&r, "1", ERR_REFUSED, "1 cannot be drained: the job is ending");
    rig_free(&r);
}

/* The job ends before the drained rank could leave: it does not come back for the next job. */
static void who_is_drained_stays_away_when_the_job_ends(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(4);
    (void)state;
    o.cluster.min_ranks = 2;
    rig_train(&r, &o);
    drain(&r, "1", 0, "leaves");
    driver_stop(r.d, r.now, "SIGTERM");
    driver_stop(r.d, r.now, "SIGTERM"); /* at once */
    rig_drain(&r);
    assert_true(r.is_drained[1]);
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_ABORT);
    assert_has(r.sent[1]->abort->text, "stopped at once by SIGTERM");
    assert_true(r.sent[1]->abort->stopped);
    assert_false(r.is_drained[2]);
    assert_int_equal(r.sent[2]->body_case, WIRE__CONTROL__BODY_ABORT);
    rig_free(&r);

    o.n_epochs = 1;
    rig_train(&r, &o);
    drain(&r, "1", 0, "leaves");
    while (!r.is_closed[2] && rig_count(&r, EVENT_DONE) == 0)
        rig_answer_all(&r, 4); /* the epoch's last step was under way */
    assert_true(r.is_drained[1]);
    assert_false(r.is_drained[2]);
    assert_has(r.sent[1]->stop->text, "finished");
    rig_free(&r);
}

/* The drained rank hangs, or is lost, before it could leave.  It was told, and nobody waits for
 * it. */
static void who_is_drained_and_lost_is_gone(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    o.cluster.min_ranks = 2;
    rig_train(&r, &o);
    drain(&r, "1", 0, "leaves when the step under way is done");
    rig_close(&r, 1);
    assert_true(r.is_drained[1]);
    rig_assert_prepare(&r, 2, 1, 2); /* at once */
    assert_null(strstr(buf_cstr(&r.log), "waiting up to"));
    rig_free(&r);

    rig_train(&r, &o); /* another rank is lost: its replacement is waited for */
    drain(&r, "1", 0, "leaves");
    rig_close(&r, 2);
    assert_false(r.is_drained[1]);
    assert_logged(&r, "waiting up to 30 s for a replacement");
    rig_free(&r);

    o.cluster.min_ranks = 1;
    rig_train(&r, &o); /* both ranks are lost: a replacement is waited for, too */
    rig_close(&r, 2);
    drain(&r, "1", 0, "leaves at once");
    assert_logged(&r, "waiting up to 30 s for a replacement");
    rig_free(&r);
}

/* The spare that was to take its place is lost first.  Without the drained rank the job would
 * end. */
static void a_drain_is_taken_back(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    o.cluster.spares = 1;
    o.cluster.replace_timeout_ms = 0;
    rig_train(&r, &o);
    rig_come(&r, 2, -1);
    rig_answer_all(&r, 2);
    assert_int_equal(r.command->kind, CMD_VALIDATE);
    drain_one(&r, "1", 1, 0, "epoch");
    assert_true(r.is_drained[1]);
    rig_close(&r, 2);
    while (r.command->kind != CMD_TRAIN)
        rig_answer_all(&r, 2);
    assert_false(r.is_drained[1]);
    assert_logged(&r, "rank 1 (h1) was drained, and stays after all: 1 rank would be left now, and "
                      "the job needs 2 (cluster.min_ranks)");
    assert_int_equal(rig_count(&r, EVENT_LOST), 0);
    const struct session_event *e = rig_event(&r, EVENT_DRAIN);
    assert_string_equal(e->text, "taken_back");
    assert_int_equal(e->rank, 1);
    assert_string_equal(e->host, "h1");
    assert_int_equal(e->drain.pid, 101);
    rig_free(&r);

    o = rig_elastic(3); /* the job can do without rank 2, but not without both */
    o.cluster.min_ranks = 2;
    o.cluster.replace_timeout_ms = 0;
    rig_train(&r, &o);
    drain(&r, "1", 0, "leaves");
    rig_close(&r, 2);
    assert_false(r.is_drained[1]);
    rig_assert_prepare(&r, 1, 1, 2);
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_free(&r);
}

/* The ranks agree on a regroup one step ahead: in the last two steps of an epoch, a request may
 * come too late for the epoch's last step.  An epoch has 4 steps. */
static void in_the_last_two_steps_it_may_be_the_epoch(void **state)
{
    (void)state;
    for (int64_t step = 1; step <= 3; step++) {
        struct rig r;
        struct driver_options o = rig_elastic(3);
        struct progress p = {.generation = 1, .epoch = 1, .step = step, .phase = PHASE_LOAD};
        o.cluster.min_ranks = 2;
        rig_train(&r, &o);
        driver_progress(r.d, r.now, &p);
        rig_drain(&r);
        drain_one(&r, "1", 1, 0, step <= 2 ? "step" : "epoch");
        rig_free(&r);
    }
}

static void spares_are_drained_at_once(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    o.cluster.spares = 1;
    rig_train(&r, &o);
    rig_come(&r, 2, -1);
    drain_one(&r, "spare1", -1, 1, "now");
    assert_true(r.is_drained[2]);
    assert_int_equal(rig_count(&r, EVENT_LOST), 0); /* no rank is lost */
    assert_int_equal(r.n_requests, 0);
    drain(&r, "spare1", ERR_REFUSED, "there is no such rank or spare now");
    rig_come(&r, 3, -1); /* its place is free */
    rig_free(&r);
}

/* A host's name may look like a rank or a spare; prefixes say which is meant. */
static void a_name_can_be_made_plain(void **state)
{
    static const char *const hosts[] = {"2", "spare1", "rank:2", "h9"};
    struct rig r;
    struct driver_options o = rig_elastic(5);
    (void)state;
    o.cluster.min_ranks = 1;
    train_on_hosts(&r, &o, hosts);
    drain(&r, "rank:9", ERR_REFUSED, "rank:9 cannot be drained: there is no such rank or spare");
    drain(&r, "rank:", ERR_REFUSED, "there is no such rank or spare now");
    drain(&r, "rank:h9", ERR_REFUSED, "there is no such rank or spare now");
    drain(&r, "rank:0", ERR_REFUSED, "rank 0 cannot be drained: the driver itself runs there");
    drain(&r, "spare1", ERR_REFUSED, "there is no such rank or spare now");
    drain(&r, "spare:1", ERR_REFUSED, "there is no such rank or spare now");
    drain(&r, "spare:", ERR_REFUSED, "there is no such rank or spare now");
    drain(&r, "host:", ERR_REFUSED,
          "host: cannot be drained: no rank or spare runs on a host of that name (--status)");
    drain(&r, "host:3", ERR_REFUSED, "host:3 cannot be drained: no rank or spare runs on a host");
    drain(&r, "host:h0", ERR_REFUSED, "host:h0 cannot be drained: the driver itself runs there");
    drain(&r, "2", 0, "rank 2 (spare1, pid 102) leaves");
    drain(&r, "host:2", 0, "rank 1 (2, pid 101) leaves");
    drain(&r, "host:spare1", 0, "rank 2 (spare1, pid 102) leaves already");
    drain(&r, "rank:2", 0, "rank 2 (spare1, pid 102) leaves already");
    drain(&r, "host:rank:2", 0, "rank 3 (rank:2, pid 103) leaves");
    drain(&r, "host:h9", 0, "rank 4 (h9, pid 104) leaves");
    assert_int_equal(rig_count(&r, EVENT_DRAIN), 4); /* one each, however often requested */
    rig_free(&r);
}

/* A rank that is already leaving is then told to stay away, which is no news for the others. */
static void who_leaves_already_is_drained_without_an_event(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    o.cluster.min_ranks = 2;
    rig_train(&r, &o);
    rig_say_goodbye(&r, 1);
    drain(&r, "1", 0, "rank 1 (h1, pid 101) leaves already, when the step under way is done\n");
    assert_true(r.is_drained[1]);
    assert_int_equal(rig_count(&r, EVENT_DRAIN), 0);
    RIG_ALL(&r, CMD_TRAIN, 3, 0, 1, 2);
    assert_string_equal(rig_event(&r, EVENT_LOST)->text, "rank 1 (h1) left: stopped by SIGTERM");
    rig_free(&r);
}

/* The rank asked to leave after it was drained: it leaves of its own will. */
static void who_asks_to_leave_is_drained_no_more(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    o.cluster.min_ranks = 2;
    rig_train(&r, &o);
    drain(&r, "1", 0, "leaves when the step under way is done");
    rig_say_goodbye(&r, 1);
    RIG_ALL(&r, CMD_TRAIN, 3, 0, 1, 2);
    assert_string_equal(rig_event(&r, EVENT_LOST)->text, "rank 1 (h1) left: stopped by SIGTERM");
    assert_string_equal(r.sent[1]->stop->text, "stopped: its place in the job is free now");
    rig_free(&r);
}

/* A drain that was taken back has ended: the next loss does not take it back again. */
static void a_drain_is_taken_back_once(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    o.cluster.spares = 1;
    rig_train(&r, &o);
    rig_come(&r, 3, -1);
    rig_answer_all(&r, 3);
    assert_int_equal(r.command->kind, CMD_VALIDATE);
    drain(&r, "1", 0, "leaves");
    rig_close(&r, 3);
    rig_go_on_to(&r, 3, CMD_TRAIN);
    assert_string_equal(rig_event(&r, EVENT_DRAIN)->text, "taken_back");
    rig_close(&r, 2);
    assert_logged(&r, "waiting up to 30 s for a replacement");
    assert_int_equal(rig_count(&r, EVENT_DRAIN), 2); /* the drain, and that it was taken back */
    rig_free(&r);
}

static void while_all_wait_a_drain_counts_too(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(4);
    (void)state;
    o.cluster.min_ranks = 2;
    rig_train(&r, &o);
    rig_close(&r, 1);
    drain(&r, "2", 0, "rank 2 (h2, pid 102) leaves at once");
    assert_true(r.is_drained[2]);
    rig_wait(&r, 31000);
    rig_assert_prepare(&r, 3, 1, 2);
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_operator_drains_a_rank),
        cmocka_unit_test(a_drain_waits_for_the_formation),
        cmocka_unit_test(a_host_is_drained_whole_or_not_at_all),
        cmocka_unit_test(it_can_be_too_early_or_too_late),
        cmocka_unit_test(who_is_drained_stays_away_when_the_job_ends),
        cmocka_unit_test(who_is_drained_and_lost_is_gone),
        cmocka_unit_test(a_drain_is_taken_back),
        cmocka_unit_test(in_the_last_two_steps_it_may_be_the_epoch),
        cmocka_unit_test(spares_are_drained_at_once),
        cmocka_unit_test(a_name_can_be_made_plain),
        cmocka_unit_test(who_leaves_already_is_drained_without_an_event),
        cmocka_unit_test(while_all_wait_a_drain_counts_too),
        cmocka_unit_test(who_asks_to_leave_is_drained_no_more),
        cmocka_unit_test(a_drain_is_taken_back_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
