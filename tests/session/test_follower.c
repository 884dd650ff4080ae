/* follower: from Hello to each of the ways in which it ends.
 * The test plays the driver and the engine. */
#include "follower_rig.h"

static void get_stop(struct rig *r)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Stop stop = WIRE__STOP__INIT;
    char text[] = "stopped by SIGTERM";
    stop.outcome = WIRE__OUTCOME__OUTCOME_STOPPED;
    stop.text = text;
    m.generation = 1;
    m.body_case = WIRE__CONTROL__BODY_STOP;
    m.stop = &stop;
    rig_message(r, 0, &m);
}

static void assert_gpus_said(const Wire__Hello *h)
{
    assert_int_equal(h->n_gpus, 2);
    assert_string_equal(h->gpus[0]->uuid, "MIG-a");
    assert_string_equal(h->gpus[0]->bus, "0000:65:00.0");
    assert_string_equal(h->gpus[1]->bus, ""); /* not known */
    assert_int_equal(h->gpus[1]->index, 2);
    assert_string_equal(h->no_gpu, "no luck");
}

static void it_does_what_it_is_told(void **state)
{
    static const int answers[] = {WIRE__CONTROL__BODY_ENDPOINTS, WIRE__CONTROL__BODY_FORMED,
                                  WIRE__CONTROL__BODY_EPOCH_DONE, WIRE__CONTROL__BODY_VALIDATE_DONE,
                                  WIRE__CONTROL__BODY_CHECKPOINT_DONE};
    struct rig r;
    (void)state;
    rig_follower(&r);
    assert_int_equal(follower_rank(r.f), -1);
    assert_gpus_said(r.sent[0]->hello);
    get(&r, WELCOME, 0);
    assert_int_equal(follower_rank(r.f), 1);
    assert_string_equal(follower_device(r.f), "cpu");
    assert_int_equal(r.command->kind, CMD_OPEN);
    assert_string_equal(r.command->open.data_dir, "/data");
    assert_memory_equal(r.command->open.job.data, "name: x", 7);
    rig_report(&r, 1, rig_opened());
    assert_int_equal(r.sent[0]->body_case, WIRE__CONTROL__BODY_READY);
    for (int i = PREPARE; i <= CHECKPOINT; i++) {
        get(&r, i, 1);
        assert_int_equal(r.command->kind, CMD_PREPARE + i - PREPARE);
        assert_int_equal(r.command->generation, 1);
        answer(&r);
        assert_int_equal((int)r.sent[0]->body_case, answers[i - PREPARE]);
        assert_int_equal(r.sent[0]->generation, 1);
    }
    int n = r.n_beats;
    for (int i = 0; i < 3; i++) {
        rig_wait(&r, 1000);
        get(&r, BEAT, 1);
    }
    assert_in_range(r.n_beats - n, 2, 4);
    get_stop(&r);
    assert_int_equal(r.n_aborts, 0);
    assert_int_equal(r.command->kind, CMD_STOP);
    assert_ends(&r, STATUS_STOPPED, 1, "stopped by SIGTERM");
}

static void get_drain(struct rig *r, int taken_back)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Drain drain = WIRE__DRAIN__INIT;
    drain.taken_back = taken_back;
    m.generation = 1;
    m.body_case = WIRE__CONTROL__BODY_DRAIN;
    m.drain = &drain;
    rig_message(r, 0, &m);
}

/* A drained follower does not come back, however it ends: it would only join the same job again. */
static void who_is_drained_does_not_come_back(void **state)
{
    struct rig r;
    (void)state;
    go_to(&r, TRAIN);
    get_drain(&r, 0);
    assert_int_equal(r.n_aborts, 0);
    assert_false(r.is_closed[0]);
    get_stop(&r);
    assert_ends(&r, STATUS_STOPPED, 0, "stopped by SIGTERM");
    go_to(&r, TRAIN);
    get_drain(&r, 0);
    get(&r, ABORT, 1);
    assert_ends(&r, STATUS_STOPPED, 0, "rank 1 (hostB) was lost");
    go_to(&r, TRAIN);
    get_drain(&r, 0);
    rig_close(&r, 0);
    assert_ends(&r, STATUS_STOPPED, 0, "lost the driver");
    go_to(&r, TRAIN);
    get_drain(&r, 0);
    get_drain(&r, 1);
    rig_close(&r, 0);
    assert_ends(&r, STATUS_FAILED, 1, "lost the driver");
}

static void the_first_step_is_told_at_once(void **state)
{
    struct rig r;
    (void)state;
    go_to(&r, TRAIN);
    int n = r.n_beats;
    for (int i = 0; i < 2; i++) {
        struct report *p = report_new(REPORT_STEP, 1);
        p->step.first = i == 0;
        rig_report(&r, 1, p);
    }
    assert_int_equal(r.n_beats, n + 1);
    rig_free(&r);
}

static void before_welcome(void **state)
{
    struct rig r;
    struct err refused;
    (void)state;
    rig_follower(&r);
    get(&r, REFUSED, 0);
    assert_ends(&r, STATUS_REFUSED, RETRY_LATER,
                "refused by the driver at 10.0.0.1:7000: rank 1 is taken");
    rig_follower(&r);
    rig_close(&r, 0);
    assert_ends(&r, STATUS_REFUSED, RETRY_UNANSWERED,
                "no answer from the driver at 10.0.0.1:7000: it closed the connection (crashed or "
                "killed?); if it refused this follower, its log says why");
    rig_follower(&r);
    err_set(&refused, ERR_PROTO, "from 10.0.0.1:7000: bad magic");
    r.is_closed[0] = 1;
    follower_closed(r.f, r.now, &refused);
    rig_drain(&r);
    assert_ends(&r, STATUS_REFUSED, RETRY_SOON,
                "no answer from the driver at 10.0.0.1:7000: bad magic; if it refused");
    rig_follower(&r);
    rig_wait(&r, 11000);
    assert_ends(&r, STATUS_REFUSED, RETRY_UNANSWERED, "no sign of life from the driver for 10.0 s");
    rig_follower(&r);
    err_set(&refused, ERR_REFUSED, "10.0.0.1:7000: the secrets differ");
    r.is_closed[0] = 1;
    follower_closed(r.f, r.now, &refused);
    rig_drain(&r);
    assert_ends(&r, STATUS_REFUSED, RETRY_SOON, "does not let this follower in: the secrets");
    /* At several ports there are others, which have another secret or are no driver. */
    rig_seeker(&r, "none:29500");
    r.is_closed[0] = 1;
    follower_closed(r.f, r.now, &refused);
    rig_drain(&r);
    assert_ends(&r, STATUS_REFUSED, RETRY_UNANSWERED, "does not let this follower in: the secrets");
    rig_follower(&r);
    get(&r, TRAIN, 0);
    assert_ends(&r, STATUS_REFUSED, 1, "want Welcome or Refused first");
}

/* A follower comes again unless the reason is its own job or data, which time does not mend. */
static void comes_again(void **state)
{
    static const struct {
        Wire__Reason reason;
        enum retry retry;
    } cases[] = {
        {WIRE__REASON__REASON_VERSION, RETRY_LATER},
        {WIRE__REASON__REASON_RANK_TAKEN, RETRY_LATER},
        {WIRE__REASON__REASON_RANK_RANGE, RETRY_NOT},
        {WIRE__REASON__REASON_FULL, RETRY_LATER},
        {WIRE__REASON__REASON_DEVICE, RETRY_LATER},
        {WIRE__REASON__REASON_LAYOUT, RETRY_NOT},
        {WIRE__REASON__REASON_SAMPLES, RETRY_NOT},
        {WIRE__REASON__REASON_DATA, RETRY_NOT},
        {WIRE__REASON__REASON_ENDING, RETRY_SOON},
        {WIRE__REASON__REASON_OTHER_JOB, RETRY_UNANSWERED},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        Wire__Control m = WIRE__CONTROL__INIT;
        Wire__Refused refused = WIRE__REFUSED__INIT;
        char text[] = "the reason";

        refused.reason = cases[i].reason;
        refused.text = text;
        m.body_case = WIRE__CONTROL__BODY_REFUSED;
        m.refused = &refused;
        rig_follower(&r);
        rig_message(&r, 0, &m);
        assert_ends(&r, STATUS_REFUSED, (int)cases[i].retry, text);
    }
}

static void after_welcome(void **state)
{
    struct rig r;
    (void)state;
    go_to(&r, READY);
    get(&r, REFUSED, 0);
    assert_ends(&r, STATUS_REFUSED, RETRY_LATER, "refused by");
    go_to(&r, TRAIN);
    get(&r, ABORT, 1);
    assert_int_equal(r.n_aborts, 1);
    assert_ends(&r, STATUS_FAILED, 1, "rank 1 (hostB) was lost");
    go_to(&r, TRAIN);
    rig_close(&r, 0);
    assert_int_equal(r.n_aborts, 1);
    assert_ends(&r, STATUS_FAILED, 1, "lost the driver at 10.0.0.1:7000");
    go_to(&r, TRAIN);
    rig_wait(&r, 5300);
    assert_int_equal(r.sent[0]->body_case, WIRE__CONTROL__BODY_GOODBYE);
    assert_has(r.sent[0]->goodbye->text, "it had heard nothing from this driver for 5.");
    assert_ends(&r, STATUS_FAILED, 1, "no sign of life from the driver for 5.0 s");
    go_to(&r, READY);
    follower_stop(r.f, r.now, "SIGTERM");
    rig_drain(&r);
    assert_int_equal(r.sent[0]->body_case, WIRE__CONTROL__BODY_GOODBYE);
    assert_ends(&r, STATUS_STOPPED, 0, "stopped by SIGTERM");
}

/* The driver sends an Abort of generation 1. */
static void abort_it(struct rig *r, const char *text, int recover, int stopped)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Abort a = WIRE__ABORT__INIT;
    a.text = (char *)(uintptr_t)text;
    a.recover = recover;
    a.stopped = stopped;
    m.generation = 1;
    m.body_case = WIRE__CONTROL__BODY_ABORT;
    m.abort = &a;
    rig_message(r, 0, &m);
}

/* A second signal to the driver ends the job at once, and is no failure of the followers. */
static void it_is_stopped_with_its_driver(void **state)
{
    static const char text[] = "stopped at once by SIGTERM";
    struct rig r;
    (void)state;
    go_to(&r, TRAIN);
    abort_it(&r, text, 0, 1);
    assert_int_equal(r.n_aborts, 1);
    assert_ends(&r, STATUS_STOPPED, (int)RETRY_SOON, text);
}

/* A follower whose job just ends, while its engine still stops, waits for no other one. */
static void a_signal_at_the_end_counts(void **state)
{
    const struct notice notice = {.source = "test", .seconds = -1};

    (void)state;
    for (int by_notice = 0; by_notice < 2; by_notice++) {
        struct rig r;

        go_to(&r, TRAIN);
        abort_it(&r, "stopped by SIGTERM", 0, 1);
        assert_false(r.is_finished);
        if (by_notice)
            follower_notice(r.f, r.now, &notice);
        else
            follower_stop(r.f, r.now, "SIGTERM");
        rig_drain(&r);
        assert_ends(&r, STATUS_STOPPED, (int)RETRY_NOT, "stopped by SIGTERM");
    }
}

/* A follower that is asked to stop in training tells the driver, and goes on until it may go. */
static void it_leaves_at_the_end_of_a_step(void **state)
{
    static const int how[] = {STOP, 0, -1}; /* Stop comes; a second signal; nothing */
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(how); i++) {
        struct rig r;
        go_to(&r, TRAIN);
        follower_stop(r.f, r.now, "SIGTERM");
        rig_drain(&r);
        assert_int_equal(r.sent[0]->body_case, WIRE__CONTROL__BODY_GOODBYE);
        assert_true(r.sent[0]->goodbye->polite);
        assert_false(r.is_closed[0]);
        assert_int_equal(r.n_aborts, 0);
        if (how[i] == STOP) {
            answer(&r);
            get(&r, STOP, 1);
        } else if (how[i] == 0) {
            follower_stop(r.f, r.now, "SIGTERM");
            rig_drain(&r);
        }
        for (int s = 0; s < 31 && !r.is_closed[0]; s++) {
            get(&r, BEAT, 1);
            rig_wait(&r, 1000);
        }
        assert_ends(&r, STATUS_STOPPED, 0, "stopped by SIGTERM");
    }
}

static void pause_it(struct rig *r) { abort_it(r, "rank 2 (hostC) was lost", 1, 0); }

/* When another rank is lost, a follower keeps its state, forgets what ran, and obeys the next
 * Prepare, whether or not the engine has ended what ran. */
static void it_waits_when_another_is_lost(void **state)
{
    struct rig r;
    (void)state;
    go_to(&r, TRAIN);
    int n_sent = r.n_sent[0];
    pause_it(&r);
    pause_it(&r); /* the same again changes nothing */
    assert_int_equal(r.n_aborts, 1);
    assert_false(r.is_closed[0]);
    assert_logged(&r, "rank 2 (hostC) was lost; this rank keeps its state and waits");
    get(&r, PREPARE, 2);
    assert_int_equal(r.command->kind, CMD_PREPARE);
    assert_int_equal(r.command->generation, 2);
    struct report *f = report_new(REPORT_FAULT, 1);
    err_set(&f->fault.err, ERR_CANCELED, "aborted");
    f->fault.is_consequence = 1;
    rig_report(&r, 1, f); /* it comes late, from an older generation */
    assert_int_equal(r.n_sent[0], n_sent);
    answer(&r);
    assert_int_equal(r.sent[0]->body_case, WIRE__CONTROL__BODY_ENDPOINTS);
    assert_int_equal(r.sent[0]->generation, 2);
    rig_free(&r);

    go_to(&r, TRAIN); /* before the next Prepare nothing else may come */
    pause_it(&r);
    get(&r, VALIDATE, 1);
    assert_ends(&r, STATUS_FAILED, 1, "Validate: it came before Prepare");
    go_to(&r, TRAIN);
    pause_it(&r);
    get(&r, PREPARE, 1);
    assert_ends(&r, STATUS_FAILED, 1, "generation out of range");
    go_to(&r, READY);
    pause_it(&r);
    assert_ends(&r, STATUS_FAILED, 1, "another generation than Prepare");
}

static void form_has_what_its_ranks_need(void **state)
{
    static const struct {
        int n_ranks, n_endpoints, n_id_bytes, is_fit;
    } cases[] = {
        {2, 2, 0, 1},
        {2, 1, 0, 0},
        {2, 3, 0, 0},
        {2, 0, 0, 0},
        {2, 0, MSG_ID, 1},
        {2, 0, MSG_ID - 1, 0},
        {2, 0, MSG_ID + 1, 0},
        {2, 0, 2 * MSG_ID, 0},
        {2, 2, MSG_ID, 0},
        {128, 0, MSG_ID, 1},
        {129, 0, MSG_ID, 0},
        {129, 0, 2 * MSG_ID, 1},
        {256, 0, 2 * MSG_ID, 1},
        {256, 0, 3 * MSG_ID, 0},
        {257, 0, 3 * MSG_ID, 1},
        {4096, 0, 32 * MSG_ID, 1},
        {4097, 0, 32 * MSG_ID, 1}, /* from here on there are not more of them */
        {100000, 0, 32 * MSG_ID, 1},
        {100000, 0, 31 * MSG_ID, 0},
    };
    uint8_t id[32 * MSG_ID] = {1};
    ProtobufCBinaryData list[4];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        list[i] = (ProtobufCBinaryData){MSG_ID, id};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Wire__Control m = WIRE__CONTROL__INIT;
        Wire__Prepare p = WIRE__PREPARE__INIT;
        Wire__Form f = WIRE__FORM__INIT;
        char address[] = "10.0.0.1";
        struct rig r;
        go_to(&r, READY);
        p.rank = 1;
        p.n_ranks = cases[i].n_ranks;
        p.n_local = 1;
        p.address = address;
        m.generation = 1;
        m.body_case = WIRE__CONTROL__BODY_PREPARE;
        m.prepare = &p;
        rig_message(&r, 0, &m);
        answer(&r);
        f.endpoints = list;
        f.n_endpoints = (size_t)cases[i].n_endpoints;
        f.ids = (ProtobufCBinaryData){(size_t)cases[i].n_id_bytes, id};
        m.body_case = WIRE__CONTROL__BODY_FORM;
        m.form = &f;
        rig_message(&r, 0, &m);
        if (!cases[i].is_fit) {
            assert_ends(&r, STATUS_FAILED, 1, "Form: another number of ranks than in Prepare");
            continue;
        }
        assert_int_equal(r.command->kind, CMD_FORM);
        assert_int_equal(r.command->form.ids.len, cases[i].n_id_bytes);
        rig_free(&r);
    }
}

static void an_engine_that_hangs_is_left(void **state)
{
    struct rig r;
    (void)state;
    go_to(&r, TRAIN);
    get(&r, ABORT, 1);
    rig_wait(&r, 900);
    assert_true(r.is_finished);
    assert_true(r.is_engine_stuck);
    assert_false(r.retry); /* the process ends: a stuck engine cannot serve another driver */
    rig_free(&r);
}

static void a_follower_tells_where_it_is(void **state)
{
    struct rig r;
    struct collective c = {.generation = 1, .number = 5, .step = 2, .bucket = 3, .n_bytes = 64};
    struct progress p = {.generation = 1, .epoch = 1, .step = 2, .phase = PHASE_BACKWARD};
    (void)state;
    go_to(&r, TRAIN);
    p.since_ns = r.now - 700 * MS;
    p.n_steps = 2;
    p.wall_ns = 50 * MS;
    p.busy_ns = 40 * MS;
    p.head = (struct ring_head){.generation = 1, .n_handed = 6, .n_ended = 4, .at = c};
    follower_progress(r.f, r.now, &p);
    rig_wait(&r, 1000);
    assert_int_equal(r.beat.phase_ms, 1700); /* by the engine's clock */
    assert_int_equal(r.beat.n_handed, 6);
    assert_int_equal(r.beat.n_ended, 4);
    assert_int_equal(r.beat.at_step, 2);
    assert_int_equal(r.beat.at_bucket, 3);
    assert_int_equal(r.beat.at_bytes, 64);
    assert_int_equal(r.beat.n_steps, 2);
    assert_int_equal(r.beat.wall_ns, 50 * MS);
    assert_int_equal(r.beat.busy_ns, 40 * MS);
    p.head.generation = 0; /* of a formation that is gone */
    follower_progress(r.f, r.now, &p);
    rig_wait(&r, 1000);
    assert_int_equal(r.beat.n_handed, 0);
    assert_int_equal(r.beat.n_steps, 2);

    get(&r, INSPECT, 1);
    assert_int_equal(r.n_rings, 1);
    c.handed_ns = r.now - 8 * MS;
    c.began_ns = r.now - 7 * MS;
    follower_ring(r.f, r.now, &c, 1);
    rig_drain(&r);
    assert_int_equal(r.sent[0]->body_case, WIRE__CONTROL__BODY_RING);
    const Wire__Ring *ring = r.sent[0]->ring;
    assert_int_equal(ring->incident, 2);
    assert_int_equal(ring->n_collectives, 1);
    assert_int_equal(ring->collectives[0]->bucket, 3);
    assert_int_equal(ring->collectives[0]->handed_ns, -8 * MS);
    assert_int_equal(ring->collectives[0]->began_ns, -7 * MS);
    assert_int_equal(ring->collectives[0]->ended_ns, 0);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_does_what_it_is_told),
        cmocka_unit_test(who_is_drained_does_not_come_back),
        cmocka_unit_test(the_first_step_is_told_at_once),
        cmocka_unit_test(before_welcome),
        cmocka_unit_test(comes_again),
        cmocka_unit_test(after_welcome),
        cmocka_unit_test(it_is_stopped_with_its_driver),
        cmocka_unit_test(a_signal_at_the_end_counts),
        cmocka_unit_test(it_leaves_at_the_end_of_a_step),
        cmocka_unit_test(it_waits_when_another_is_lost),
        cmocka_unit_test(form_has_what_its_ranks_need),
        cmocka_unit_test(an_engine_that_hangs_is_left),
        cmocka_unit_test(a_follower_tells_where_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
