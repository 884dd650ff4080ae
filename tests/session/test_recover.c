/* driver_recover: how a formation goes on when ranks are lost, leave, or come. The test plays all
 * engines and followers. */
#include "rig.h"

#include "base/alloc.h"
#include "session/driver_impl.h"

static void beat(struct rig *r, int conn, enum phase phase, int64_t step)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;
    h.phase = (Wire__Phase)phase;
    h.step = step;
    m.generation = r->command->generation;
    m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
    m.heartbeat = &h;
    rig_message(r, conn, &m);
}

/* ---- losses ---- */

static void a_spare_takes_the_place_at_once(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    o.cluster.spares = 1;
    rig_train(&r, &o);
    rig_come(&r, 5, -1);
    assert_true(r.sent[5]->body_case == WIRE__CONTROL__BODY_WELCOME && r.sent[5]->welcome->spare);
    rig_close(&r, 1);
    assert_has(rig_event(&r, EVENT_LOST)->text, "rank 1 (h1) was lost");
    assert_int_equal(r.n_aborts, 1);
    rig_assert_prepare(&r, 5, 1, 3);
    rig_assert_prepare(&r, 2, 2, 3);
    RIG_ALL(&r, CMD_PREPARE, 2, 0); /* rank 2 had done one more step */
    RIG_ALL(&r, CMD_PREPARE, 0, 5);
    RIG_ALL(&r, CMD_PREPARE, 3, 2);
    assert_int_equal(r.command->kind, CMD_FORM);
    assert_int_equal(r.command->form.source, 2);
    RIG_ALL(&r, CMD_FORM, 3, 0, 5, 2);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    assert_int_equal(r.command->train.epoch, 1); /* 4 steps an epoch */
    rig_free(&r);
}

/* Rank 0's engine warned before it left the formation, and the driver heard of the loss first.  The
 * warning is told while the driver waits for a replacement, and once it has begun to form anew. */
static void a_warning_outlives_its_formation(void **state)
{
    (void)state;
    for (int has_spare = 0; has_spare < 2; has_spare++) {
        struct rig r;
        struct driver_options o = rig_elastic(3);
        struct report *late;
        o.cluster.spares = 1;
        rig_train(&r, &o);
        late = report_new(REPORT_WARNING, r.command->generation);
        late->warning.step = 3;
        late->warning.text = xstrdup("the tensors of step 3 could not be gathered");
        if (has_spare)
            rig_come(&r, 5, -1);
        rig_close(&r, 1);
        assert_int_equal(r.d->stage, has_spare ? STAGE_PREPARE : STAGE_WAIT);
        rig_report(&r, 0, late);
        assert_int_equal(rig_count(&r, EVENT_WARNING), 1);
        assert_int_equal(rig_event(&r, EVENT_WARNING)->step, 3);
        assert_logged(&r, "the tensors of step 3 could not be gathered");
        rig_free(&r);
    }
}

/* The pid of a lost rank is told only if it means a process of the driver's own machine and
 * container: another process would be killed by it. */
static void only_an_own_pid_is_told(void **state)
{
    static const struct {
        const char *host_id;
        int64_t pid_space, pid_told;
    } cases[] = {{"machine0", 7, 555}, {"machine0", 8, 0}, {"machine0", 0, 0}, {"machine1", 7, 0}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_elastic(3);
        o.pid_space = 7;
        o.cluster.spares = 1;
        rig_train(&r, &o);
        rig_connect(&r, 5, "10.0.0.5");
        rig_say_hello(&r, 5,
                      &(struct rig_caller){.rank = -1,
                                           .host = "h5",
                                           .host_id = cases[i].host_id,
                                           .pid = 555,
                                           .pid_space = cases[i].pid_space});
        rig_report(&r, 5, rig_opened());
        rig_close(&r, 1); /* the spare becomes rank 1 */
        rig_close(&r, 5);
        assert_int_equal(rig_count(&r, EVENT_LOST), 2);
        assert_int_equal(rig_event(&r, EVENT_LOST)->lost.pid, cases[i].pid_told);
        rig_free(&r);
    }
}

static void a_follower_that_comes_replaces(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    rig_train(&r, &o);
    rig_close(&r, 2);
    rig_wait(&r, 20000);
    assert_int_equal(rig_count(&r, EVENT_FORM), 1);
    assert_logged(&r,
                  "waiting up to 30 s for a replacement (cluster.replace_timeout); 2 of 3 ranks");
    rig_hello(&r, 5, -1);
    rig_wait(&r, 15000); /* the follower came in time: it has its own time to open its data */
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_report(&r, 5, rig_opened());
    rig_assert_prepare(&r, 5, 2, 3);
    RIG_ALL(&r, CMD_PREPARE, 0, 0, 1, 5);
    RIG_ALL(&r, CMD_FORM, 0, 0, 1, 5);
    struct report *step = report_new(REPORT_STEP, 2);
    step->step.step = 1;
    rig_report(&r, 0, step);
    assert_int_equal(rig_event(&r, EVENT_RECOVERED)->recovered.steps_lost,
                     1); /* a step was under way */
    assert_int_equal(rig_event(&r, EVENT_RECOVERED)->recovered.generation, 2);
    assert_int_equal(rig_event(&r, EVENT_RECOVERED)->recovered.n_ranks, 3);
    rig_free(&r);
}

/* The step under way at the first loss is lost, whatever is lost after it. */
static void a_second_loss_does_not_hide_the_lost_step(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    rig_train(&r, &o);
    rig_close(&r, 1);
    rig_come(&r, 5, -1);
    rig_assert_prepare(&r, 5, 1, 3);
    rig_close(&r, 2);
    rig_come(&r, 6, -1);
    rig_assert_prepare(&r, 6, 2, 3);
    RIG_ALL(&r, CMD_PREPARE, 0, 0, 5, 6);
    RIG_ALL(&r, CMD_FORM, 0, 0, 5, 6);
    struct report *step = report_new(REPORT_STEP, 3);
    step->step.step = 1;
    rig_report(&r, 0, step);
    assert_int_equal(rig_event(&r, EVENT_RECOVERED)->recovered.steps_lost, 1);
    rig_free(&r);
}

/* A rank tells of a newer step between two losses of the same moment, or behind the last. */
static void a_step_told_after_a_loss_counts(void **state)
{
    (void)state;
    for (int at = 0; at < 2; at++) {
        struct rig r;
        struct driver_options o = rig_elastic(4);
        rig_train(&r, &o);
        rig_close(&r, 1);
        if (at == 0)
            beat(&r, 3, PHASE_FORWARD, 2);
        rig_close(&r, 2);
        if (at == 1)
            beat(&r, 3, PHASE_FORWARD, 2);
        rig_come(&r, 5, -1);
        rig_come(&r, 6, -1);
        RIG_ALL(&r, CMD_PREPARE, 0, 0, 3, 5, 6);
        RIG_ALL(&r, CMD_FORM, 0, 0, 3, 5, 6);
        struct report *step = report_new(REPORT_STEP, 2);
        step->step.step = 1;
        rig_report(&r, 0, step);
        assert_int_equal(rig_event(&r, EVENT_RECOVERED)->recovered.steps_lost, 2);
        rig_free(&r);
    }
}

/* Each loss has its own count of lost steps.  A loss between two steps costs no step. */
static void a_loss_between_steps_costs_no_step(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    o.cluster.spares = 1;
    rig_train(&r, &o);
    rig_come(&r, 2, -1);
    rig_close(&r, 1); /* in a step */
    RIG_ALL(&r, CMD_PREPARE, 0, 0, 2);
    RIG_ALL(&r, CMD_FORM, 0, 0, 2);
    struct report *own = rig_answer(r.command), *other = rig_answer(r.command);
    rig_report(&r, 0, own);
    rig_report(&r, 2, other);
    assert_int_equal(rig_event(&r, EVENT_RECOVERED)->recovered.steps_lost, 1);
    assert_int_equal(r.command->kind, CMD_VALIDATE);
    rig_come(&r, 3, -1);
    rig_close(&r, 2); /* in validation */
    RIG_ALL(&r, CMD_PREPARE, 4, 0, 3);
    RIG_ALL(&r, CMD_FORM, 4, 0, 3);
    assert_int_equal(r.command->kind, CMD_VALIDATE);
    assert_int_equal(rig_count(&r, EVENT_RECOVERED), 2);
    assert_int_equal(rig_event(&r, EVENT_RECOVERED)->recovered.steps_lost, 0);
    rig_free(&r);
}

/* The rank was lost after the epoch's last step, before all had said so: that epoch is ended again,
 * with its validation, and not left out. */
static void an_epoch_that_was_not_ended_is_ended_again(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    o.cluster.spares = 1;
    rig_train(&r, &o);
    rig_come(&r, 2, -1);
    rig_close(&r, 1);
    RIG_ALL(&r, CMD_PREPARE, 4, 0, 2);
    RIG_ALL(&r, CMD_FORM, 4, 0, 2);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    assert_int_equal(r.command->train.epoch, 1); /* 4 steps an epoch */
    rig_free(&r);
}

/* A rank was lost in the validation, and the newest state with it, as may happen to divided state.
 * In the end the state at the epoch's end is validated, and the epoch is told once. */
static void a_lost_state_is_trained_again_before_it_is_validated(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    o.cluster.spares = 1;
    rig_train(&r, &o);
    rig_come(&r, 2, -1);
    rig_go_on_to(&r, 2, CMD_VALIDATE);
    rig_close(&r, 1);
    RIG_ALL(&r, CMD_PREPARE, 4, 0, 2);
    RIG_ALL(&r, CMD_FORM, 2, 0, 2);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    assert_int_equal(r.command->train.epoch, 1);
    struct report *own = rig_answer(r.command), *other = rig_answer(r.command);
    rig_report(&r, 0, own);
    rig_report(&r, 2, other);
    assert_int_equal(rig_event(&r, EVENT_RECOVERED)->recovered.steps_lost, 2);
    assert_int_equal(r.command->kind, CMD_VALIDATE);
    assert_int_equal(rig_count(&r, EVENT_EPOCH), 0);
    rig_free(&r);
}

static void nobody_comes(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(4);
    (void)state;
    rig_train(&r, &o); /* all four are needed */
    rig_close(&r, 1);
    rig_wait(&r, 29000);
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_wait(&r, 2000);
    assert_has(rig_event(&r, EVENT_ERROR)->text,
               "rank 1 (h1) was lost, last seen in load of step 0: it closed the connection "
               "(crashed or killed?); no replacement came within 30 s (cluster.replace_timeout)");
    assert_int_equal(r.command->kind, CMD_STOP);
    assert_true(r.command->stop.saves); /* what is kept is not thrown away */
    rig_free(&r);

    o.cluster.min_ranks = 3; /* three suffice, numbered without gaps */
    rig_train(&r, &o);
    rig_close(&r, 1);
    rig_wait(&r, 31000);
    assert_logged(&r, "no replacement came: going on with 3 ranks");
    rig_assert_prepare(&r, 2, 1, 3);
    rig_assert_prepare(&r, 3, 2, 3);
    assert_logged(&r,
                  "rank 2 (h2, pid 102) is rank 1 from here on\nrank 3 (h3, pid 103) is rank 2");
    RIG_ALL(&r, CMD_PREPARE, 0, 0, 2, 3);
    RIG_ALL(&r, CMD_FORM, 0, 0, 2, 3);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(rig_event(&r, EVENT_FORM)->form.process[k].pid, k ? 101 + k : 100);
        assert_string_equal(rig_event(&r, EVENT_FORM)->form.process[k].host, k == 2   ? "h3"
                                                                             : k == 1 ? "h2"
                                                                                      : "h0");
    }
    rig_close(&r, 2); /* two do not suffice */
    rig_wait(&r, 31000);
    assert_has(rig_event(&r, EVENT_ERROR)->text, "no replacement came within 30 s");
    rig_free(&r);
}

/* A machine with many ranks is gone, and there is no wait for a replacement.  Each loss costs a
 * formation, and the next lost rank has the number that the last one had; but that is no rank
 * that fails every time. */
static void a_machine_is_lost_rank_by_rank(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(9);
    (void)state;
    o.cluster.min_ranks = 2;
    o.cluster.replace_timeout_ms = 0;
    rig_train(&r, &o);
    for (int conn = 1; conn <= 7; conn++)
        rig_close(&r, conn);
    assert_int_equal(rig_count(&r, EVENT_LOST), 7);
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_assert_prepare(&r, 8, 1, 2);
    rig_free(&r);
}

static void what_fails_every_time_ends(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    o.cluster.spares = 1;
    rig_train(&r, &o);
    for (int conn = 1; conn <= 4; conn++) {
        assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
        rig_come(&r, conn + 1, -1);
        rig_close(&r, conn);
    }
    assert_has(rig_event(&r, EVENT_ERROR)->text,
               "given up after 3 recoveries without a completed step");
    rig_free(&r);
}

/* A rank that fails now and then does not end the job: a completed step is a new beginning.  It
 * fails more often here than one rank, and than all together, may fail without a step. */
static void losses_with_steps_between_do_not_end(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    o.cluster.spares = 1;
    rig_train(&r, &o);
    for (int conn = 1; conn <= 10; conn++) {
        rig_come(&r, conn + 1, -1);
        rig_close(&r, conn);
        RIG_ALL(&r, CMD_PREPARE, conn - 1, 0, conn + 1);
        RIG_ALL(&r, CMD_FORM, conn - 1, 0, conn + 1);
        struct report *step = report_new(REPORT_STEP, conn + 1);
        step->step.step = conn;
        rig_report(&r, 0, step);
        assert_int_equal(rig_count(&r, EVENT_RECOVERED), conn);
        assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    }
    rig_free(&r);
}

/* ---- joining ---- */

static void ranks_join_up_to_max(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    o.cluster.max_ranks = 4;
    rig_train(&r, &o);
    rig_come(&r, 2, -1);
    rig_come(&r, 3, 3); /* a number beyond --nranks is a wish */
    rig_wait(&r, 9000);
    assert_int_equal(r.n_requests, 0); /* not before cluster.join_interval */
    rig_wait(&r, 1300);
    assert_true(r.n_requests > 0);
    assert_int_equal(rig_count(&r, EVENT_FORM), 1); /* the step goes on */
    RIG_ALL(&r, CMD_TRAIN, 2, 0, 1);
    assert_int_equal(r.n_aborts, 0);
    assert_logged(&r, "growing from 2 to 4 ranks");
    rig_assert_prepare(&r, 1, 1, 4);
    rig_assert_prepare(&r, 2, 2, 4);
    rig_assert_prepare(&r, 3, 3, 4);
    RIG_ALL(&r, CMD_PREPARE, 2, 0, 1, 2, 3);
    RIG_ALL(&r, CMD_FORM, 2, 0, 1, 2, 3);
    assert_int_equal(rig_count(&r, EVENT_JOIN), 3);
    assert_int_equal(rig_event(&r, EVENT_FORM)->form.n_ranks, 4);
    assert_int_equal(rig_count(&r, EVENT_RECOVERED), 0); /* nothing was lost */
    rig_hello(&r, 5, -1);
    assert_has(r.sent[5]->refused->text, "the job has all its 4 ranks");
    rig_hello(&r, 6, 4);
    assert_has(r.sent[6]->refused->text, "rank 4 is out of range: this job has 4 ranks");
    rig_close(&r, 3); /* its place is that of a rank, and 3 is not below --nranks */
    rig_hello(&r, 7, 3);
    assert_int_equal(r.sent[7]->body_case, WIRE__CONTROL__BODY_WELCOME);
    assert_int_equal(r.sent[7]->welcome->rank, 3);
    assert_int_equal(r.sent[7]->welcome->n_ranks, 4);
    rig_free(&r);
}

static void who_is_ready_in_time_forms_with_the_others(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    o.cluster.max_ranks = 3;
    rig_driver(&r, &o);
    rig_come(&r, 1, -1);
    rig_come(&r, 2, -1);
    rig_report(&r, 0, rig_opened());
    rig_assert_prepare(&r, 2, 2, 3);
    rig_free(&r);
}

static void spares_are_kept_before_any_joins(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    o.cluster.max_ranks = 3;
    o.cluster.spares = 1;
    rig_train(&r, &o);
    rig_come(&r, 2, -1);
    rig_wait(&r, 20000);
    assert_int_equal(r.n_requests, 0);
    rig_come(&r, 3, -1);
    rig_wait(&r, 300);
    assert_true(r.n_requests > 0);
    RIG_ALL(&r, CMD_TRAIN, 1, 0, 1);
    rig_assert_prepare(&r, 2, 2, 3);
    assert_int_equal(r.sent[3]->body_case, WIRE__CONTROL__BODY_WELCOME); /* the spare now */
    rig_free(&r);
}

/* The engine asks for a regroup until the next Prepare. */
static void who_is_gone_before_it_joined_costs_a_formation(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    o.cluster.max_ranks = 3;
    rig_train(&r, &o);
    rig_come(&r, 2, -1);
    rig_wait(&r, 10300);
    assert_true(r.n_requests > 0);
    rig_close(&r, 2);
    RIG_ALL(&r, CMD_TRAIN, 1, 0, 1);
    rig_assert_prepare(&r, 1, 1, 2);
    rig_free(&r);
}

/* ---- leaving ---- */

/* The messages say what is waited for: a replacement, then the data of the one that has come. */
static void what_is_waited_for_is_named(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    o.cluster.replace_timeout_ms = 60000;
    rig_train(&r, &o);
    rig_close(&r, 1);
    rig_wait(&r, 6000);
    assert_logged(&r, "waiting for a replacement of rank 1");
    rig_hello(&r, 5, -1);
    buf_clear(&r.log);
    rig_wait(&r, 6000);
    assert_logged(&r, "waiting for rank 1 (h5), here already, to open model and data, up to 50 s");
    assert_null(strstr(buf_cstr(&r.log), "a replacement of"));
    rig_free(&r);
}

/* A user who stops a job that waits is not told of a replacement that did not come. */
static void a_stop_while_waiting_saves_with_fewer(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    o.cluster.replace_timeout_ms = 60000;
    rig_train(&r, &o);
    rig_close(&r, 1);
    rig_wait(&r, 1000);
    driver_stop(r.d, r.now, "SIGTERM");
    rig_drain(&r);
    rig_wait(&r, 1000);
    assert_logged(&r, "stopping: the checkpoint is written by 1 rank");
    assert_null(strstr(buf_cstr(&r.log), "no replacement came"));
    rig_free(&r);
}

static void who_leaves_in_order_is_not_waited_for(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    o.cluster.min_ranks = 2;
    rig_train(&r, &o);
    rig_say_goodbye(&r, 1);
    assert_int_equal(r.n_requests, 1);
    assert_int_equal(rig_count(&r, EVENT_LOST), 0); /* the leaving rank finishes the step */
    RIG_ALL(&r, CMD_TRAIN, 3, 0, 1, 2);
    assert_string_equal(rig_event(&r, EVENT_LOST)->text, "rank 1 (h1) left: stopped by SIGTERM");
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_STOP);
    assert_false(r.is_drained[1]);
    rig_assert_prepare(&r, 2, 1, 2);
    rig_free(&r);

    o.cluster.min_ranks = 0; /* all are needed: a replacement has to come */
    rig_train(&r, &o);
    rig_say_goodbye(&r, 1);
    RIG_ALL(&r, CMD_TRAIN, 3, 0, 1, 2);
    assert_logged(&r, "waiting up to 30 s for a replacement");
    rig_come(&r, 5, -1);
    rig_assert_prepare(&r, 5, 1, 3);
    rig_free(&r);
}

/* ---- ranks that hang ---- */

/* While the ranks connect, a rank that hangs cannot be told from the others.  Later it can be told,
 * because it does not leave. */
static void who_hangs_in_form_is_named_soon_after(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    o.cluster.heartbeat_timeout_ms = 5000;
    o.cluster.deadlines.prepare_ms = 300000;
    rig_driver(&r, &o);
    rig_gather(&r, 3);
    rig_answer_all(&r, 3);
    assert_int_equal(r.command->kind, CMD_FORM);
    for (int i = 0; i < 40 && r.command->kind == CMD_FORM; i++) {
        rig_wait(&r, 1000);
        beat(&r, 1, PHASE_FORM, 0);
        beat(&r, 2, PHASE_FORM, 0);
    }
    assert_int_equal(r.command->kind, CMD_PREPARE); /* cluster.deadlines.form: all once more */
    assert_int_equal(rig_count(&r, EVENT_LOST), 0);
    RIG_ALL(&r, CMD_PREPARE, 0, 0);
    RIG_ALL(&r, CMD_PREPARE, 0, 1);
    for (int i = 0; i < 7 && rig_count(&r, EVENT_LOST) == 0; i++) {
        rig_wait(&r, 1000);
        beat(&r, 1, PHASE_IDLE, 0);
        beat(&r, 2, PHASE_FORM, 0);
    }
    assert_has(rig_event(&r, EVENT_LOST)->text, "rank 2 (h2) hangs in form: it was told to leave");
    assert_int_equal(r.sent[2]->body_case, WIRE__CONTROL__BODY_ABORT);
    assert_false(r.sent[2]->abort->recover);
    rig_free(&r);
}

/* A rank that prepares takes the time that it needs. */
static void who_prepares_is_not_hurried(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    o.cluster.heartbeat_timeout_ms = 5000;
    o.cluster.deadlines.prepare_ms = 300000;
    rig_driver(&r, &o);
    rig_gather(&r, 2);
    for (int i = 0; i < 200; i++) {
        rig_wait(&r, 1000);
        beat(&r, 1, PHASE_PREPARE, 0);
    }
    assert_int_equal(rig_count(&r, EVENT_LOST), 0);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spare_takes_the_place_at_once),
        cmocka_unit_test(a_warning_outlives_its_formation),
        cmocka_unit_test(only_an_own_pid_is_told),
        cmocka_unit_test(a_follower_that_comes_replaces),
        cmocka_unit_test(a_second_loss_does_not_hide_the_lost_step),
        cmocka_unit_test(nobody_comes),
        cmocka_unit_test(a_machine_is_lost_rank_by_rank),
        cmocka_unit_test(what_fails_every_time_ends),
        cmocka_unit_test(losses_with_steps_between_do_not_end),
        cmocka_unit_test(ranks_join_up_to_max),
        cmocka_unit_test(who_is_ready_in_time_forms_with_the_others),
        cmocka_unit_test(spares_are_kept_before_any_joins),
        cmocka_unit_test(who_is_gone_before_it_joined_costs_a_formation),
        cmocka_unit_test(what_is_waited_for_is_named),
        cmocka_unit_test(a_stop_while_waiting_saves_with_fewer),
        cmocka_unit_test(who_leaves_in_order_is_not_waited_for),
        cmocka_unit_test(who_hangs_in_form_is_named_soon_after),
        cmocka_unit_test(who_prepares_is_not_hurried),
        cmocka_unit_test(a_step_told_after_a_loss_counts),
        cmocka_unit_test(a_loss_between_steps_costs_no_step),
        cmocka_unit_test(an_epoch_that_was_not_ended_is_ended_again),
        cmocka_unit_test(a_lost_state_is_trained_again_before_it_is_validated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
