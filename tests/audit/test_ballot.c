/* The ranks whose state is wrong, and what went wrong: each case is a table of hashes, and what the
 * ranks are told.  The simulator of tests/session has the seeded schedules. */
#include "../test.h"

#include "audit/ballot.h"
#include "base/util.h"

enum { MOST = 6, TENSORS = 3, STEP = 7 };

static struct hash128 of(int wrong) { return (struct hash128){1, (uint64_t)wrong}; }

/* wrong [n_ranks][TENSORS]: how each tensor is wrong; 0: it is right.  The first one is compared.
 */
static void hold(struct ballot *b, int n_ranks, int wrong[][TENSORS])
{
    struct hash128 compared[MOST];

    ballot_begin(b, n_ranks, TENSORS);
    for (int k = 0; k < n_ranks; k++) {
        compared[k] = of(wrong[k][0]);
        for (int i = 0; i < TENSORS; i++)
            b->told[k * TENSORS + i] = of(wrong[k][i]);
    }
    ballot_count(b, compared);
}

static void test_verdicts(void **state)
{
    static struct {
        const char *what;
        int n_ranks, wrong[MOST][TENSORS];
        unsigned named;
        int is_sure, tensor[MOST]; /* of those that are named */
    } cases[] = {
        {"one of three", 3, {{0}, {0, 5}}, 2, 1, {0, 1}},
        {"the first one", 3, {{5}}, 1, 1, {0}},
        {"the last tensor", 3, {{0}, {0}, {0, 0, 5}}, 4, 1, {0, 0, 2}},
        {"two of five", 5, {{0}, {5, 5}, {0}, {0}, {0, 6}}, 18, 1, {0, 0, 0, 0, 1}},
        {"two alike of five", 5, {{5}, {5}}, 3, 1, {0}},
        {"two of four", 4, {{0}, {5}, {0}, {0, 6}}, 15, 0, {0, 0, 0, 1}},
        {"two alike of four", 4, {{5}, {5}}, 15, 0, {0}},
        {"one of two", 2, {{0}, {0, 5}}, 3, 0, {1, 1}},
        {"all of three", 3, {{0, 4}, {5}, {0, 0, 6}}, 7, 0, {0, 0, 1}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ballot b;
        unsigned named = 0;
        int last = 0;

        hold(&b, cases[i].n_ranks, cases[i].wrong);
        for (int k = 0; k < b.n_ranks; k++) {
            named |= (unsigned)ballot_names(&b, k) << k;
            last = ballot_names(&b, k) ? k : last;
        }
        if (named != cases[i].named || ballot_has_majority(&b) != cases[i].is_sure)
            fail_msg("%s: named %u, %d votes", cases[i].what, named, b.n_votes);
        for (int k = 0; k < b.n_ranks; k++) {
            struct report *r;

            if (!ballot_names(&b, k))
                continue;
            if (ballot_tensor(&b, k) != cases[i].tensor[k])
                fail_msg("%s: rank %d is wrong from tensor %d on", cases[i].what, k,
                         ballot_tensor(&b, k));
            r = ballot_report(&b, k, CORRUPTION_STATE, STEP, 0, NULL);
            assert_true(r->corruption.rank == k && r->corruption.step == STEP);
            assert_int_equal(r->corruption.is_proven, cases[i].is_sure);
            assert_int_equal(r->corruption.ends, k == last);
            assert_true(!r->corruption.is_healed && !r->corruption.tensor);
            assert_int_equal(r->corruption.share, -1);
            report_free(r);
        }
        ballot_fini(&b);
    }
}

/* A state that is mended ends nothing, and a wrong update is one of the step before. */
static void test_a_mended_update(void **state)
{
    int wrong[][TENSORS] = {{0}, {0}, {0, 5}};
    struct ballot b;
    struct report *r;

    (void)state;
    hold(&b, 3, wrong);
    r = ballot_report(&b, 2, CORRUPTION_UPDATE, STEP, 1, "fc.weight");
    assert_true(r->corruption.is_healed && !r->corruption.ends && !r->corruption.leaves);
    assert_int_equal(r->corruption.step, STEP - 1);
    assert_string_equal(r->corruption.tensor, "fc.weight");
    report_free(r);
    ballot_fini(&b);
}

/* It is the update alone if everything before it was equal, and known. */
static void test_what_went_wrong(void **state)
{
    static const struct {
        int before, summed, control, after, knows_before, differs;
        enum corruption what;
    } cases[] = {
        {0, 0, 0, 5, 1, 1, CORRUPTION_UPDATE}, {0, 0, 0, 5, 0, 1, CORRUPTION_STATE},
        {5, 0, 0, 5, 1, 1, CORRUPTION_STATE},  {0, 5, 0, 5, 1, 1, CORRUPTION_STATE},
        {0, 0, 5, 5, 1, 1, CORRUPTION_STATE},  {0, 0, 5, 0, 1, 1, CORRUPTION_STATE},
        {5, 5, 0, 0, 1, 0, CORRUPTION_STATE},  {0, 0, 0, 0, 1, 0, CORRUPTION_UPDATE},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int k = 0; k < 3; k++) {
            struct compared all[3];

            for (int r = 0; r < 3; r++)
                all[r] = (struct compared){
                    of(r == k ? cases[i].before : 0), of(r == k ? cases[i].summed : 0),
                    of(r == k ? cases[i].control : 0), of(r == k ? cases[i].after : 0)};
            assert_int_equal(ballot_differs(all, 3), cases[i].differs);
            assert_int_equal(
                !hash_equal(ballot_compared(&all[k]), ballot_compared(&all[(k + 1) % 3])),
                cases[i].differs);
            assert_int_equal(ballot_what(all, 3, cases[i].knows_before), cases[i].what);
        }
}

/* A copy that differs from its original: both holders are named, and the last one ends training. */
static void test_holders(void **state)
{
    static const struct {
        int n_ranks, differs[MOST];
        unsigned named;
        int last;
    } cases[] = {
        {2, {0, 1}, 3, 1},    {4, {0, 1}, 3, 1},           {4, {1}, 9, 3},
        {5, {0, 1, 1}, 7, 2}, {5, {0, 1, 0, 0, 1}, 27, 4},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int k = 0; k < cases[i].n_ranks; k++) {
            const int is_named = ballot_names_holder(cases[i].differs, cases[i].n_ranks, k);
            struct report *r;

            assert_int_equal(is_named, cases[i].named >> k & 1);
            if (!is_named)
                continue;
            r = ballot_report_holder(cases[i].differs, cases[i].n_ranks, k, STEP);
            assert_true(r->corruption.rank == k && r->corruption.step == STEP);
            assert_true(!r->corruption.is_proven && !r->corruption.is_healed);
            assert_int_equal(r->corruption.share, -1);
            assert_int_equal(r->corruption.ends, k == cases[i].last);
            report_free(r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_a_mended_update),
        cmocka_unit_test(test_what_went_wrong),
        cmocka_unit_test(test_holders),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
