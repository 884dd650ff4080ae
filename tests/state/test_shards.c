/* shards: how ranks divide the state anew when a formation begins.  Ranks are threads, which train
 * by writing numbers that tell their step and place.  Formations break off at every collective,
 * ranks are lost, and claims are made that cannot be. */
#include "../test.h"

#include <string.h>

#include "base/util.h"
#include "members.h"
#include "strategy/cut.h"

static void a_lost_rank(void **state)
{
    struct member m[MOST_RANKS], *all[MOST_RANKS];

    (void)state;
    for (int lost = 0; lost < MOST_RANKS; lost++) {
        struct member *left[MOST_RANKS - 1];

        begin_members(m, all, MOST_RANKS, 2, 5);
        for (int k = 0, n = 0; k < MOST_RANKS; k++)
            if (k != lost)
                left[n++] = all[k];
        form_members(left, MOST_RANKS - 1, 5);
        assert_int_equal(left[0]->state->shards->now.lineage, 2);
        end_members(m, MOST_RANKS);
    }
}

static void a_rank_and_its_buddy_lost(void **state)
{
    struct member m[MOST_RANKS], *all[MOST_RANKS];
    struct member *const left[] = {&m[0], &m[3]};

    (void)state;
    begin_members(m, all, MOST_RANKS, 2, 5);
    run_members(left, 2, form_member, NULL);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(left[k]->rc, SHARDS_LOST);
        assert_non_null(strstr(left[k]->err.msg, "the part of rank 1 was held by the ranks 1 and 2 "
                                                 "of 4, and both were lost"));
        assert_int_equal(left[k]->state->shards->older_step, -1);
    }
    end_members(m, MOST_RANKS);
}

/* Rank 0 is a driver that has loaded a checkpoint of step 3.  Of step 5 one half is left. */
static void an_older_step(void **state)
{
    struct member m[3], *all[3];
    struct member *const left[] = {&m[2], &m[1]};

    (void)state;
    begin_members(m, all, 2, 1, 5);
    begin_member(&m[2], 1, 1);
    train_member(&m[2], 3);
    run_members(left, 2, form_member, NULL);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(left[k]->rc, SHARDS_LOST);
        assert_int_equal(left[k]->state->shards->older_step, 3);
        left[k]->state->shards->takes_older = 1;
    }
    form_members(left, 2, 3);
    end_members(m, 3);
}

/* One rank made step 6; the other one has all that its update needs, or has lost that, too. */
static void a_rank_behind(void **state)
{
    (void)state;
    for (int ahead = 0; ahead < 2; ahead++)
        for (int is_prepared = 0; is_prepared < 2; is_prepared++) {
            struct member m[2], *all[2], *behind = &m[!ahead];

            begin_members(m, all, 2, 2, 5);
            train_member(&m[ahead], 6);
            m[ahead].state->shards->check[0] = 17;
            m[ahead].state->shards->check[1] = 4;
            behind->state->shards->prepared_step = is_prepared ? 5 : -1;
            form_members(all, 2, 6);
            assert_int_equal(behind->n_rolls, is_prepared);
            assert_int_equal(m[ahead].n_rolls, 0);
            end_members(m, 2);
        }
}

/* The last rank fails at its n-th collective, for each n.  The next formation has the state.  If
 * both ranks have all of their new shards, the second one has them without rank 0, too. */
static void breaks_off(void **state)
{
    int n_failed = 0, n_alone = 0;

    (void)state;
    for (int alone = 0; alone < 2; alone++)
        for (int n = 1, ok = 0; !ok; n++) {
            struct member m[2], *all[2];
            const struct coll_fault fault = {
                .channel = COLL_BULK, .at_ticket = n, .fail = ERR_PEER};

            for (int k = 0; k < 2; k++) {
                begin_member(&m[k], 2, k == 0);
                all[k] = &m[k];
            }
            train_member(&m[0], 4);
            run_members(all, 2, form_member, &fault);
            ok = m[1].rc == 0;
            assert_true(ok ? m[0].rc == 0 : m[0].rc < 0 && m[1].rc < 0);
            n_failed += !ok;
            if (!ok && alone) {
                run_members(&all[1], 1, form_member, NULL);
                assert_int_equal(m[1].rc == 0, m[1].state->at.step == 4);
                if (m[1].rc == 0)
                    assert_member_holds(&m[1], 4, 1);
                n_alone += m[1].rc == 0;
            } else if (!ok) {
                form_members(all, 2, 4);
            }
            end_members(m, 2);
        }
    assert_true(n_failed >= 10);
    assert_int_equal(n_alone, 1); /* only what says that all ranks have everything failed */
}

/* ---- claims that cannot be ---- */

enum { CLAIM_NUMBERS = 6, CLAIM_SETS = 2 };

/* A foreign rank sends this in place of its claims: {step, lineage, size, rank, n_held,
 * is_prepared} of two sets. */
static int64_t foreign[CLAIM_SETS][CLAIM_NUMBERS];
static struct ckpt_state foreign_at; /* its position, as the newest step's holder */

static int claim_wrongly(struct member *m, struct coll *c, struct err *err)
{
    int64_t all[MOST_RANKS][CLAIM_SETS][CLAIM_NUMBERS];
    double check[2] = {17, 4};

    if (m->at == 0)
        return form_member(m, c, err);
    if (coll_allgather(c, foreign, sizeof foreign, all, err) < 0 || !foreign_at.step)
        return err->code;
    return coll_broadcast(c, &foreign_at, sizeof foreign_at, 1, err) < 0 ||
                   coll_broadcast(c, check, sizeof check, 1, err) < 0
               ? err->code
               : 0;
}

static void claims_that_cannot_be(void **state)
{
    static const int64_t row[][CLAIM_NUMBERS] = {
        {9, 1, 2, 2, 1, 0},  {9, 1, 2, -1, 1, 0},        {9, 1, 2, 1, 0, 0},
        {9, 1, 2, 1, 3, 0},  {9, 1, -2, 1, 1, 0},        {9, 1, 1 << 30, 1, 1, 0},
        {9, -1, 2, 1, 1, 0}, {9, INT64_MAX, 2, 1, 1, 0},
    };

    (void)state;
    for (int i = 0; i < (int)ARRAY_LEN(row); i++) {
        struct member m[2], *all[2];

        begin_members(m, all, 2, 2, 5);
        memset(foreign, 0, sizeof foreign);
        foreign_at.step = 0;
        memcpy(foreign[i % CLAIM_SETS], row[i], sizeof row[i]);
        run_members(all, 2, claim_wrongly, NULL);
        assert_int_equal(m[0].rc, ERR_PROTO);
        assert_non_null(strstr(m[0].err.msg, "rank 1 claims a shard that cannot be"));
        end_members(m, 2);
    }
}

/* A rank claims step 6, for which the other one is prepared, and sends the position of another. */
static void another_position(void **state)
{
    (void)state;
    for (int64_t step = 5; step <= 7; step += 2) {
        struct member m[2], *all[2];

        begin_members(m, all, 2, 2, 5);
        m[0].state->shards->prepared_step = 5;
        memcpy(foreign, (int64_t[][CLAIM_NUMBERS]){{6, 1, 2, 1, 2, 0}, {6, 0, 0, 0, 0, 0}},
               sizeof foreign);
        foreign_at.step = step;
        run_members(all, 2, claim_wrongly, NULL);
        assert_int_equal(m[0].rc, ERR_PROTO);
        assert_non_null(strstr(m[0].err.msg, "want step 6"));
        assert_int_equal(m[0].n_rolls, 0);
        end_members(m, 2);
    }
}

static int exchange_another(struct member *m, struct coll *c, struct err *err)
{
    struct shard_source from;
    struct ckpt_state at;
    int rc = shards_agree(m->state, c, &from, err);

    for (int k = -1; k <= 1 && rc == 0; k += 2) {
        at = m->state->at;
        at.step += k;
        rc = shards_exchange(m->state, c, &from, &at, err) == ERR_PROTO ? 0 : ERR_ARG;
    }
    shard_source_fini(&from);
    return rc;
}

static void another_position_of_the_state(void **state)
{
    struct member m[2], *all[2];

    (void)state;
    begin_members(m, all, 2, 2, 5);
    run_members(all, 2, exchange_another, NULL);
    assert_int_equal(m[0].rc, 0);
    assert_int_equal(m[1].rc, 0);
    form_members(all, 2, 5);
    end_members(m, 2);
}

/* ---- collected, and proven ---- */

static int collect(struct member *m, struct coll *c, struct err *err)
{
    return shards_collect(m->state, c, err);
}

static void collected(void **state)
{
    struct member m[3], *all[3];

    (void)state;
    begin_members(m, all, 3, 2, 5);
    run_members(all, 3, collect, NULL);
    for (int k = 0; k < 3; k++)
        assert_int_equal(m[k].rc, 0);
    assert_int_equal(m[0].state->shards->next.lineage, m[0].state->shards->now.lineage);
    assert_int_equal(m[0].state->shards->next.size, 1);
    assert_int_equal(shards_bytes(m[0].state) - TRAINED * sizeof(float),
                     sizeof(float) * (size_t)(cut_shard(&members_layout, 3, 0) +
                                              cut_shard(&members_layout, 3, 2)));
    form_members(all, 1, 5);
    end_members(m, 3);
}

static int prove(struct member *m, struct coll *c, struct err *err)
{
    return shards_prove(m->state, c, err);
}

/* The last number of the copy that rank 0 holds of the last rank's shard is another one. */
static void a_copy_that_differs(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST_RANKS; n++) {
        struct member m[MOST_RANKS], *all[MOST_RANKS];
        float *copy;

        begin_members(m, all, n, 2, 5);
        run_members(all, n, prove, NULL);
        for (int k = 0; k < n; k++)
            assert_int_equal(m[k].rc, 0);
        copy = m[0].state->shards->now.data[MOMENT_SLOT][SHARD_COPY];
        copy[cut_shard(&members_layout, n, n - 1) - 1] += 1;
        run_members(all, n, prove, NULL);
        for (int k = 0; k < n; k++)
            assert_int_equal(m[k].rc, k == 0 ? ERR_NUMERIC : 0);
        end_members(m, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_rank),      cmocka_unit_test(a_rank_and_its_buddy_lost),
        cmocka_unit_test(an_older_step),    cmocka_unit_test(a_rank_behind),
        cmocka_unit_test(breaks_off),       cmocka_unit_test(claims_that_cannot_be),
        cmocka_unit_test(another_position), cmocka_unit_test(another_position_of_the_state),
        cmocka_unit_test(collected),        cmocka_unit_test(a_copy_that_differs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
