/* members - the ranks of tests of divided state: their layout, formations, and numbers. */
#include "members.h"

#include "../test.h"

#include <pthread.h>

#include "base/util.h"
#include "strategy/cut.h"

static struct segment members_params[] = {
    {.name = "fc.bias", .shape = {1, {33}}, .offset = 0, .length = 33},
    {.name = "fc.weight", .shape = {2, {4, 10}}, .offset = 40, .length = 40},
    {.name = "in.weight",
     .shape = {1, {11}},
     .offset = TRAINED,
     .length = 11,
     .info = {.frozen = 1}},
};

static struct segment members_stats[] = {
    {.name = "bn.running_mean", .shape = {1, {3}}, .length = 3},
};

static const struct segment *members_by_name[] = {&members_params[0], &members_params[1],
                                                  &members_params[2]};

static struct bucket members_buckets[] = {
    {.offset = 0, .length = 50, .dtype = DTYPE_F32},
    {.offset = 50, .length = 46, .dtype = DTYPE_F32}}; /* the last one with the control vector */

const struct layout members_layout = {.param = members_params,
                                      .param_by_name = members_by_name,
                                      .n_params = 3,
                                      .n_trained = TRAINED,
                                      .n_total = TOTAL,
                                      .state = members_stats,
                                      .n_states = 1,
                                      .n_state_total = 3,
                                      .bucket = members_buckets,
                                      .n_buckets = 2,
                                      .n_param_buckets = 2,
                                      .grad_dtype = DTYPE_F32,
                                      .copy_dtype = DTYPE_F32};

const struct slot_def members_moment = {.name = "moment",
                                        .suffix = ".exp_avg",
                                        .scope = SLOT_PER_TRAINED,
                                        .dtype = DTYPE_F32,
                                        .file = SLOT_IN_OPTIMIZER,
                                        .is_hashed = 1,
                                        .is_broadcast = 1};

static const struct slot_def *const members_rows[] = {&members_moment};

/* 0 between the parameters, where nothing is saved. */
static float number(int64_t step, int64_t i)
{
    for (int k = 0; k < members_layout.n_params; k++)
        if (i >= members_params[k].offset &&
            i < members_params[k].offset + members_params[k].length)
            return (float)(1000 * step + i);
    return 0;
}

/* ---- what a rank holds ---- */

/* Call `what` for each number of the shards that the rank holds of the divided slot. */
static void for_shards(const struct state *s,
                       void (*what)(float *x, const struct state *s, int64_t i))
{
    const struct shard_set *set = &s->shards->now;

    for (int h = 0; h < set->n_held; h++)
        for (int b = 0; b < members_layout.n_buckets; b++) {
            const int owner = shard_owner(set, h);
            const struct coll_span span = cut_span(&members_layout, b, set->size, owner);
            float *x = (float *)set->data[MOMENT_SLOT][h] +
                       cut_before(&members_layout, b, set->size, owner);

            for (int64_t i = 0; i < span.n; i++)
                what(&x[i], s, members_layout.bucket[b].offset + span.at + i);
        }
}

static void shards_write(float *x, const struct state *s, int64_t i) { *x = number(s->at.step, i); }

static void assert_written(float *x, const struct state *s, int64_t i)
{
    assert_true(*x == number(s->at.step, i));
}

/* The rank has made the step: its shards and all parameters say so. */
void train_member(struct member *m, int64_t step)
{
    float *x = state_data(m->state, &slot_parameters);

    m->state->at.step = step;
    for_shards(m->state, shards_write);
    for (int64_t i = 0; i < TOTAL; i++)
        x[i] = number(step, i);
}

void assert_member_holds(const struct member *m, int64_t step, int size)
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
    train_member(m, step + 1);
    m->state->at.step = step;
    m->n_rolls++;
    return 0;
}

void begin_member(struct member *m, int n_holders, int is_whole)
{
    const struct state_division d = {.n_divided = 1, .n_holders = n_holders, .whole = is_whole};

    *m = (struct member){.rc = 0};
    assert_int_equal(backend_open_cpu(1, &m->b, &m->err), 0);
    assert_int_equal(
        state_new_divided(m->b, &members_layout, members_rows, 1, &d, &m->state, &m->err), 0);
    m->state->shards->roll = roll;
    m->state->shards->roll_arg = m;
}

void end_member(struct member *m)
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

int form_member(struct member *m, struct coll *c, struct err *err)
{
    return state_broadcast(m->state, c, 0, err);
}

/* All n members do this at once, as ranks 0 to n - 1. */
void run_members(struct member *const *m, int n,
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

void form_members(struct member *const *m, int n, int64_t step)
{
    run_members(m, n, form_member, NULL);
    for (int k = 0; k < n; k++) {
        if (m[k]->rc != 0)
            fail_msg("rank %d: %d: %s", k, m[k]->rc, m[k]->err.msg);
        assert_member_holds(m[k], step, n);
    }
}

/* n ranks that have made `step` together.  Rank 0 had the whole state before. */
void begin_members(struct member *m, struct member **all, int n, int n_holders, int64_t step)
{
    for (int k = 0; k < n; k++) {
        begin_member(&m[k], n_holders, k == 0);
        all[k] = &m[k];
    }
    assert_int_equal(shards_bytes(m[0].state), TRAINED * sizeof(float));
    assert_int_equal(n > 1 ? shards_bytes(m[1].state) : 0, 0);
    train_member(&m[0], 0);
    form_members(all, n, 0);
    for (int k = 0; k < n; k++)
        train_member(&m[k], step);
}

void end_members(struct member *m, int n)
{
    for (int k = 0; k < n; k++)
        end_member(&m[k]);
}
