/* energy: each joule counts once, whoever reads the counter, whatever is lost or comes back; and
 * what the driver's session makes of heartbeats. */
#include "rig.h"

#include "session/energy.h"
#include "word.h"

enum { PATIENCE = 3000 };

static const struct energy_sums nothing = {{0}};

static void hear(struct energy *e, struct energy_reader *r, uint64_t key, int64_t mj, int64_t now)
{
    energy_heard(e, r, ENERGY_PACKAGE, key, mj, now);
}

static void want(const struct energy *e, int64_t mj)
{
    assert_int_equal(e->sums.mj[ENERGY_PACKAGE], mj);
}

static void differences_count(void **state)
{
    const struct energy_sums past = {{[ENERGY_PACKAGE] = 1000, [ENERGY_GPU] = 7}};
    struct energy_reader r = {0};
    struct energy e;

    (void)state;
    energy_init(&e, &past, 4, PATIENCE);
    hear(&e, &r, 1, 0, 0); /* not known */
    assert_false(energy_has(&e, ENERGY_PACKAGE, 1));
    hear(&e, &r, 1, 50000, 1);
    want(&e, 1000);
    assert_true(energy_has(&e, ENERGY_PACKAGE, 1));
    hear(&e, &r, 1, 50400, 2);
    hear(&e, &r, 1, 0, 3); /* not known for once */
    hear(&e, &r, 1, 50500, 4);
    want(&e, 1500);
    assert_int_equal(e.sums.mj[ENERGY_GPU], 7);
    hear(&e, &r, 1, 20, 5); /* a counter that begins anew */
    want(&e, 1500);
    hear(&e, &r, 1, 30, 6);
    want(&e, 1510);
    assert_int_equal(r.of[ENERGY_PACKAGE].told_mj, 510);
    energy_fini(&e);
}

/* Two ranks of a machine, whose processes began to count at different times. */
static void one_of_a_machine_tells(void **state)
{
    struct energy_reader a = {0}, b = {0}, other = {0};
    struct energy e;

    (void)state;
    energy_init(&e, &nothing, 4, PATIENCE);
    for (int t = 0; t <= 10; t++) {
        hear(&e, &a, 1, 1 + 100 * t, 1000 * t);
        hear(&e, &b, 1, 70001 + 100 * t, 1000 * t + 500);
        hear(&e, &other, 2, 1 + 10 * t, 1000 * t + 700);
    }
    want(&e, 1000 + 100);
    assert_int_equal(b.of[ENERGY_PACKAGE].told_mj, 0);
    energy_fini(&e);
}

/* The teller is lost: what it told last stays, and the other rank goes on from there. */
static void a_lost_teller(void **state)
{
    struct energy_reader a = {0}, b = {0};
    struct energy e;

    (void)state;
    energy_init(&e, &nothing, 4, PATIENCE);
    for (int t = 0; t <= 5; t++) {
        hear(&e, &a, 1, 1 + 100 * t, 1000 * t);
        hear(&e, &b, 1, 70001 + 100 * t, 1000 * t);
    }
    want(&e, 500);
    for (int t = 6; t <= 20; t++)
        hear(&e, &b, 1, 70001 + 100 * t, 1000 * t);
    want(&e, 2000);                /* nothing is missing, though b said nothing for a while */
    a = (struct energy_reader){0}; /* a new process in its place */
    for (int t = 21; t <= 30; t++) {
        hear(&e, &a, 1, 1 + 100 * (t - 21), 1000 * t);
        hear(&e, &b, 1, 70001 + 100 * t, 1000 * t);
    }
    want(&e, 3000);
    energy_fini(&e);
}

/* A teller that was silent for long and speaks again has lost its place, and adds nothing twice. */
static void a_teller_that_comes_back(void **state)
{
    struct energy_reader a = {0}, b = {0};
    struct energy e;

    (void)state;
    energy_init(&e, &nothing, 4, PATIENCE);
    for (int t = 0; t <= 30; t++) {
        if (t < 5 || t > 15)
            hear(&e, &a, 1, 1 + 100 * t, 1000 * t);
        hear(&e, &b, 1, 1 + 100 * t, 1000 * t + 1);
    }
    want(&e, 3000);
    energy_fini(&e);
}

/* Machines come and go: their meters' places are used again, the oldest first. */
static void meters_are_bounded(void **state)
{
    struct energy_reader lasting = {0};
    struct energy e;

    (void)state;
    energy_init(&e, &nothing, 2, PATIENCE);
    for (int t = 1; t <= 100; t++) {
        struct energy_reader passing = {0};

        hear(&e, &lasting, 7, 10 * t, 1000 * t);
        hear(&e, &passing, 1000 + (uint64_t)t, 5, 1000 * t + 1);
        hear(&e, &passing, 1000 + (uint64_t)t, 6, 1000 * t + 2);
    }
    want(&e, 990 + 100);
    assert_true(energy_has(&e, ENERGY_PACKAGE, 7));
    assert_false(energy_has(&e, ENERGY_PACKAGE, 1001));
    energy_fini(&e);
}

/* Numbers from a peer do not overflow. */
static void numbers_too_large(void **state)
{
    struct energy_reader r = {0};
    struct energy e;

    (void)state;
    energy_init(&e, &nothing, 1, PATIENCE);
    for (int t = 0; t < 64; t++)
        hear(&e, &r, 1, t % 2 ? INT64_MAX / 2 : 1, t);
    want(&e, INT64_MAX / 16);
    assert_true(r.of[ENERGY_PACKAGE].told_mj <= INT64_MAX / 16);
    energy_fini(&e);
}

/* ---- in the session ---- */

/* Rank 0 on its machine, the others on machines of their own: each takes `mj` in a heartbeat. */
static void say_energy(struct rig *r, int n_ranks, struct word *w, int64_t mj)
{
    for (int k = 0; k < n_ranks; k++) {
        w[k].phase = PHASE_LOAD;
        w[k].package_mj += mj;
        say(r, k, &w[k]);
    }
    rig_wait(r, 1000);
}

static void a_run_adds_up(void **state)
{
    struct word w[3] = {{.package_mj = 5000}, {.package_mj = 1}, {.package_mj = 90000}};
    const struct word silent = {PHASE_LOAD};
    struct driver_options o = rig_elastic(3);
    struct status s;
    struct rig r;

    (void)state;
    o.no_energy = "rank 0's reason";
    o.led.energy.mj[ENERGY_PACKAGE] = 400;
    o.price_per_rank_hour = 3600;
    start_training(&r, &o);
    driver_status(r.d, r.now, &s);
    assert_null(s.no_energy); /* no rank has told of itself yet */
    status_fini(&s);
    say(&r, 0, &silent);
    say(&r, 1, &silent);
    driver_status(r.d, r.now, &s);
    assert_string_equal(s.no_energy, "rank 0's reason");
    status_fini(&s);
    for (int i = 0; i <= 10; i++)
        say_energy(&r, 3, w, 100);
    driver_status(r.d, r.now, &s);
    assert_int_equal(s.energy.mj[ENERGY_PACKAGE], 400 + 3 * 1000);
    assert_int_equal(s.rank[2].energy.mj[ENERGY_PACKAGE], 1000);
    assert_null(s.no_energy);
    status_fini(&s);
    assert_int_equal(r.beat.package_mj, 3400); /* to a standby */
    rig_free(&r);
}

/* A rank is lost and another process takes its place, on the same machine. */
static void a_lost_rank_keeps_its_joules(void **state)
{
    struct word w[3] = {{.package_mj = 5000}, {.package_mj = 1}, {.package_mj = 90000}};
    struct driver_options o = rig_elastic(3);
    struct status s;
    struct rig r;

    (void)state;
    o.cluster.spares = 1;
    start_training(&r, &o);
    for (int i = 0; i <= 10; i++)
        say_energy(&r, 3, w, 100);
    rig_come(&r, 3, -1);
    rig_close(&r, 1);
    driver_status(r.d, r.now, &s);
    assert_int_equal(s.energy.mj[ENERGY_PACKAGE], 3000);
    status_fini(&s);
    RIG_ALL(&r, CMD_PREPARE, 1, 0, 3, 2);
    RIG_ALL(&r, CMD_FORM, 1, 0, 3, 2);
    w[1] = (struct word){.phase = PHASE_LOAD};
    say(&r, 3, &w[1]); /* it cannot read its counter yet */
    driver_status(r.d, r.now, &s);
    assert_string_equal(s.no_energy, "no counter of packages for 1 of 3 ranks");
    status_fini(&s);
    w[1].package_mj = 77;
    say(&r, 3, &w[1]);
    w[1].package_mj += 40;
    say(&r, 3, &w[1]);
    driver_status(r.d, r.now, &s);
    assert_int_equal(s.energy.mj[ENERGY_PACKAGE], 3040);
    assert_null(s.no_energy);
    status_fini(&s);
    rig_free(&r);
}

/* Each epoch's event has what the epoch took, and all that the run did. */
static void an_epoch_has_its_own(void **state)
{
    struct word w[2] = {{.package_mj = 1}, {.package_mj = 1}};
    struct driver_options o = rig_options(2);
    const struct session_event *e;
    struct rig r;

    (void)state;
    o.led.energy.mj[ENERGY_PACKAGE] = 400;
    o.price_per_rank_hour = 3600;
    o.n_epochs = 3;
    start_training(&r, &o);
    for (int i = 1; i <= 2; i++) {
        for (int k = 0; k <= 10; k++)
            say_energy(&r, 2, w, 100);
        while (rig_count(&r, EVENT_EPOCH) < i)
            rig_answer_all(&r, 2);
        while (r.command->kind != CMD_TRAIN)
            rig_answer_all(&r, 2);
        e = rig_event(&r, EVENT_EPOCH);
        assert_int_equal(e->energy.mj[ENERGY_PACKAGE], 400 + (i == 1 ? 2000 : 4200));
        assert_int_equal(e->epoch_energy.mj[ENERGY_PACKAGE], i == 1 ? 2000 : 2200);
        assert_true(e->epoch_cost > 21.9 && e->epoch_cost < 23); /* two ranks for 11 s */
    }
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences_count),    cmocka_unit_test(one_of_a_machine_tells),
        cmocka_unit_test(a_lost_teller),        cmocka_unit_test(a_teller_that_comes_back),
        cmocka_unit_test(meters_are_bounded),   cmocka_unit_test(numbers_too_large),
        cmocka_unit_test(a_run_adds_up),        cmocka_unit_test(a_lost_rank_keeps_its_joules),
        cmocka_unit_test(an_epoch_has_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
