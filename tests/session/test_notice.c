/* Machines that are about to go away: a follower tells of its notice and leaves, and the driver
 * hands over to its standby, or stops. */
#include "follower_rig.h"

static const struct notice spot = {.source = "aws", .seconds = 120};
static const struct notice vague = {.source = "command", .seconds = -1};

/* ---- a follower ---- */

static void hear(struct rig *r, const struct notice *n)
{
    follower_notice(r->f, r->now, n);
    rig_drain(r);
}

static void assert_goodbye(const struct rig *r, int is_polite)
{
    const Wire__Goodbye *g = r->sent[0]->goodbye;
    assert_int_equal(r->sent[0]->body_case, WIRE__CONTROL__BODY_GOODBYE);
    assert_int_equal(g->polite, is_polite);
    assert_string_equal(g->source, "aws");
    assert_int_equal(g->seconds, 120);
}

static void it_tells_what_to_heed(void **state)
{
    struct rig r;
    (void)state;
    rig_follower(&r);
    assert_null(follower_heeds(r.f));
    get(&r, WELCOME, 0);
    assert_string_equal(follower_heeds(r.f), "test ! -e /run/leaves"); /* of the sample */
    rig_free(&r);
}

/* The signal with which the machine ends its services comes after the notice, and changes
 * nothing; the one after that does. */
static void it_leaves_after_the_step(void **state)
{
    (void)state;
    for (int n_signals = 0; n_signals <= 2; n_signals++) {
        struct rig r;
        go_to(&r, TRAIN);
        hear(&r, &spot);
        hear(&r, &vague); /* the first one counts */
        assert_goodbye(&r, 1);
        for (int i = 0; i < n_signals; i++) {
            follower_stop(r.f, r.now, "SIGTERM");
            rig_drain(&r);
        }
        assert_int_equal(r.is_closed[0], n_signals == 2);
        assert_int_equal(r.n_aborts, n_signals == 2);
        if (n_signals < 2)
            answer(&r);
        if (n_signals < 2)
            get(&r, STOP, 1);
        assert_ends(&r, STATUS_STOPPED, RETRY_NOT, "stopped by SIGTERM"); /* also of Stop */
    }
}

/* It goes on until the last moments of its machine; without a number as after a signal. */
static void its_patience(void **state)
{
    static const struct {
        int64_t seconds;
        int least_s, most_s;
    } cases[] = {{10, 7, 9}, {1, 1, 3}, {-1, 29, 31}, {100, 97, 99}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        int s = 0;
        go_to(&r, TRAIN);
        hear(&r, &(struct notice){.source = "aws", .seconds = cases[i].seconds});
        for (; !r.is_closed[0] && s < 200; s++) {
            get(&r, BEAT, 1);
            rig_wait(&r, 1000);
        }
        assert_in_range(s, cases[i].least_s, cases[i].most_s);
        assert_ends(&r, STATUS_STOPPED, RETRY_NOT, "its machine goes away (notice of aws)");
    }
}

/* Before training there is nothing to wait for, nor after a signal to tell. */
static void it_leaves_at_once_where_it_can(void **state)
{
    struct rig r;
    (void)state;
    go_to(&r, READY);
    hear(&r, &spot);
    assert_goodbye(&r, 0);
    assert_ends(&r, STATUS_STOPPED, RETRY_NOT, "its machine goes away");
    go_to(&r, TRAIN);
    follower_stop(r.f, r.now, "SIGTERM");
    hear(&r, &spot);
    assert_string_equal(r.sent[0]->goodbye->source, "");
    follower_stop(r.f, r.now, "SIGTERM");
    rig_drain(&r);
    assert_ends(&r, STATUS_STOPPED, RETRY_NOT, "stopped by SIGTERM");
}

/* ---- a follower of a driver ---- */

static void say_notice(struct rig *r, int conn, int is_polite)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Goodbye g = WIRE__GOODBYE__INIT;
    char text[] = "its machine goes away (notice of aws)", source[] = "aws";
    g.text = text;
    g.polite = is_polite;
    g.source = source;
    g.seconds = 120;
    m.generation = r->command->generation;
    m.body_case = WIRE__CONTROL__BODY_GOODBYE;
    m.goodbye = &g;
    rig_message(r, conn, &m);
}

static void assert_noticed(const struct rig *r, int rank, const char *host)
{
    const struct session_event *e = rig_event(r, EVENT_NOTICE);
    assert_int_equal(e->rank, rank);
    assert_string_equal(e->host, host);
    assert_string_equal(e->text, "aws");
    assert_int_equal(e->notice.seconds, 120);
}

static void a_rank_leaves_without_a_lost_step(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    o.cluster.min_ranks = 2;
    o.cluster.notice = "echo 30";
    rig_train(&r, &o);
    say_notice(&r, 1, 1);
    assert_noticed(&r, 1, "h1");
    assert_logged(&r, "the machine of rank 1 (h1) goes away in 120 s (notice of aws)");
    assert_int_equal(r.n_requests, 1);
    RIG_ALL(&r, CMD_TRAIN, 3, 0, 1, 2);
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_STOP);
    assert_string_equal(rig_event(&r, EVENT_LOST)->text,
                        "rank 1 (h1) left: its machine goes away (notice of aws)");
    rig_assert_prepare(&r, 2, 1, 2);
    rig_free(&r);
}

static void the_job_says_what_to_heed(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    o.cluster.notice = "echo 30";
    rig_driver(&r, &o);
    rig_hello(&r, 1, 1);
    assert_int_equal(r.sent[1]->welcome->notice.len, 7);
    assert_memory_equal(r.sent[1]->welcome->notice.data, "echo 30", 7);
    rig_free(&r);
}

static void a_spare_leaves(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(2);
    (void)state;
    o.cluster.spares = 1;
    rig_train(&r, &o);
    rig_come(&r, 2, -1);
    say_notice(&r, 2, 0);
    assert_noticed(&r, -1, "h2");
    rig_free(&r);
}

/* ---- the driver ---- */

static struct driver_options with_votes(int n_ranks)
{
    struct driver_options o = rig_with_votes(n_ranks);
    o.cluster.min_ranks = 1;
    return o;
}

static void driver_hears(struct rig *r, const struct notice *n)
{
    driver_notice(r->d, r->now, n);
    rig_drain(r);
}

static void get_sigterm(struct rig *r)
{
    driver_stop(r->d, r->now, "SIGTERM");
    rig_drain(r);
}

static void assert_handed_over(struct rig *r, int n_ranks)
{
    for (int k = 0; k < n_ranks; k++) { /* nobody is told anything */
        assert_true(r->is_closed[k]);
        assert_int_not_equal(r->sent[k]->body_case, WIRE__CONTROL__BODY_STOP);
        assert_int_not_equal(r->sent[k]->body_case, WIRE__CONTROL__BODY_ABORT);
    }
    rig_report(r, 0, report_new(REPORT_STOPPED, 1));
    assert_true(r->is_finished);
    assert_int_equal(r->status, STATUS_STOPPED);
    assert_false(r->is_deposed);
    assert_has(r->text, "the standby at 10.0.0.12:7001 leads from step 2 on");
    assert_int_equal(rig_count(r, EVENT_LOST), 0);
}

/* SIGTERM follows the notice, and is not one more request. */
static void it_hands_over(void **state)
{
    (void)state;
    for (int is_repeated = 0; is_repeated < 2; is_repeated++) {
        struct rig r;
        const struct driver_options o = with_votes(3);
        rig_train_with_standby(&r, &o);
        int n = r.n_requests;
        driver_hears(&r, &spot);
        driver_hears(&r, &vague);
        assert_noticed(&r, 0, "h0");
        assert_int_equal(rig_count(&r, EVENT_NOTICE), 1);
        assert_int_equal(r.n_requests, n + 1); /* a regroup */
        if (is_repeated)
            get_sigterm(&r);
        assert_int_equal(r.n_requests, n + 1);
        RIG_ALL(&r, CMD_TRAIN, 2, 0, 1, 2);
        assert_handed_over(&r, 3);
        rig_free(&r);
    }
}

static void assert_stops(struct rig *r, int n_requests, const char *why)
{
    assert_int_equal(r->n_requests, n_requests);
    assert_logged(r, why);
    assert_logged(r, "stopping after this step, with a checkpoint");
    assert_false(r->is_closed[1]);
    rig_free(r);
}

static const char by_notice[] = "the notice that this machine goes away (aws): stopping";

/* Without a standby that could lead it writes a checkpoint, and stops. */
static void it_stops(void **state)
{
    struct rig r;
    struct driver_options o = with_votes(3);
    (void)state;
    rig_train(&r, &o);
    int n = r.n_requests;
    driver_hears(&r, &spot);
    get_sigterm(&r);
    assert_stops(&r, n + 1, by_notice);

    o.n_children = 2; /* they end with it */
    rig_train_with_standby(&r, &o);
    n = r.n_requests;
    driver_hears(&r, &spot);
    assert_stops(&r, n + 1, by_notice);

    o = with_votes(3);
    o.is_divided = o.is_only_holder = 1;
    rig_train_with_standby(&r, &o);
    n = r.n_requests;
    driver_hears(&r, &spot);
    assert_stops(&r, n + 1, by_notice);
}

/* All machines go away, one notice after the other. */
static void others_go_too(void **state)
{
    struct rig r;
    struct driver_options o = with_votes(3);
    (void)state;
    rig_train_with_standby(&r, &o);
    driver_hears(&r, &spot);
    rig_say_goodbye(&r, RIG_STANDBY);
    int n = r.n_requests;
    RIG_ALL(&r, CMD_TRAIN, 2, 0, 1, 2);
    assert_stops(&r, n + 1, "no standby can lead any more");

    rig_train_with_standby(&r, &o);
    driver_hears(&r, &spot);
    say_notice(&r, 1, 1);
    say_notice(&r, 2, 1);
    n = r.n_requests;
    rig_wait(&r, 600);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    assert_true(r.n_requests > n);
    assert_logged(&r, "no standby can lead any more");
    rig_free(&r);

    o.is_divided = 1; /* the part of rank 1 may be held by rank 0 alone */
    rig_train_with_standby(&r, &o);
    driver_hears(&r, &spot);
    say_notice(&r, 1, 1);
    rig_wait(&r, 600);
    assert_logged(&r, "no standby can lead any more");
    rig_free(&r);
}

/* One of two followers goes, too: the other one is enough. */
static void one_that_stays_is_enough(void **state)
{
    struct rig r;
    const struct driver_options o = with_votes(3);
    (void)state;
    rig_train_with_standby(&r, &o);
    driver_hears(&r, &spot);
    say_notice(&r, 1, 1);
    RIG_ALL(&r, CMD_TRAIN, 2, 0, 1, 2);
    assert_handed_over(&r, 3);
    rig_free(&r);
}

/* A second signal is an operator's, who wants it to stop with a checkpoint. */
static void an_operator_can_stop_it(void **state)
{
    struct rig r;
    const struct driver_options o = with_votes(3);
    (void)state;
    rig_train_with_standby(&r, &o);
    driver_hears(&r, &spot);
    get_sigterm(&r);
    int n = r.n_requests;
    get_sigterm(&r);
    assert_stops(&r, n + 1, "SIGTERM: stopping after this step");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_tells_what_to_heed),
        cmocka_unit_test(it_leaves_after_the_step),
        cmocka_unit_test(its_patience),
        cmocka_unit_test(it_leaves_at_once_where_it_can),
        cmocka_unit_test(a_rank_leaves_without_a_lost_step),
        cmocka_unit_test(the_job_says_what_to_heed),
        cmocka_unit_test(a_spare_leaves),
        cmocka_unit_test(it_hands_over),
        cmocka_unit_test(it_stops),
        cmocka_unit_test(others_go_too),
        cmocka_unit_test(one_that_stays_is_enough),
        cmocka_unit_test(an_operator_can_stop_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
