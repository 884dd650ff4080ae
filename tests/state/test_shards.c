/* shards: how ranks divide the state anew when a formation begins.  Ranks are threads, which train
 * by writing numbers that tell their step and place.  Formations break off at every collective,
 * ranks are lost, and claims are made that cannot be. */
#include "../test.h"

#include <pthread.h>
#include <string.h>

#include "../coll/local.h"
#include "base/util.h"
#include "state/shards.h"
#include "strategy/cut.h"

enum { MOST_RANKS = 4, TRAINED = 80, TOTAL = 96 };

static struct bucket buckets[] = {{.offset = 0, .length = 50, .dtype = DTYPE_F32},
                                  {.offset = 50, .length = 46, .dtype = DTYPE_F32}};

static const struct layout layout = {.n_trained = TRAINED,
                                     .n_total = TOTAL,
                                     .n_state_total = 3,
                                     .bucket = buckets,
                                     .n_buckets = 2,
                                     .n_param_buckets = 2,
                                     .grad_dtype = DTYPE_F32,
                                     .copy_dtype = DTYPE_F32};

static const struct slot_def moment = {.name = "moment",
                                       .scope = SLOT_PER_TRAINED,
                                       .dtype = DTYPE_F32,
                                       .is_hashed = 1,
                                       .is_broadcast = 1};

static const struct slot_def *const more[] = {&moment};
enum { MOMENT_SLOT = 2 }; /* behind the parameters and the statistics */

/* A rank of several formations; in the present one it is rank `at`. */
struct member {
    struct backend *b;
    struct state *state;
    int at, rc, n_rolls;
    struct coll_group *group;
    int (*run)(struct member *m, struct coll *c, struct err *err);
    struct err err;
};

static float number(int64_t step, int64_t i) { return (float)(1000 * step + i); }

/* ---- what a rank holds ---- */

/* Call `what` for each number of the shards that the rank holds of the divided slot. */
static void for_shards(const struct state *s,
                       void (*what)(float *x, const struct state *s, int64_t i))
{
    const struct shard_set *set = &s->shards->now;

    for (int h = 0; h < set->n_held; h++)
        for (int b = 0; b < layout.n_buckets; b++) {
            const int owner = shard_owner(set, h);
            const struct coll_span span = cut_span(&layout, b, set->size, owner);
            float *x =
                (float *)set->data[MOMENT_SLOT][h] + cut_before(&layout, b, set->size, owner);

            for (int64_t i = 0; i < span.n; i++)
                what(&x[i], s, layout.bucket[b].offset + span.at + i);
        }
}

static void shards_write(float *x, const struct state *s, int64_t i) { *x = number(s->at.step, i); }

static void assert_written(float *x, const struct state *s, int64_t i)
{
    assert_true(*x == number(s->at.step, i));
}

/* The rank has made the step: its shards and all parameters say so. */
static void train(struct member *m, int64_t step)
{
    float *x = state_data(m->state, &slot_parameters);

    m->state->at.step = step;
    for_shards(m->state, shards_write);
    for (int64_t i = 0; i < TOTAL; i++)
        x[i] = number(step, i);
}

static void assert_holds(const struct member *m, int64_t step, int size)
{
    const float *x = state_data(m->state, &slot_parameters);

    assert_int_equal(m->state->at.step, step);
    assert_int_equal(m->state->shards->now.size, size);
    assert_int_equal(m->state->shards->now.rank, m->at);
    assert_int_equal(m->state->shards->next.size, 0);
    for_shards(m->state, assert_written);
    for (int64_t i = 0; i < TOTAL; i++)
        assert_true(x[i] == number(step, i));
}

static int roll(void *arg, const double *check, struct err *err)
{
    struct member *m = arg;
    const int64_t step = m->state->at.step;

    (void)err;
    ASSERT(check[0] == 17 && check[1] == 4); /* on a thread of the rank */
    train(m, step + 1);
    m->state->at.step = step;
    m->n_rolls++;
    return 0;
}

static void begin_member(struct member *m, int n_holders, int is_whole)
{
    const struct state_division d = {.n_divided = 1, .n_holders = n_holders, .whole = is_whole};

    *m = (struct member){.rc = 0};
    assert_int_equal(backend_open_cpu(1, &m->b, &m->err), 0);
    assert_int_equal(state_new_divided(m->b, &layout, more, 1, &d, &m->state, &m->err), 0);
    m->state->shards->roll = roll;
    m->state->shards->roll_arg = m;
}

static void end_member(struct member *m)
{
    state_free(m->state);
    backend_close(m->b);
}

/* ---- formations ---- */

static void *shards_thread(void *arg)
{
    struct member *m = arg;
    struct coll *c;

    ASSERT(coll_new_local(m->group, m->at, &c, &m->err) == 0);
    m->rc = m->run(m, c, &m->err);
    coll_free(c);
    return NULL;
}

static int form(struct member *m, struct coll *c, struct err *err)
{
    return state_broadcast(m->state, c, 0, err);
}

/* All n members do this at once, as ranks 0 to n - 1. */
static void run_members(struct member *const *m, int n,
                        int (*what)(struct member *m, struct coll *c, struct err *err),
                        const struct coll_fault *fault)
{
    struct coll_group *g = coll_group_new(n);
    pthread_t thread[MOST_RANKS];

    if (fault)
        coll_local_inject(g, n - 1, *fault);
    for (int k = 0; k < n; k++) {
        m[k]->at = k;
        m[k]->group = g;
        m[k]->run = what;
        assert_int_equal(pthread_create(&thread[k], NULL, shards_thread, m[k]), 0);
    }
    for (int k = 0; k < n; k++)
        pthread_join(thread[k], NULL);
    coll_group_free(g);
}

static void form_members(struct member *const *m, int n, int64_t step)
{
    run_members(m, n, form, NULL);
    for (int k = 0; k < n; k++) {
        if (m[k]->rc != 0)
            fail_msg("rank %d: %d: %s", k, m[k]->rc, m[k]->err.msg);
        assert_holds(m[k], step, n);
    }
}

/* n ranks that have made `step` together.  Rank 0 had the whole state before. */
static void begin_members(struct member *m, struct member **all, int n, int n_holders, int64_t step)
{
    for (int k = 0; k < n; k++) {
        begin_member(&m[k], n_holders, k == 0);
        all[k] = &m[k];
    }
    assert_int_equal(shards_bytes(m[0].state), TRAINED * sizeof(float));
    assert_int_equal(n > 1 ? shards_bytes(m[1].state) : 0, 0);
    train(&m[0], 0);
    form_members(all, n, 0);
    for (int k = 0; k < n; k++)
        train(&m[k], step);
}

static void end_members(struct member *m, int n)
{
    for (int k = 0; k < n; k++)
        end_member(&m[k]);
}

/* ---- the tests ---- */

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
    run_members(left, 2, form, NULL);
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
    train(&m[2], 3);
    run_members(left, 2, form, NULL);
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
            train(&m[ahead], 6);
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
            train(&m[0], 4);
            run_members(all, 2, form, &fault);
            ok = m[1].rc == 0;
            assert_true(ok ? m[0].rc == 0 : m[0].rc < 0 && m[1].rc < 0);
            n_failed += !ok;
            if (!ok && alone) {
                run_members(&all[1], 1, form, NULL);
                assert_int_equal(m[1].rc == 0, m[1].state->at.step == 4);
                if (m[1].rc == 0)
                    assert_holds(&m[1], 4, 1);
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
        return form(m, c, err);
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
                     sizeof(float) * (size_t)(cut_shard(&layout, 3, 0) + cut_shard(&layout, 3, 2)));
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
        copy[cut_shard(&layout, n, n - 1) - 1] += 1;
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
