/* driver_gather: which followers are let in, as which rank, and which are refused.  The test
 * plays the followers. */
#include "gather_answer.h"

/* ---- Hello ---- */

static void hello_is_refused_with_its_reason(void **state)
{
    static const struct {
        struct rig_caller who;
        Wire__Reason reason;
        const char *text;
    } cases[] = {
        {{.rank = 1, .protocol = 9}, WIRE__REASON__REASON_VERSION, "(protocol 9)"},
        {{.rank = 1, .version = "9.9"},
         WIRE__REASON__REASON_VERSION,
         "the follower is dptrain 9.9"},
        {{.rank = 1, .version = "9.8"},
         WIRE__REASON__REASON_VERSION,
         "the driver on h0 dptrain " DPTRAIN_VERSION},
        {{.rank = 1, .version = "9.7"},
         WIRE__REASON__REASON_VERSION,
         "): install the same version on all machines"},
        {{.rank = 0}, WIRE__REASON__REASON_RANK_TAKEN, "rank 0 is the driver itself, h0 (pid 100)"},
        {{.rank = 2}, WIRE__REASON__REASON_RANK_TAKEN, "rank 2 is taken by h2 (pid 102)"},
        {{.rank = 3},
         WIRE__REASON__REASON_RANK_RANGE,
         "rank 3 is out of range: this job has 3 ranks"},
        {{.rank = 1, .device = "cuda:0"},
         WIRE__REASON__REASON_DEVICE,
         "runs on cpu, as its driver does, and not on cuda:0"},
        {{.rank = 1, .backend = "cuda"}, WIRE__REASON__REASON_DEVICE, "has no cpu"},
        {{.rank = 1, .launch = "none:29501", .version = "9.9"},
         WIRE__REASON__REASON_OTHER_JOB,
         "the driver on h0 is of the launcher's job \"none:29500\", and the follower of "
         "\"none:29501\""},
    };
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    o.cluster.heartbeat_timeout_ms = 100000;
    o.launch = "none:29500";
    rig_driver(&r, &o);
    rig_hello(&r, 2, 2); /* a follower that was told no launcher's job */
    assert_welcome(&r, 2, 2);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int conn = 3 + (int)i;
        rig_connect(&r, conn, "10.0.0.9");
        rig_say_hello(&r, conn, &cases[i].who);
        assert_refused(&r, conn, cases[i].reason, cases[i].text);
    }
    rig_free(&r);
}

static int n_lines(struct rig *r, const char *part)
{
    int n = 0;
    for (const char *s = buf_cstr(&r->log); (s = strstr(s, part)); s++)
        n++;
    return n;
}

/* Other ranks could not use an address that holds on one link, be it the peer's or the one told. */
static void link_local_addresses_are_refused(void **state)
{
    static const struct {
        const char *peer, *advertise, *named; /* named NULL: not refused */
    } cases[] = {
        {"fe80::7%eth0", NULL, "it comes from fe80::7%eth0, a link-local"},
        {"10.0.0.7", "FEB0::1", "it comes from FEB0::1, a link-local"},
        {"fe80::7%eth0", "10.0.0.7", "it comes from fe80::7%eth0, a link-local"},
        {"fec0::7", "fd80::1", NULL},
        {"10.0.0.7", "fe8::1", NULL}, /* 0fe8 */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int is_standby = 0; is_standby < 2; is_standby++) {
            struct rig r;
            struct driver_options o = rig_options(2);
            o.cluster.driver_timeout_ms = 9000; /* so that a standby is of use */
            o.run = "r";
            rig_driver(&r, &o);
            rig_connect(&r, 1, cases[i].peer);
            rig_say_hello(&r, 1,
                          &(struct rig_caller){.rank = -1,
                                               .advertise = cases[i].advertise,
                                               .standby = is_standby ? "77aa" : NULL});
            if (cases[i].named)
                assert_refused(&r, 1, WIRE__REASON__REASON_DEVICE, cases[i].named);
            else
                assert_welcome(&r, 1, is_standby ? 0 : 1);
            if (!cases[i].named && is_standby) /* it leads from there */
                assert_has(r.sent[1]->welcome->standby, cases[i].advertise);
            rig_free(&r);
        }
}

/* Anybody can connect where there is no secret.  A flood of strangers must not become a flood of
 * lines. */
static void a_flood_of_strangers_is_told_in_few_lines(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    o.cluster.deadlines.gather_ms = 100000;
    rig_driver(&r, &o);
    for (int conn = 1; conn < RIG_CONNS - 2; conn++) {
        rig_connect(&r, conn, "10.0.0.9");
        rig_close(&r, conn);
    }
    assert_int_equal(n_lines(&r, "went away before it said Hello"), 10);
    assert_int_equal(n_lines(&r, "came to nothing"), 0);
    rig_wait(&r, 10500);
    assert_int_equal(n_lines(&r, "3 more connections came to nothing within 10 s"), 1);
    rig_connect(&r, RIG_CONNS - 2, "10.0.0.9"); /* and the next ones are told again */
    rig_close(&r, RIG_CONNS - 2);
    assert_int_equal(n_lines(&r, "went away before it said Hello"), 11);
    rig_wait(&r, 20000);
    assert_int_equal(n_lines(&r, "came to nothing"), 1);
    assert_int_equal(r.n_refused, RIG_CONNS - 2); /* the audit has each of them */
    rig_hello(&r, RIG_CONNS - 1, 1);
    assert_welcome(&r, RIG_CONNS - 1, 1);
    rig_free(&r);
}

static void a_full_job_refuses(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    rig_hello(&r, 1, -1);
    assert_welcome(&r, 1, 1);
    rig_hello(&r, 2, -1);
    assert_refused(&r, 2, WIRE__REASON__REASON_FULL, "all its 2 ranks");
    rig_free(&r);
}

static void who_wants_any_gives_way(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    rig_driver(&r, &o);
    rig_hello(&r, 1, -1);
    assert_welcome(&r, 1, 1);
    rig_hello(&r, 2, 1);
    assert_welcome(&r, 2, 1);
    for (int k = 0; k < 3; k++)
        rig_report(&r, k, rig_opened());
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_PREPARE);
    assert_int_equal(r.sent[1]->prepare->rank, 2);
    assert_int_equal(r.sent[2]->prepare->rank, 1);
    assert_int_equal(n_lines(&r, "rank 1 (h1, pid 101) is rank 2 from here on"), 1);
    assert_int_equal(n_lines(&r, "from here on"), 1);
    rig_free(&r);
}

/* Followers ask for ranks 1 and 2 by number, and one more wants any rank.  That one is the spare,
 * whenever it came. */
static void who_wants_any_is_the_spare(void **state)
{
    static const int wanted[][3] = {{-1, 1, 2}, {-1, 2, 1}, {1, -1, 2}, {2, -1, 1}, {1, 2, -1}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        struct rig r;
        struct driver_options o = rig_options(3);
        o.cluster.spares = 1;
        o.cluster.heartbeat_timeout_ms = 100000;
        rig_driver(&r, &o);
        rig_report(&r, 0, rig_opened());
        for (int k = 0; k < 3; k++) {
            rig_hello(&r, 1 + k, wanted[i][k]);
            assert_int_equal(r.sent[1 + k]->body_case, WIRE__CONTROL__BODY_WELCOME);
            if (wanted[i][2] > 0) /* the last one has its own time to open */
                rig_wait(&r, 15000);
        }
        for (int k = 0; k < 3; k++)
            rig_report(&r, 1 + k, rig_opened());
        for (int k = 0; k < 3; k++)
            if (wanted[i][k] > 0)
                assert_int_equal(r.sent[1 + k]->prepare->rank, wanted[i][k]);
            else
                assert_int_equal(r.sent[1 + k]->body_case, WIRE__CONTROL__BODY_WELCOME);
        assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
        assert_int_equal(n_lines(&r, "is spare 1 from here on"), wanted[i][2] > 0);
        rig_hello(&r, 4, -1);
        assert_refused(&r, 4, WIRE__REASON__REASON_FULL, "all its 3 ranks and 1 spares");
        rig_free(&r);
    }
}

static void strangers_must_say_hello(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Goodbye g = WIRE__GOODBYE__INIT;
    (void)state;
    rig_driver(&r, &o);
    rig_connect(&r, 1, "10.0.0.1");
    rig_wait(&r, 9000);
    assert_false(r.is_closed[1]);
    rig_wait(&r, 1500);
    assert_true(r.is_closed[1]);
    m.body_case = WIRE__CONTROL__BODY_GOODBYE;
    m.goodbye = &g;
    rig_connect(&r, 2, "10.0.0.2");
    rig_message(&r, 2, &m);
    assert_true(r.is_closed[2]);
    assert_logged(&r, "its first message is Goodbye, want Hello");
    rig_free(&r);
}

/* ---- Ready ---- */

static void what_differs_is_refused(void **state)
{
    static const struct {
        int what;
        Wire__Reason reason;
        const char *text;
    } cases[] = {
        {0, WIRE__REASON__REASON_LAYOUT, "rank 1 (h1): the model differs: tensor conv1.bias has"},
        {1, WIRE__REASON__REASON_LAYOUT, "tensor 2 is other on it and fc.weight on the driver"},
        {2, WIRE__REASON__REASON_LAYOUT,
         "2 tensors on it and 3 on the driver; the first without "
         "its like is fc.weight"},
        {3, WIRE__REASON__REASON_SAMPLES, "99 training and 12 validation samples on it, 100 and"},
        {4, WIRE__REASON__REASON_DATA, "as many samples, but fingerprint"},
        {5, WIRE__REASON__REASON_LAYOUT, "3 steps in an epoch on it, 4 on the driver"},
    };
    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) { /* before and after rank 0's own */
        struct rig r;
        struct driver_options o = rig_options(2);
        struct report *p = rig_opened();
        int what = cases[i / 2].what;
        rig_driver(&r, &o);
        rig_hello(&r, 1, 1);
        if (what <= 2)
            p->opened.layout.lo++;
        if (what == 0)
            p->opened.tensor[1].hash.lo++;
        if (what == 1)
            strcpy(p->opened.tensor[2].name, "other");
        if (what == 2)
            free(p->opened.tensor[--p->opened.n_tensors].name);
        if (what == 3)
            p->opened.n_train--;
        if (what == 4)
            p->opened.data.hi++;
        if (what == 5)
            p->opened.steps_per_epoch--;
        if (i % 2)
            rig_report(&r, 0, rig_opened());
        rig_report(&r, 1, p);
        if (i % 2 == 0)
            rig_report(&r, 0, rig_opened());
        r.is_trusted[1] = 0;
        assert_refused(&r, 1, cases[i / 2].reason, cases[i / 2].text);
        rig_hello(&r, 2, 1); /* the seat is free for a better one */
        rig_report(&r, 2, rig_opened());
        assert_int_equal(r.command->kind, CMD_PREPARE);
        rig_free(&r);
    }
}

static void who_leaves_early_frees_the_seat(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    rig_report(&r, 0, rig_opened());
    rig_hello(&r, 1, 1);
    rig_close(&r, 1);
    assert_logged(&r, "rank 1 (h1) left before training began");
    rig_hello(&r, 2, 1);
    assert_welcome(&r, 2, 1);
    rig_wait(&r, 6000); /* silent: lost */
    assert_true(r.is_closed[2]);
    assert_logged(&r, "no sign of life");
    rig_hello(&r, 3, 1);
    struct report *f = report_new(REPORT_FAULT, 0);
    err_set(&f->fault.err, ERR_IO, "no such file");
    rig_report(&r, 3, f);
    assert_logged(&r, "rank 1 (h3) left before training began: no such file");
    rig_hello(&r, 4, 1);
    rig_report(&r, 4, rig_opened());
    assert_int_equal(r.command->kind, CMD_PREPARE);
    assert_int_equal(rig_count(&r, EVENT_LOST), 0);
    rig_free(&r);
}

static void missing_ranks_are_named(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(4);
    (void)state;
    o.cluster.heartbeat_timeout_ms = 100000;
    rig_driver(&r, &o);
    rig_hello(&r, 2, 2);
    rig_wait(&r, 4900);
    assert_null(strstr(buf_cstr(&r.log), "waiting for"));
    rig_wait(&r, 300);
    assert_logged(&r, "waiting for rank 1, rank 3 to join: 2 of 4 here");
    rig_free(&r);
}

static void gathering_has_its_deadlines(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    o.cluster.heartbeat_timeout_ms = 100000;
    rig_driver(&r, &o);
    rig_hello(&r, 1, 1);
    rig_wait(&r, 60100);
    assert_has(rig_event(&r, EVENT_ERROR)->text,
               "gather took longer than 60 s (cluster.deadlines.gather); missing: rank 2");
    rig_free(&r);

    rig_driver(&r, &o);
    rig_hello(&r, 1, 1);
    rig_wait(&r, 30000);
    rig_hello(&r, 2, 2);
    rig_report(&r, 0, rig_opened());
    rig_report(&r, 1, rig_opened());
    rig_wait(&r, 20100);
    assert_has(
        rig_event(&r, EVENT_ERROR)->text,
        "ready took longer than 20 s (cluster.deadlines.ready); missing: rank 2 (h2: in open");
    rig_free(&r);

    rig_driver(&r, &o); /* rank 0 itself is late */
    for (int k = 1; k <= 2; k++) {
        rig_hello(&r, k, k);
        rig_report(&r, k, rig_opened());
    }
    rig_wait(&r, 20100);
    assert_has(rig_event(&r, EVENT_ERROR)->text,
               "ready took longer than 20 s (cluster.deadlines.ready); missing: rank 0 (");
    rig_free(&r);
}

/* The number of strangers' connections is bounded, whatever the caller lets in: two for each seat,
 * and 256. */
static void connections_are_bounded(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    struct action a;
    int n_closed = 0;
    (void)state;
    rig_driver(&r, &o);
    for (int conn = 1; conn <= 300; conn++) {
        driver_connected(r.d, r.now, conn, "10.0.0.9", "10.0.0.100", "10.0.0.9:4000");
        while (driver_next(r.d, &a)) {
            n_closed += a.kind == ACTION_CLOSE && a.conn == conn;
            action_fini(&a);
        }
    }
    assert_int_equal(n_closed, 300 - (2 * 2 + 256 + 1));
    rig_free(&r);
}

/* Heartbeats come more rarely beyond 1,000 ranks, and silence is at least three of them. */
static void many_ranks_beat_more_rarely(void **state)
{
    static const struct {
        int max_ranks;
        int64_t timeout_ms, beat_ms, silence_ms;
    } cases[] = {{2, 5000, 1000, 5000},    {2, 2000, 500, 2000},      {1000, 5000, 1000, 5000},
                 {1001, 5000, 2000, 6000}, {3500, 5000, 4000, 12000}, {3500, 60000, 4000, 60000}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(2);
        o.cluster.max_ranks = cases[i].max_ranks;
        o.cluster.heartbeat_timeout_ms = cases[i].timeout_ms;
        rig_driver(&r, &o);
        rig_hello(&r, 1, -1);
        assert_int_equal(r.sent[1]->welcome->heartbeat_ms, cases[i].beat_ms);
        assert_int_equal(r.sent[1]->welcome->heartbeat_timeout_ms, cases[i].silence_ms);
        rig_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_are_bounded),
        cmocka_unit_test(many_ranks_beat_more_rarely),
        cmocka_unit_test(hello_is_refused_with_its_reason),
        cmocka_unit_test(link_local_addresses_are_refused),
        cmocka_unit_test(a_flood_of_strangers_is_told_in_few_lines),
        cmocka_unit_test(a_full_job_refuses),
        cmocka_unit_test(who_wants_any_gives_way),
        cmocka_unit_test(who_wants_any_is_the_spare),
        cmocka_unit_test(strangers_must_say_hello),
        cmocka_unit_test(what_differs_is_refused),
        cmocka_unit_test(who_leaves_early_frees_the_seat),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(gathering_has_its_deadlines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
