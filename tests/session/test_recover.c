/* driver_recover: what becomes of a formation when ranks are lost, leave, are drained, or come. */
#include "rig.h"

#include "base/alloc.h"

static struct driver_options options(int n_ranks)
{
    struct driver_options o = rig_options(n_ranks);
    o.heartbeat_timeout_ms = 100000; /* silence is another test's */
    o.replace_timeout_ms = 30000;
    o.join_interval_ms = 10000;
    return o;
}

/* n ranks with connections 1..n-1, in training. */
static void train(struct rig *r, const struct driver_options *o)
{
    rig_driver(r, o);
    rig_gather(r, o->n_ranks);
    while (r->command->kind != CMD_TRAIN)
        rig_answer_all(r, o->n_ranks);
}

/* A follower on this connection comes and is ready. */
static void come(struct rig *r, int conn, int rank)
{
    rig_hello(r, conn, rank);
    assert_int_equal(r->sent[conn]->body_case, WIRE__CONTROL__BODY_WELCOME);
    rig_report(r, conn, rig_opened());
}

static void assert_prepare(const struct rig *r, int conn, int rank, int n_ranks)
{
    const Wire__Control *m = r->sent[conn];
    assert_int_equal(m->body_case, WIRE__CONTROL__BODY_PREPARE);
    assert_int_equal(m->prepare->rank, rank);
    assert_int_equal(m->prepare->n_ranks, n_ranks);
    assert_int_equal(r->command->kind, CMD_PREPARE);
    assert_int_equal(m->generation, r->command->generation);
}

static void report_from(struct rig *r, int conn, enum cmd_kind kind, int64_t step)
{
    struct cmd c = {.kind = kind, .generation = r->command->generation};
    if (kind == CMD_TRAIN)
        c.train.epoch = 1;
    struct report *p = rig_answer(&c);
    if (kind == CMD_PREPARE)
        p->prepared.step = step;
    if (kind == CMD_FORM)
        p->formed.step = step;
    if (kind == CMD_TRAIN) {
        p->epoch.step = step;
        p->epoch.end = EPOCH_REGROUP;
    }
    rig_report(r, conn, p);
}

/* All on these connections (-1 at the end) answer, holding this step. */
static void all(struct rig *r, const int *conns, enum cmd_kind kind, int64_t step)
{
    for (int i = 0; conns[i] >= 0; i++)
        report_from(r, conns[i], kind, step);
}

#define ALL(r, kind, step, ...) all(r, (const int[]){__VA_ARGS__, -1}, kind, step)

static void say_goodbye(struct rig *r, int conn)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Goodbye g = WIRE__GOODBYE__INIT;
    char text[] = "stopped by SIGTERM";
    g.text = text;
    g.polite = 1;
    m.generation = r->command->generation;
    m.body_case = WIRE__CONTROL__BODY_GOODBYE;
    m.goodbye = &g;
    rig_message(r, conn, &m);
}

/* ---- losses ---- */

static void a_spare_takes_the_place_at_once(void **state)
{
    struct rig r;
    struct driver_options o = options(3);
    (void)state;
    o.n_spares = 1;
    train(&r, &o);
    come(&r, 5, -1);
    assert_true(r.sent[5]->body_case == WIRE__CONTROL__BODY_WELCOME && r.sent[5]->welcome->spare);
    rig_close(&r, 1);
    assert_has(rig_event(&r, EVENT_LOST)->text, "rank 1 (h1) was lost");
    assert_int_equal(r.n_aborts, 1);
    assert_prepare(&r, 5, 1, 3);
    assert_prepare(&r, 2, 2, 3);
    report_from(&r, 0, CMD_PREPARE, 6); /* rank 2 had applied one more */
    report_from(&r, 5, CMD_PREPARE, 0);
    report_from(&r, 2, CMD_PREPARE, 7);
    assert_int_equal(r.command->kind, CMD_FORM);
    assert_int_equal(r.command->form.source, 2);
    ALL(&r, CMD_FORM, 7, 0, 5, 2);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    assert_int_equal(r.command->train.epoch, 2); /* 4 steps an epoch */
    rig_free(&r);
}

static void a_follower_that_comes_replaces(void **state)
{
    struct rig r;
    struct driver_options o = options(3);
    (void)state;
    train(&r, &o);
    rig_close(&r, 2);
    rig_wait(&r, 20000);
    assert_int_equal(rig_count(&r, EVENT_FORM), 1);
    assert_logged(&r,
                  "waiting up to 30 s for a replacement (cluster.replace_timeout); 2 of 3 ranks");
    rig_hello(&r, 5, -1);
    rig_wait(&r, 15000); /* it came in time, and may open its data in peace */
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_report(&r, 5, rig_opened());
    assert_prepare(&r, 5, 2, 3);
    ALL(&r, CMD_PREPARE, 0, 0, 1, 5);
    ALL(&r, CMD_FORM, 0, 0, 1, 5);
    struct report *step = report_new(REPORT_STEP, 2);
    step->step.step = 1;
    rig_report(&r, 0, step);
    assert_int_equal(rig_event(&r, EVENT_RECOVERED)->steps_lost, 1); /* a step was under way */
    assert_int_equal(rig_event(&r, EVENT_RECOVERED)->generation, 2);
    assert_int_equal(rig_event(&r, EVENT_RECOVERED)->n_ranks, 3);
    rig_free(&r);
}

static void nobody_comes(void **state)
{
    struct rig r;
    struct driver_options o = options(4);
    (void)state;
    train(&r, &o); /* all four are needed */
    rig_close(&r, 1);
    rig_wait(&r, 29000);
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_wait(&r, 2000);
    assert_has(rig_event(&r, EVENT_ERROR)->text,
               "rank 1 (h1) was lost, last seen in load of step 0: it closed the connection "
               "(crashed or killed?); no replacement came within 30 s (cluster.replace_timeout)");
    rig_free(&r);

    o.min_ranks = 3; /* three will do: without gaps */
    train(&r, &o);
    rig_close(&r, 1);
    rig_wait(&r, 31000);
    assert_logged(&r, "no replacement came: going on with 3 ranks");
    assert_prepare(&r, 2, 1, 3);
    assert_prepare(&r, 3, 2, 3);
    rig_close(&r, 2); /* two will not */
    rig_wait(&r, 31000);
    assert_has(rig_event(&r, EVENT_ERROR)->text, "no replacement came within 30 s");
    rig_free(&r);
}

/* A machine with many ranks is gone, and nobody to be waited for: each costs a formation, and the
 * next one has the number that the last one had, but they are not one that fails every time. */
static void a_machine_is_lost_rank_by_rank(void **state)
{
    struct rig r;
    struct driver_options o = options(9);
    (void)state;
    o.min_ranks = 2;
    o.replace_timeout_ms = 0;
    train(&r, &o);
    for (int conn = 1; conn <= 7; conn++)
        rig_close(&r, conn);
    assert_int_equal(rig_count(&r, EVENT_LOST), 7);
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    assert_prepare(&r, 8, 1, 2);
    rig_free(&r);
}

static void what_fails_every_time_ends(void **state)
{
    struct rig r;
    struct driver_options o = options(2);
    (void)state;
    o.n_spares = 1;
    train(&r, &o);
    for (int conn = 1; conn <= 4; conn++) {
        assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
        come(&r, conn + 1, -1);
        rig_close(&r, conn);
    }
    assert_has(rig_event(&r, EVENT_ERROR)->text,
               "given up after 3 recoveries without a completed step");
    rig_free(&r);
}

/* ---- joining ---- */

static void ranks_join_up_to_max(void **state)
{
    struct rig r;
    struct driver_options o = options(2);
    (void)state;
    o.max_ranks = 4;
    train(&r, &o);
    come(&r, 2, -1);
    come(&r, 3, 3); /* a number beyond --nranks is a wish */
    rig_wait(&r, 9000);
    assert_int_equal(r.n_requests, 0); /* not before cluster.join_interval */
    rig_wait(&r, 1300);
    assert_true(r.n_requests > 0);
    assert_int_equal(rig_count(&r, EVENT_FORM), 1); /* the step goes on */
    ALL(&r, CMD_TRAIN, 2, 0, 1);
    assert_int_equal(r.n_aborts, 0);
    assert_logged(&r, "growing from 2 to 4 ranks");
    assert_prepare(&r, 1, 1, 4);
    assert_prepare(&r, 2, 2, 4);
    assert_prepare(&r, 3, 3, 4);
    ALL(&r, CMD_PREPARE, 2, 0, 1, 2, 3);
    ALL(&r, CMD_FORM, 2, 0, 1, 2, 3);
    assert_int_equal(rig_count(&r, EVENT_JOIN), 3);
    assert_int_equal(rig_event(&r, EVENT_FORM)->n_ranks, 4);
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
    struct driver_options o = options(2);
    (void)state;
    o.max_ranks = 3;
    rig_driver(&r, &o);
    come(&r, 1, -1);
    come(&r, 2, -1);
    rig_report(&r, 0, rig_opened());
    assert_prepare(&r, 2, 2, 3);
    rig_free(&r);
}

static void spares_are_kept_before_any_joins(void **state)
{
    struct rig r;
    struct driver_options o = options(2);
    (void)state;
    o.max_ranks = 3;
    o.n_spares = 1;
    train(&r, &o);
    come(&r, 2, -1);
    rig_wait(&r, 20000);
    assert_int_equal(r.n_requests, 0);
    come(&r, 3, -1);
    rig_wait(&r, 300);
    assert_true(r.n_requests > 0);
    ALL(&r, CMD_TRAIN, 1, 0, 1);
    assert_prepare(&r, 2, 2, 3);
    assert_int_equal(r.sent[3]->body_case, WIRE__CONTROL__BODY_WELCOME); /* the spare now */
    rig_free(&r);
}

/* The engine asks for a regroup until the next Prepare. */
static void who_is_gone_before_it_joined_costs_a_formation(void **state)
{
    struct rig r;
    struct driver_options o = options(2);
    (void)state;
    o.max_ranks = 3;
    train(&r, &o);
    come(&r, 2, -1);
    rig_wait(&r, 10300);
    assert_true(r.n_requests > 0);
    rig_close(&r, 2);
    ALL(&r, CMD_TRAIN, 1, 0, 1);
    assert_prepare(&r, 1, 1, 2);
    rig_free(&r);
}

/* ---- leaving ---- */

static void who_leaves_in_order_is_not_waited_for(void **state)
{
    struct rig r;
    struct driver_options o = options(3);
    (void)state;
    o.min_ranks = 2;
    train(&r, &o);
    say_goodbye(&r, 1);
    assert_int_equal(r.n_requests, 1);
    assert_int_equal(rig_count(&r, EVENT_LOST), 0); /* it finishes the step */
    ALL(&r, CMD_TRAIN, 3, 0, 1, 2);
    assert_string_equal(rig_event(&r, EVENT_LOST)->text, "rank 1 (h1) left: stopped by SIGTERM");
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_STOP);
    assert_false(r.sent[1]->stop->drained);
    assert_prepare(&r, 2, 1, 2);
    rig_free(&r);

    o.min_ranks = 0; /* all are needed: somebody has to come */
    train(&r, &o);
    say_goodbye(&r, 1);
    ALL(&r, CMD_TRAIN, 3, 0, 1, 2);
    assert_logged(&r, "waiting up to 30 s for a replacement");
    come(&r, 5, -1);
    assert_prepare(&r, 5, 1, 3);
    rig_free(&r);
}

/* `part` is of the answer, or of the reason why not. */
static void drain(struct rig *r, const char *who, int rc, const char *part)
{
    struct buf answer = {0};
    struct err err = {0};
    assert_int_equal(driver_drain(r->d, r->now, who, &answer, &err), rc);
    rig_drain(r);
    assert_has(rc ? err.msg : buf_cstr(&answer), part);
    assert_true(!rc || answer.len == 0);
    buf_fini(&answer);
}

static void the_operator_drains_a_rank(void **state)
{
    struct rig r;
    struct driver_options o = options(3);
    (void)state;
    o.min_ranks = 2;
    train(&r, &o);
    drain(&r, "0", ERR_REFUSED, "rank 0 cannot be drained: the driver itself runs there");
    drain(&r, "h0", ERR_REFUSED, "h0 cannot be drained: the driver itself runs there");
    drain(&r, "3", ERR_REFUSED, "3 cannot be drained: there is no such rank or spare now");
    drain(&r, "spare0", ERR_REFUSED, "there is no such rank or spare now");
    drain(&r, "spare1", ERR_REFUSED, "there is no such rank or spare now");
    drain(&r, "4294967297", ERR_REFUSED, "neither a rank, nor a spare, nor the host of one");
    drain(&r, "", ERR_REFUSED, "neither a rank, nor a spare, nor the host of one");
    drain(&r, "h3", ERR_REFUSED, "h3 cannot be drained: neither a rank");
    drain(&r, "1", 0, "rank 1 (h1, pid 101) leaves when the step under way is done\n");
    drain(&r, "1", 0, "rank 1 (h1, pid 101) leaves already, when the step under way is done\n");
    drain(&r, "2", ERR_REFUSED,
          "2 cannot be drained: 1 rank would be left, and the job needs 2 (cluster.min_ranks) and "
          "lets in no other before one leaves (cluster.spares)");
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_TRAIN);
    ALL(&r, CMD_TRAIN, 2, 0, 1, 2);
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_STOP);
    assert_true(r.sent[1]->stop->drained);
    assert_string_equal(rig_event(&r, EVENT_LOST)->text, "rank 1 (h1) was drained");
    assert_prepare(&r, 2, 1, 2);
    drain(&r, "1", ERR_REFUSED, "start another follower first"); /* there is room now */
    rig_free(&r);
}

/* While the ranks form again it can be asked for, too. */
static void a_drain_waits_for_the_formation(void **state)
{
    struct rig r;
    struct driver_options o = options(4);
    (void)state;
    o.min_ranks = 2;
    o.n_spares = 1;
    train(&r, &o);
    come(&r, 5, -1);
    rig_close(&r, 1);
    assert_prepare(&r, 5, 1, 4);
    drain(&r, "2", 0, "rank 2 (h2, pid 102) leaves as soon as the ranks have formed again");
    ALL(&r, CMD_PREPARE, 0, 0, 5, 2, 3);
    drain(&r, "3", 0, "rank 3 (h3, pid 103) leaves as soon as the ranks have formed again");
    ALL(&r, CMD_FORM, 0, 0, 5, 2, 3);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    rig_wait(&r, 300);
    assert_true(r.n_requests > 0);
    ALL(&r, CMD_TRAIN, 1, 0, 5, 2, 3);
    assert_true(r.sent[2]->stop->drained && r.sent[3]->stop->drained);
    assert_prepare(&r, 5, 1, 2);
    rig_free(&r);
}

static void a_host_is_drained_whole_or_not_at_all(void **state)
{
    static const char *const hosts[] = {"a", "b", "b", "c"};
    struct rig r;
    struct driver_options o = options(5);
    (void)state;
    o.min_ranks = 3;
    rig_driver(&r, &o);
    rig_report(&r, 0, rig_opened());
    for (int conn = 1; conn < 5; conn++) {
        rig_hello_from(&r, conn, conn, hosts[conn - 1]);
        rig_report(&r, conn, rig_opened());
    }
    while (r.command->kind != CMD_TRAIN)
        rig_answer_all(&r, 5);
    drain(&r, "c", 0, "rank 4 (c, pid 104) leaves when the step under way is done\n");
    drain(&r, "b", ERR_REFUSED, "b cannot be drained: 2 ranks would be left");
    assert_int_equal(r.n_requests, 1);
    ALL(&r, CMD_TRAIN, 2, 0, 1, 2, 3, 4);
    assert_prepare(&r, 3, 3, 4);
    come(&r, 6, -1);
    ALL(&r, CMD_PREPARE, 2, 0, 1, 2, 3);
    ALL(&r, CMD_FORM, 2, 0, 1, 2, 3);
    drain(&r, "b", 0,
          "rank 2 (b, pid 102) leaves when the step under way is done\nrank 3 (b, pid 103)");
    ALL(&r, CMD_TRAIN, 3, 0, 1, 2, 3);
    assert_int_equal(rig_count(&r, EVENT_LOST), 3);
    assert_prepare(&r, 6, 2, 3);
    rig_free(&r);
}

static void it_can_be_too_early_or_too_late(void **state)
{
    struct rig r;
    struct driver_options o = options(3);
    (void)state;
    o.min_ranks = 1;
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

/* The job ends before it could leave: it does not come back for the next one. */
static void who_is_drained_stays_away_when_the_job_ends(void **state)
{
    struct rig r;
    struct driver_options o = options(4);
    (void)state;
    o.min_ranks = 2;
    train(&r, &o);
    drain(&r, "1", 0, "leaves");
    driver_stop(r.d, r.now, "SIGTERM");
    driver_stop(r.d, r.now, "SIGTERM"); /* at once */
    rig_drain(&r);
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_STOP);
    assert_true(r.sent[1]->stop->drained);
    assert_has(r.sent[1]->stop->text, "stopped at once by SIGTERM");
    assert_int_equal(r.sent[2]->body_case, WIRE__CONTROL__BODY_ABORT);
    rig_free(&r);

    o.n_epochs = 1;
    train(&r, &o);
    drain(&r, "1", 0, "leaves");
    while (!r.is_closed[2] && rig_count(&r, EVENT_DONE) == 0)
        rig_answer_all(&r, 4); /* the epoch's last step was under way */
    assert_true(r.sent[1]->stop->drained);
    assert_false(r.sent[2]->stop->drained);
    assert_has(r.sent[1]->stop->text, "finished");
    rig_free(&r);
}

static void spares_are_drained_at_once(void **state)
{
    struct rig r;
    struct driver_options o = options(2);
    (void)state;
    o.n_spares = 1;
    train(&r, &o);
    come(&r, 2, -1);
    drain(&r, "spare1", 0, "spare 1 (h2, pid 102) leaves at once");
    assert_true(r.sent[2]->stop->drained);
    assert_int_equal(r.n_requests, 0);
    drain(&r, "spare1", ERR_REFUSED, "there is no such rank or spare now");
    come(&r, 3, -1); /* its place is free */
    rig_free(&r);
}

static void while_all_wait_a_drain_counts_too(void **state)
{
    struct rig r;
    struct driver_options o = options(4);
    (void)state;
    o.min_ranks = 2;
    train(&r, &o);
    rig_close(&r, 1);
    drain(&r, "2", 0, "rank 2 (h2, pid 102) leaves at once");
    assert_true(r.sent[2]->stop->drained);
    rig_wait(&r, 31000);
    assert_prepare(&r, 3, 1, 2);
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_free(&r);
}

/* ---- who hangs ---- */

static void beat(struct rig *r, int conn, enum phase phase)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;
    h.phase = (Wire__Phase)phase;
    m.generation = r->command->generation;
    m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
    m.heartbeat = &h;
    rig_message(r, conn, &m);
}

/* While they connect it cannot be told from the others; that it does not leave can. */
static void who_hangs_in_form_is_named_soon_after(void **state)
{
    struct rig r;
    struct driver_options o = options(3);
    (void)state;
    o.heartbeat_timeout_ms = 5000;
    o.deadlines.prepare = 300000;
    rig_driver(&r, &o);
    rig_gather(&r, 3);
    rig_answer_all(&r, 3);
    assert_int_equal(r.command->kind, CMD_FORM);
    for (int i = 0; i < 40 && r.command->kind == CMD_FORM; i++) {
        rig_wait(&r, 1000);
        beat(&r, 1, PHASE_FORM);
        beat(&r, 2, PHASE_FORM);
    }
    assert_int_equal(r.command->kind, CMD_PREPARE); /* cluster.deadlines.form: all once more */
    assert_int_equal(rig_count(&r, EVENT_LOST), 0);
    report_from(&r, 0, CMD_PREPARE, 0);
    report_from(&r, 1, CMD_PREPARE, 0);
    for (int i = 0; i < 7 && rig_count(&r, EVENT_LOST) == 0; i++) {
        rig_wait(&r, 1000);
        beat(&r, 1, PHASE_IDLE);
        beat(&r, 2, PHASE_FORM);
    }
    assert_has(rig_event(&r, EVENT_LOST)->text, "rank 2 (h2) hangs in form: it was told to leave");
    assert_int_equal(r.sent[2]->body_case, WIRE__CONTROL__BODY_ABORT);
    assert_false(r.sent[2]->abort->recover);
    rig_free(&r);
}

/* ... but who prepares takes the time that it needs. */
static void who_prepares_is_not_hurried(void **state)
{
    struct rig r;
    struct driver_options o = options(2);
    (void)state;
    o.heartbeat_timeout_ms = 5000;
    o.deadlines.prepare = 300000;
    rig_driver(&r, &o);
    rig_gather(&r, 2);
    for (int i = 0; i < 200; i++) {
        rig_wait(&r, 1000);
        beat(&r, 1, PHASE_PREPARE);
    }
    assert_int_equal(rig_count(&r, EVENT_LOST), 0);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spare_takes_the_place_at_once),
        cmocka_unit_test(a_follower_that_comes_replaces),
        cmocka_unit_test(nobody_comes),
        cmocka_unit_test(a_machine_is_lost_rank_by_rank),
        cmocka_unit_test(what_fails_every_time_ends),
        cmocka_unit_test(ranks_join_up_to_max),
        cmocka_unit_test(who_is_ready_in_time_forms_with_the_others),
        cmocka_unit_test(spares_are_kept_before_any_joins),
        cmocka_unit_test(who_is_gone_before_it_joined_costs_a_formation),
        cmocka_unit_test(who_leaves_in_order_is_not_waited_for),
        cmocka_unit_test(the_operator_drains_a_rank),
        cmocka_unit_test(a_drain_waits_for_the_formation),
        cmocka_unit_test(a_host_is_drained_whole_or_not_at_all),
        cmocka_unit_test(it_can_be_too_early_or_too_late),
        cmocka_unit_test(who_is_drained_stays_away_when_the_job_ends),
        cmocka_unit_test(spares_are_drained_at_once),
        cmocka_unit_test(while_all_wait_a_drain_counts_too),
        cmocka_unit_test(who_hangs_in_form_is_named_soon_after),
        cmocka_unit_test(who_prepares_is_not_hurried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
