/* The rank that looks at a share, and the one at fault: each case is a table of answers, and what
 * the ranks agree on.  The simulator of tests/session has the seeded schedules. */
#include "../test.h"

#include "audit/jury.h"
#include "base/util.h"

enum { MOST = 6 };

/* An answer about `share`: right, or wrong in its gradient by this number, or in its batch by this
 * negative one. */
static struct answer make_answer(int share, int wrong)
{
    const uint64_t s = (uint64_t)share + 1;

    return (struct answer){
        .batch = {s, wrong < 0 ? (uint64_t)-wrong : 0},
        .gradient = {s, wrong != 0 ? (uint64_t)(wrong < 0 ? -wrong : wrong) : 0}};
}

/* All ranks look; own[k], other[k]: how rank k is wrong. */
static enum jury_turn hear(struct jury *j, const int *own, const int *other)
{
    struct opinion all[MOST];

    for (int k = 0; k < j->n_ranks; k++) {
        all[k].own = make_answer(k, own ? own[k] : 0);
        all[k].other = make_answer(jury_next(j, k), other ? other[k] : 0);
    }
    return jury_hear_opinions(j, all);
}

static enum jury_turn hear_votes(struct jury *j, const int *wrong)
{
    struct answer vote[MOST];

    for (int k = 0; k < j->n_ranks; k++)
        vote[k] = make_answer(j->owner, wrong ? wrong[k] : 0);
    return jury_hear_votes(j, vote, "fc.weight");
}

static void begin(struct jury *j, int n_ranks)
{
    static const int kinds[MOST] = {0};

    *j = (struct jury){0};
    jury_begin(j, kinds, n_ranks);
    jury_open(j, 7);
}

/* Each rank is computed again by the next one of its kind, and a rank alone by nobody. */
static void test_kinds(void **state)
{
    static const int kinds[] = {0, 0, 2, 0, 4, 4};
    static const int next[] = {1, 3, -1, 0, 5, 4}, before[] = {3, 0, -1, 1, 5, 4};
    struct jury j = {0};

    (void)state;
    jury_begin(&j, kinds, ARRAY_LEN(kinds));
    for (int k = 0; k < (int)ARRAY_LEN(kinds); k++) {
        assert_int_equal(jury_next(&j, k), next[k]);
        assert_int_equal(jury_before(&j, k), before[k]);
    }
    jury_fini(&j);
}

/* One wrong answer in the first look; the votes; who is named then, as a set of bits. */
static void test_verdicts(void **state)
{
    static const struct {
        const char *what;
        int n_ranks, own[MOST], other[MOST], vote[MOST];
        unsigned named, proven;
        enum corruption as;
    } cases[] = {
        {"the owner, once", 4, {0, 5}, {0}, {0}, 2, 2, CORRUPTION_GRADIENT},
        {"the owner, again", 4, {0, 5}, {0}, {0, 5}, 2, 2, CORRUPTION_GRADIENT},
        {"the auditor, once", 4, {0}, {5}, {0}, 1, 1, CORRUPTION_GRADIENT},
        {"the owner's samples", 3, {0, -5}, {0}, {0}, 2, 2, CORRUPTION_BATCH},
        {"a voter, too", 5, {0, 5}, {0}, {0, 0, 0, 0, 6}, 18, 18, CORRUPTION_GRADIENT},
        {"both of a pair", 5, {0, 5}, {6}, {0, 5}, 3, 3, CORRUPTION_GRADIENT},
        {"two of three", 3, {0, 5}, {0}, {0, 5, 6}, 3, 0, CORRUPTION_GRADIENT},
        {"one contradicts itself", 3, {0, 5}, {0}, {0, 7, 6}, 2, 2, CORRUPTION_GRADIENT},
        {"one of two, once", 2, {0, 5}, {0}, {0}, 2, 2, CORRUPTION_GRADIENT},
        {"one of two, otherwise", 2, {0, 5}, {0}, {0, 6}, 2, 2, CORRUPTION_GRADIENT},
        {"one of two, the same again", 2, {0, 5}, {0}, {0, 5}, 3, 0, CORRUPTION_GRADIENT},
        {"both of two, once", 2, {0, 5}, {6}, {0}, 3, 3, CORRUPTION_GRADIENT},
        {"both of two, otherwise", 2, {0, 5}, {6}, {7, 8}, 3, 0, CORRUPTION_GRADIENT},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct jury j;
        unsigned named = 0, proven = 0;

        begin(&j, cases[i].n_ranks);
        assert_int_equal(hear(&j, cases[i].own, cases[i].other), JURY_VOTE);
        assert_int_equal(j.owner, 1);
        assert_int_equal(hear_votes(&j, cases[i].vote), JURY_LOOK);
        assert_int_equal(hear(&j, NULL, NULL), JURY_AGREED);
        for (int k = 0; k < j.n_found; k++) {
            const struct jury_finding *f = &j.found[k];

            named |= 1u << f->rank;
            proven |= (unsigned)f->is_proven << f->rank;
            assert_true(f->is_healed && !f->ends && f->what == cases[i].as && f->step == 7);
            assert_int_equal(f->share, 1);
            assert_false(jury_condemns(&j, f->rank));
        }
        if (named != cases[i].named || proven != cases[i].proven)
            fail_msg("%s: named %u, proven %u", cases[i].what, named, proven);
        jury_fini(&j);
    }
}

/* A rank that is wrong in each round is condemned, and one that was wrong once is not. */
static void test_only_who_stays_wrong_is_condemned(void **state)
{
    static const int always[MOST] = {0, 5};
    struct jury j;

    (void)state;
    begin(&j, 5);
    for (int round = 0; round < JURY_ROUNDS; round++) {
        const int both[MOST] = {0, 5, 0, round ? 0 : 9};

        assert_int_equal(hear(&j, both, NULL), JURY_VOTE);
        assert_int_equal(hear_votes(&j, always), round == 0                 ? JURY_VOTE
                                                 : round == JURY_ROUNDS - 1 ? JURY_FAILED
                                                                            : JURY_LOOK);
        if (round == 0)
            assert_int_equal(hear_votes(&j, NULL), JURY_LOOK);
    }
    assert_int_equal(j.n_found, 2);
    for (int k = 0; k < 5; k++)
        assert_int_equal(jury_condemns(&j, k), k == 1);
    assert_true(j.found[1].rank == 3 && j.found[1].is_proven && j.found[1].is_healed);
    assert_true(j.found[0].share == 1 && j.found[1].share == 3);
    jury_fini(&j);
}

/* Rank 0 is wrong about the share of rank 1, and in the vote on that of rank 3, of which nobody
 * knows the tensor: the share that is told is the tensor's. */
static void test_share_and_tensor_belong_together(void **state)
{
    static const int own[MOST] = {0, 0, 0, 9}, other[MOST] = {5}, wrong[MOST] = {7};
    struct report *r;
    struct jury j;

    (void)state;
    begin(&j, 5);
    assert_int_equal(hear(&j, own, other), JURY_VOTE);
    assert_int_equal(hear_votes(&j, NULL), JURY_VOTE);
    assert_int_equal(j.owner, 3);
    assert_int_equal(hear_votes(&j, wrong), JURY_LOOK);
    assert_int_equal(hear(&j, NULL, NULL), JURY_AGREED);
    assert_int_equal(j.n_found, 2);
    for (int i = 0; i < 2; i++) {
        r = jury_report(&j.found[i], 1);
        assert_int_equal(r->corruption.rank, i == 0 ? 0 : 3);
        assert_int_equal(r->corruption.share, i == 0 ? 1 : 3);
        assert_string_equal(r->corruption.tensor, "fc.weight");
        report_free(r);
    }
    jury_fini(&j);
}

/* Rank 3 is wrong in the vote on the share of rank 1, and then about its own. */
static void test_a_share_with_a_tensor_is_told(void **state)
{
    static const int own[MOST] = {0, 5, 0, 9}, wrong[MOST] = {0, 0, 0, 6};
    struct jury j;

    (void)state;
    begin(&j, 5);
    assert_int_equal(hear(&j, own, NULL), JURY_VOTE);
    assert_int_equal(hear_votes(&j, wrong), JURY_VOTE);
    assert_true(j.found[1].rank == 3 && j.found[1].share == 1 && !j.found[1].tensor);
    assert_int_equal(hear_votes(&j, NULL), JURY_LOOK);
    assert_int_equal(j.n_found, 2);
    assert_true(j.found[1].rank == 3 && j.found[1].share == 3 && j.found[1].tensor);
    jury_fini(&j);
}

/* Rank 0 may be wrong about the share of rank 1, and is wrong in the vote on that of rank 2. */
static void test_a_tensor_of_another_share_is_not_told(void **state)
{
    static const int own[MOST] = {0, 5, 9}, split[MOST] = {0, 5, 6}, wrong[MOST] = {4};
    const struct jury_finding *f;
    struct jury j;

    (void)state;
    begin(&j, 3);
    assert_int_equal(hear(&j, own, NULL), JURY_VOTE);
    assert_int_equal(hear_votes(&j, split), JURY_VOTE);
    f = &j.found[1];
    assert_true(f->rank == 0 && !f->is_proven && f->share == 1 && f->tensor);
    assert_int_equal(hear_votes(&j, wrong), JURY_LOOK);
    assert_true(f->rank == 0 && f->is_proven && f->share == 2 && !f->tensor);
    jury_fini(&j);
}

/* Of two ranks that repeat their answers nobody is proven to be at fault: the last one that is
 * named ends the job. */
static void test_nobody_is_proven(void **state)
{
    static const int wrong[MOST] = {0, 5};
    struct jury j;

    (void)state;
    begin(&j, 2);
    for (int round = 0; round < JURY_ROUNDS; round++) {
        assert_int_equal(hear(&j, wrong, NULL), JURY_VOTE);
        hear_votes(&j, wrong);
    }
    assert_int_equal(j.turn, JURY_FAILED);
    assert_int_equal(j.n_found, 2);
    for (int k = 0; k < 2; k++) {
        assert_false(j.found[k].is_proven || j.found[k].is_healed || jury_condemns(&j, k));
        assert_int_equal(j.found[k].ends, k);
    }
    jury_fini(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_only_who_stays_wrong_is_condemned),
        cmocka_unit_test(test_share_and_tensor_belong_together),
        cmocka_unit_test(test_a_share_with_a_tensor_is_told),
        cmocka_unit_test(test_a_tensor_of_another_share_is_not_told),
        cmocka_unit_test(test_nobody_is_proven),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
