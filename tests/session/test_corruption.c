/* Wrong bits that the ranks found: the event, and what becomes of the rank and of the job. */
#include "rig.h"

#include "base/alloc.h"
#include "base/util.h"

static struct report *found(int rank, int is_healed)
{
    struct report *r = report_new(REPORT_CORRUPTION, 1);

    r->corruption.step = 2;
    r->corruption.rank = rank;
    r->corruption.is_proven = 1;
    r->corruption.what = is_healed ? CORRUPTION_GRADIENT : CORRUPTION_STATE;
    r->corruption.share = is_healed ? 0 : -1;
    r->corruption.is_healed = is_healed;
    r->corruption.tensor = xstrdup("conv1.weight");
    return r;
}

static void mended_bits_are_told_and_the_job_goes_on(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 3, CMD_TRAIN);
    rig_report(&r, 0, found(2, 1));
    const struct session_event *e = rig_event(&r, EVENT_CORRUPTION);
    assert_int_equal(e->rank, 2);
    assert_string_equal(e->host, "h2");
    assert_int_equal(e->step, 2);
    assert_int_equal(e->corruption.what, CORRUPTION_GRADIENT);
    assert_true(e->corruption.is_healed);
    assert_int_equal(e->corruption.share, 0);
    assert_has(e->text, "rank 2 (h2) computed a gradient of rank 0's share that another rank does "
                        "not get, in step 2, first in conv1.weight: it was mended");
    assert_logged(&r, e->text);
    assert_int_equal(rig_count(&r, EVENT_ERROR) + rig_count(&r, EVENT_DRAIN), 0);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    rig_free(&r);
}

static void a_state_that_cannot_be_mended_ends_the_job(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    struct report *p = found(1, 0);
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 3, CMD_TRAIN);
    p->corruption.ends = 1;
    rig_report(&r, 0, p);
    assert_false(rig_event(&r, EVENT_CORRUPTION)->corruption.is_healed);
    assert_int_equal(rig_event(&r, EVENT_CORRUPTION)->corruption.share, -1);
    assert_int_equal(rig_event(&r, EVENT_ERROR)->rank, 1);
    assert_has(rig_event(&r, EVENT_ERROR)->text,
               "rank 1 (h1) holds a state that differs from that of other ranks, after step 2, "
               "first in conv1.weight: the job ends");
    assert_int_equal(r.command->kind, CMD_STOP);
    assert_false(r.command->stop.saves);
    rig_free(&r);
}

/* A rank at fault goes like one that is drained. */
static void a_rank_at_fault_leaves(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    struct report *p = found(1, 1);
    (void)state;
    o.cluster.min_ranks = 2;
    rig_train(&r, &o);
    p->corruption.leaves = 1;
    rig_report(&r, 0, p);
    assert_logged(&r, "rank 1 (h1) is drained, because its bits are wrong");
    assert_true(r.is_drained[1]);
    assert_int_equal(r.n_requests, 1); /* to form again */
    rig_free(&r);
}

static void find_at_fault(struct rig *r, int rank)
{
    struct report *p = found(rank, 1);

    p->corruption.leaves = 1;
    rig_report(r, 0, p);
}

/* It stays if the job needs it, and so does the driver's own rank.  A follower is told, because it
 * has to tell the next driver. */
static void a_rank_that_is_needed_stays(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct rig r;
        struct driver_options o = rig_elastic(3);
        o.cluster.min_ranks = rank == 0 ? 1 : 3;
        rig_train(&r, &o);
        find_at_fault(&r, rank);
        assert_logged(&r, rank == 0 ? "rank 0 (h0) stays for now, although its bits were wrong: "
                                      "the driver runs there"
                                    : "rank 1 (h1) stays for now, although its bits were wrong: "
                                      "the job needs it");
        rig_wait(&r, 600);
        assert_false(r.is_drained[1]);
        assert_int_equal(r.is_wrong[1], rank == 1);
        assert_int_equal(r.n_requests, 0);
        rig_free(&r);
    }
}

/* The operator drains a rank at fault, and its drain is taken back, as another rank is lost. */
static void a_rank_that_was_leaving_leaves_later(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    struct drained drained = {.n = 0};
    struct err err;
    (void)state;
    o.cluster.min_ranks = 2;
    o.cluster.replace_timeout_ms = 0;
    rig_train(&r, &o);
    assert_int_equal(driver_drain(r.d, r.now, "1", &drained, &err), 0);
    drained_fini(&drained);
    rig_drain(&r);
    find_at_fault(&r, 1);
    assert_true(r.is_drained[1]);
    rig_close(&r, 2);
    rig_go_on_to(&r, 2, CMD_TRAIN);
    assert_false(r.is_drained[1]);
    assert_true(r.is_wrong[1]);
    rig_come(&r, 3, -1);
    rig_wait(&r, 600);
    assert_true(r.is_drained[1]);
    rig_free(&r);
}

/* It leaves when another follower has come that can take its place. */
static void a_rank_that_stays_leaves_later(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    o.cluster.min_ranks = 3;
    o.cluster.spares = 1;
    rig_train(&r, &o);
    find_at_fault(&r, 1);
    assert_false(r.is_drained[1]);
    rig_come(&r, 5, -1);
    rig_wait(&r, 600);
    assert_true(r.is_drained[1]);
    assert_false(r.is_drained[2]);
    assert_logged(&r, "rank 1 (h1) is drained, because its bits are wrong");
    rig_free(&r);
}

/* Another driver leads than the one that found wrong bits of rank 1 and needed it.  The rank leaves
 * once a spare has come that takes its place. */
static void a_rank_found_wrong_before_leaves(void **state)
{
    struct rig r;
    struct driver_options o = rig_with_votes(3);
    char job[HASH_TEXT_LEN];
    struct rig_caller c = {
        .run = "run-1", .run_job = job, .term = 1, .leader = "the-leader:7000", .formed = 5};
    (void)state;
    o.resume = "runs/x";
    o.cluster.spares = 1;
    hash_to_text(hash_of("name: x", 7), job);
    rig_driver(&r, &o);
    rig_report(&r, 0, rig_opened());
    for (int k = 1; k < 3; k++) {
        c.rank = k;
        c.wrong = k == 1;
        rig_connect(&r, k, "10.0.0.9");
        rig_say_hello(&r, k, &c);
        rig_report(&r, k, rig_opened());
    }
    assert_logged(&r, "bits of rank 1 (h) were found wrong before");
    rig_go_on_to(&r, 3, CMD_TRAIN);
    rig_wait(&r, 600);
    assert_false(r.is_drained[1]);
    rig_come(&r, 5, -1);
    rig_wait(&r, 600);
    assert_true(r.is_drained[1]);
    assert_false(r.is_drained[2]);
    assert_logged(&r, "rank 1 (h) is drained, because its bits are wrong");
    rig_free(&r);
}

/* It comes back when its rank is another's: it must not wait for a place as a spare. */
static void a_spare_found_wrong_before_goes(void **state)
{
    struct rig r;
    struct driver_options o = rig_with_votes(3);
    struct rig_caller c = {.rank = -1, .wrong = 1};
    (void)state;
    o.cluster.spares = 2;
    rig_train(&r, &o);
    rig_come(&r, 4, -1);
    rig_connect(&r, 5, "10.0.0.9");
    rig_say_hello(&r, 5, &c);
    rig_report(&r, 5, rig_opened());
    rig_wait(&r, 600);
    assert_true(r.is_drained[5]);
    assert_false(r.is_drained[4]);
    assert_logged(&r, "goes, because its bits are wrong");
    assert_int_equal(r.sent[5]->body_case, WIRE__CONTROL__BODY_STOP);
    assert_has(r.sent[5]->stop->text, "its bits were wrong");
    rig_come(&r, 6, -1); /* its seat is free */
    rig_free(&r);
}

enum { NEXT_STANDBY = 6 }; /* its connection */

/* It was to leave, the spare that was to take its place is lost, and another one comes later. */
static void a_rank_that_was_taken_back_leaves_later(void **state)
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
    find_at_fault(&r, 1);
    assert_true(r.is_drained[1]);
    rig_close(&r, 2);
    rig_go_on_to(&r, 2, CMD_TRAIN);
    assert_false(r.is_drained[1]);
    rig_come(&r, 3, -1);
    rig_wait(&r, 600);
    assert_true(r.is_drained[1]);
    rig_free(&r);
}

/* The driver takes no request that would be lost with it. */
static void assert_refuses_requests(struct rig *r)
{
    struct err err[3];

    assert_int_equal(driver_pause(r->d, r->now, &err[0]), ERR_REFUSED);
    assert_int_equal(driver_save(r->d, r->now, &err[1]), ERR_REFUSED);
    assert_int_equal(driver_set_live(r->d, r->now, "optimizer.lr=0.5", &err[2]), ERR_REFUSED);
    for (int i = 0; i < 3; i++)
        assert_has(err[i].msg, "the standby at 10.0.0.12:7001 is to lead after this step");
}

/* The driver's own rank is at fault: the standby leads after this step. */
static void the_driver_hands_over(void **state)
{
    struct rig r;
    const struct driver_options o = rig_with_votes(3);
    (void)state;
    rig_train_with_standby(&r, &o);
    int n = r.n_requests;
    find_at_fault(&r, 0);
    assert_logged(&r, "rank 0 (h0) hands over, because its bits are wrong");
    assert_int_equal(r.n_requests, n + 1); /* a regroup */
    assert_refuses_requests(&r);
    RIG_ALL(&r, CMD_TRAIN, 2, 0, 1, 2);
    assert_true(r.is_closed[1] && r.is_closed[2]);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
    assert_int_equal(r.status, STATUS_STOPPED);
    assert_has(r.text, "its bits were wrong: the standby at 10.0.0.12:7001 leads from step 2 on");
    rig_free(&r);
}

/* The standby has gone before it could lead: the driver stays, and stops for no reason.  It hands
 * over to the next standby. */
static void the_driver_goes_on_without_a_standby(void **state)
{
    struct rig r;
    const struct driver_options o = rig_with_votes(3);
    (void)state;
    rig_train_with_standby(&r, &o);
    find_at_fault(&r, 0);
    rig_say_goodbye(&r, RIG_STANDBY);
    RIG_ALL(&r, CMD_TRAIN, 2, 0, 1, 2);
    assert_logged(&r, "no standby can lead any more");
    assert_false(r.is_closed[1]);
    assert_false(r.is_finished);
    assert_int_equal(r.command->kind, CMD_PREPARE);
    buf_clear(&r.log);
    rig_go_on_to(&r, 3, CMD_TRAIN);
    rig_connect(&r, NEXT_STANDBY, "10.0.0.12");
    rig_say_hello(&r, NEXT_STANDBY, &(struct rig_caller){.rank = -1, .standby = "s2"});
    rig_wait(&r, 20000);
    RIG_ALL(&r, CMD_TRAIN, 3, 0, 1, 2); /* it has a vote from the next formation on */
    rig_go_on_to(&r, 3, CMD_TRAIN);
    rig_wait(&r, 600);
    assert_logged(&r, "rank 0 (h0) hands over, because its bits are wrong");
    rig_free(&r);
}

/* Its children would end with it, and the job needs their ranks. */
static void the_driver_stays_for_its_children(void **state)
{
    struct rig r;
    struct driver_options o = rig_with_votes(3);
    (void)state;
    o.n_children = 1;
    rig_train_with_standby(&r, &o);
    find_at_fault(&r, 0);
    assert_logged(&r, "rank 0 (h0) stays for now");
    RIG_ALL(&r, CMD_TRAIN, 2, 0, 1, 2);
    assert_false(r.is_closed[1]);
    rig_free(&r);
}

static void report_three_rounds(struct rig *r, int rank)
{
    struct report *p = found(rank, 0);

    p->corruption.what = CORRUPTION_GRADIENT;
    p->corruption.share = rank;
    rig_report(r, 0, p);
}

/* Rank 0 is wrong in every round of a step, and fails: the standby leads from the step before, or
 * the job ends with that. */
static void a_driver_that_stays_wrong_is_lost(void **state)
{
    struct rig r;
    const struct driver_options o = rig_with_votes(3);
    (void)state;
    rig_train_with_standby(&r, &o);
    report_three_rounds(&r, 0);
    assert_true(r.is_closed[1] && r.is_closed[2]);
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
    assert_int_equal(r.status, STATUS_STOPPED);
    assert_has(r.text, "its bits were wrong: the standby at 10.0.0.12:7001 leads");
    rig_free(&r);

    rig_train(&r, &o);
    report_three_rounds(&r, 0);
    assert_int_equal(rig_event(&r, EVENT_ERROR)->rank, 0);
    assert_int_equal(r.command->kind, CMD_STOP);
    assert_true(r.command->stop.saves);
    rig_free(&r);
}

/* Nobody knows the right gradient, so the job ends; its state is good, and is saved. */
static void a_gradient_without_a_verdict_loses_nothing(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    struct report *p = found(2, 0);
    (void)state;
    rig_train(&r, &o);
    p->corruption.what = CORRUPTION_GRADIENT;
    p->corruption.ends = 1;
    rig_report(&r, 0, p);
    assert_has(rig_event(&r, EVENT_ERROR)->text, "no update was made with it, and the job ends");
    assert_int_equal(r.command->kind, CMD_STOP);
    assert_true(r.command->stop.saves);
    rig_free(&r);
}

/* The rank at fault has failed before the report came, and another follower has its seat: that one
 * is not named for it. */
static void the_follower_in_its_seat_is_not_named(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    rig_train(&r, &o);
    rig_close(&r, 1);
    rig_close(&r, 2);
    rig_come(&r, 5, -1); /* one seat is still free, so the others wait */
    rig_report(&r, 0, found(1, 0));
    assert_has(rig_event(&r, EVENT_CORRUPTION)->text, "rank 1 of the formation before holds");
    assert_string_equal(rig_event(&r, EVENT_CORRUPTION)->host, "?");
    struct report *p = found(1, 1);
    p->corruption.what = CORRUPTION_CHECKPOINT; /* of a state that is divided */
    rig_report(&r, 0, p);
    assert_has(rig_event(&r, EVENT_CORRUPTION)->text, "rank 1 of the formation before wrote");
    rig_free(&r);
}

/* A rank is lost while the ranks find that they hold different states: the job ends all the same,
 * because the next formation might go on from the wrong one.  A gradient that nobody can agree on
 * was not applied, so there the others go on. */
static void a_loss_does_not_hide_a_wrong_state(void **state)
{
    static const enum corruption whats[] = {CORRUPTION_STATE, CORRUPTION_UPDATE,
                                            CORRUPTION_GRADIENT};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(whats); i++) {
        struct rig r;
        struct driver_options o = rig_elastic(3);
        struct report *p = found(2, 0);
        rig_train(&r, &o);
        rig_close(&r, 1);
        assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
        p->corruption.what = whats[i];
        p->corruption.ends = 1;
        rig_report(&r, 0, p);
        assert_int_equal(rig_count(&r, EVENT_ERROR), whats[i] != CORRUPTION_GRADIENT);
        rig_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mended_bits_are_told_and_the_job_goes_on),
        cmocka_unit_test(a_state_that_cannot_be_mended_ends_the_job),
        cmocka_unit_test(a_rank_at_fault_leaves),
        cmocka_unit_test(a_rank_that_is_needed_stays),
        cmocka_unit_test(a_rank_that_stays_leaves_later),
        cmocka_unit_test(a_rank_found_wrong_before_leaves),
        cmocka_unit_test(a_spare_found_wrong_before_goes),
        cmocka_unit_test(a_rank_that_was_leaving_leaves_later),
        cmocka_unit_test(a_rank_that_was_taken_back_leaves_later),
        cmocka_unit_test(the_driver_hands_over),
        cmocka_unit_test(a_driver_that_stays_wrong_is_lost),
        cmocka_unit_test(the_driver_goes_on_without_a_standby),
        cmocka_unit_test(the_driver_stays_for_its_children),
        cmocka_unit_test(a_gradient_without_a_verdict_loses_nothing),
        cmocka_unit_test(the_follower_in_its_seat_is_not_named),
        cmocka_unit_test(a_loss_does_not_hide_a_wrong_state),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
