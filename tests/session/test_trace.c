/* Timelines in the session: the operator's request, the records that come back, and the stamps of
 * heartbeats by which clocks are compared. */
#include "follower_rig.h"

#include "word.h"

static int ask(struct rig *r, int64_t duration_ns, struct err *err)
{
    int n_ranks = 0;
    int rc = driver_trace(r->d, r->now, duration_ns, &n_ranks, err);
    rig_drain(r);
    if (rc == 0)
        assert_int_equal(n_ranks, 3);
    return rc;
}

/* All that a rank has for the timeline of this number. */
static struct report *piece(int64_t number)
{
    struct report *p = report_new(REPORT_SPANS, 1);
    p->spans = (struct spans_piece){.number = number, .first = 3, .last = 4, .is_last = 1};
    p->spans.n_names = 1;
    p->spans.name = xcalloc(2, sizeof *p->spans.name);
    strcpy(p->spans.name[0].text, "conv1");
    p->spans.n = 2;
    p->spans.span = xcalloc(3, sizeof *p->spans.span);
    for (int i = 0; i < 2; i++)
        p->spans.span[i] = (struct trace_span){
            .begin_ns = 77 + i, .took_ns = 5, .step = -1, .track = SPANS_COMM, .bucket = -1};
    return p;
}

static void the_operator_asks(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    struct err err;
    (void)state;
    rig_driver(&r, &o);
    assert_int_equal(ask(&r, MS, &err), ERR_REFUSED);
    assert_has(err.msg, "training has not begun");
    rig_go_to(&r, 3, CMD_TRAIN);
    assert_int_equal(ask(&r, 0, &err), ERR_REFUSED);
    assert_int_equal(ask(&r, DRIVER_LONGEST_TRACE_NS + 1, &err), ERR_REFUSED);
    assert_has(err.msg, "at most 60");
    assert_int_equal(r.n_traces, 0);
    for (int i = 1; i <= 2; i++) {
        const int64_t asked_ns = r.now;
        assert_int_equal(ask(&r, 500 * MS, &err), 0);
        assert_int_equal(r.n_traces, i); /* rank 0's engine, and each follower's */
        assert_int_equal(r.trace_number, i);
        for (int k = 1; k < 3; k++) {
            assert_int_equal(r.sent[k]->body_case, WIRE__CONTROL__BODY_TRACE);
            assert_int_equal(r.sent[k]->trace->number, i);
            assert_int_equal(r.sent[k]->trace->duration_ns, 500 * MS);
        }
        assert_int_equal(ask(&r, MS, &err), ERR_REFUSED);
        assert_has(err.msg, "timeline of 0.5 s is recorded for 0.5 s more; ask again when");
        rig_report(&r, 0, piece(i));
        rig_report(&r, 2, piece(i));
        rig_wait(&r, 600);
        assert_int_equal(ask(&r, MS, &err), ERR_REFUSED);
        assert_has(err.msg, "waits for the record of rank 1 (");
        assert_int_equal(rig_count(&r, EVENT_TRACED), i - 1);
        rig_report(&r, 1, piece(i));
        assert_int_equal(rig_event(&r, EVENT_SPANS)->spans.asked_ns, asked_ns);
        assert_int_equal(rig_count(&r, EVENT_TRACED), i);
        assert_int_equal(rig_event(&r, EVENT_TRACED)->traced.number, i);
    }
    assert_int_equal(r.n_traces, 2);
    driver_stop(r.d, r.now, "SIGTERM");
    driver_stop(r.d, r.now, "SIGTERM");
    rig_drain(&r);
    assert_int_equal(ask(&r, MS, &err), ERR_REFUSED);
    assert_has(err.msg, "the job is ending");
    rig_free(&r);
}

static void an_evaluation_has_no_steps(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(1);
    struct err err;
    (void)state;
    o.evaluate = "runs/x";
    rig_driver(&r, &o);
    assert_int_equal(ask(&r, MS, &err), ERR_REFUSED);
    assert_has(err.msg, "nothing is trained here");
    rig_free(&r);
}

/* A record comes from each rank, in any stage, and answers nothing. */
static void records_become_events(void **state)
{
    struct rig r;
    struct err err;
    struct driver_options o = rig_options(3);
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 3, CMD_TRAIN);
    assert_int_equal(ask(&r, 500 * MS, &err), 0);
    rig_answer_all(&r, 3);
    for (int k = 0; k < 3; k++) {
        rig_report(&r, k, piece(1));
        const struct session_event *e = rig_event(&r, EVENT_SPANS);
        assert_int_equal(e->rank, k);
        assert_int_equal(e->spans.n_ranks, 3);
        assert_int_equal(e->spans.is_clock_ours, k == 0); /* each has a host of its own */
        assert_int_equal(e->spans.piece.n, 2);
        assert_int_equal(e->spans.piece.span[1].begin_ns, 78);
        assert_int_equal(e->spans.piece.span[1].step, -1);
        assert_string_equal(e->spans.piece.name[0].text, "conv1");
    }
    assert_int_equal(rig_count(&r, EVENT_SPANS), 3);
    rig_answer_all(&r, 3);
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_free(&r);
}

/* Parts for which nobody asked, and second ones, are left out. */
static void other_records_are_left_out(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    struct err err;
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 3, CMD_TRAIN);
    rig_report(&r, 1, piece(0));
    rig_report(&r, 2, piece(1));
    assert_int_equal(rig_count(&r, EVENT_SPANS), 0);
    assert_has(buf_cstr(&r.log), "sent its part of timeline 1, for which this driver did not ask");
    assert_int_equal(ask(&r, 500 * MS, &err), 0);
    rig_report(&r, 1, piece(2));
    rig_report(&r, 1, piece(1));
    rig_report(&r, 1, piece(1));
    assert_int_equal(rig_count(&r, EVENT_SPANS), 1);
    rig_free(&r);
}

/* A lost rank owes nothing, whoever comes in its place, so that the others' record is whole. */
static void a_lost_rank_owes_nothing(void **state)
{
    (void)state;
    for (int is_lost_first = 0; is_lost_first < 2; is_lost_first++) {
        struct rig r;
        struct driver_options o = rig_elastic(3);
        struct err err;
        rig_train(&r, &o);
        assert_int_equal(ask(&r, 500 * MS, &err), 0);
        if (is_lost_first)
            rig_close(&r, 2);
        rig_report(&r, 0, piece(1));
        rig_report(&r, 1, piece(1));
        assert_int_equal(rig_count(&r, EVENT_TRACED), is_lost_first);
        if (!is_lost_first)
            rig_close(&r, 2);
        assert_int_equal(rig_count(&r, EVENT_LOST), 1);
        assert_int_equal(rig_count(&r, EVENT_TRACED), 1);
        rig_free(&r);
    }
}

/* The job's timeline: all ranks of a formation that has its steps before it owe a part. */
static void the_job_asks(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    struct err err;
    (void)state;
    o.trace_end = 3;
    rig_driver(&r, &o);
    rig_go_to(&r, 3, CMD_TRAIN);
    assert_int_equal(ask(&r, MS, &err), ERR_REFUSED);
    assert_has(err.msg, "report.trace has steps 0 to 2 recorded");
    assert_has(err.msg, "ask again after step 2");
    for (int k = 0; k < 3; k++) {
        assert_int_equal(rig_count(&r, EVENT_TRACED), 0);
        rig_report(&r, k, piece(0));
    }
    assert_int_equal(rig_count(&r, EVENT_SPANS), 3);
    assert_int_equal(rig_event(&r, EVENT_TRACED)->traced.number, 0);
    assert_int_equal(rig_event(&r, EVENT_TRACED)->traced.n_ranks, 3);
    assert_int_equal(ask(&r, MS, &err), 0);
    rig_free(&r);
}

/* The driver knows the follower's clock by a heartbeat that has an echo. */
static void heartbeats_measure_clocks(void **state)
{
    const int64_t ahead = -900 * (int64_t)MS;
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;
    struct offset_estimate e;
    struct err err;
    int n_ranks;
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    rig_go_to(&r, 2, CMD_TRAIN);
    rig_wait(&r, 1200);
    assert_true(r.beat.clock_ns > 0 && r.beat.clock_ns <= r.now);
    h.bucket = -1;
    h.echo_ns = r.beat.clock_ns; /* 2 ms on the way to the follower, and 4 ms back */
    h.held_ns = r.now - r.beat.clock_ns - 6 * MS;
    h.clock_ns = r.now - 4 * MS + ahead;
    m.generation = 1;
    m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
    m.heartbeat = &h;
    rig_message(&r, 1, &m);
    assert_int_equal(driver_trace(r.d, r.now, MS, &n_ranks, &err), 0);
    rig_report(&r, 1, piece(1));
    assert_int_equal(offset_at(&rig_event(&r, EVENT_SPANS)->spans.clock, r.now, &e), 1);
    assert_int_equal(e.error_ns, 3 * MS);
    assert_true(llabs(e.offset_ns - ahead) <= e.error_ns);
    rig_free(&r);
}

/* A follower echoes the driver's clock, and records when it is told to. */
static void a_follower_answers(void **state)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;
    Wire__Trace t = WIRE__TRACE__INIT;
    struct rig r;
    (void)state;
    go_to(&r, TRAIN);
    rig_wait(&r, 1200);
    assert_int_equal(r.beat.echo_ns, 0);
    assert_int_equal(r.beat.held_ns, 0);
    assert_true(r.beat.clock_ns > 0);
    h.clock_ns = 4711;
    h.bucket = -1;
    m.generation = 1;
    m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
    m.heartbeat = &h;
    rig_message(&r, 0, &m);
    const int64_t came = r.now;
    rig_wait(&r, 1000);
    assert_int_equal(r.beat.echo_ns, 4711);
    assert_int_equal(r.beat.held_ns, r.beat.clock_ns - came);
    t.number = 3;
    t.duration_ns = 10 * MS;
    m.body_case = WIRE__CONTROL__BODY_TRACE;
    m.trace = &t;
    rig_message(&r, 0, &m);
    assert_int_equal(r.n_traces, 1);
    assert_int_equal(r.trace_number, 3);
    rig_report(&r, 1, piece(3));
    assert_int_equal(r.sent[0]->body_case, WIRE__CONTROL__BODY_SPANS);
    assert_int_equal(r.sent[0]->spans->n_spans, 2);
    get(&r, TRAIN, 1); /* the command under way is not answered by that */
    assert_ends(&r, STATUS_FAILED, RETRY_SOON, "broke the protocol");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_operator_asks),         cmocka_unit_test(an_evaluation_has_no_steps),
        cmocka_unit_test(records_become_events),     cmocka_unit_test(other_records_are_left_out),
        cmocka_unit_test(a_lost_rank_owes_nothing),  cmocka_unit_test(the_job_asks),
        cmocka_unit_test(heartbeats_measure_clocks), cmocka_unit_test(a_follower_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
