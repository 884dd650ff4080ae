/* local_sgd with outer momentum: in which step x0 is taken, in a new run and in one that was
 * resumed.  An older version's checkpoint has x0, but no slot that says so. */
#include "../test.h"

#include <string.h>

#include "../coll/local.h"
#include "base/util.h"
#include "idle_hooks.h"
#include "op/control.h"
#include "session/ring.h"
#include "strategy/local_sgd.h"
#include "strategy/reducer.h"

enum { TRAINED = 10000, START = 2, EVERY = 3 };

/* The bits of strategy_ops.variant. */
enum { IS_LOCAL = 1, IS_DUE = 2, TAKES_START = 4 };

static struct bucket bucket = {.length = TRAINED + CONTROL_LEN, .dtype = DTYPE_F32};

static const struct layout layout = {.n_trained = TRAINED,
                                     .n_total = TRAINED,
                                     .bucket = &bucket,
                                     .n_buckets = 1,
                                     .n_param_buckets = 1,
                                     .grad_dtype = DTYPE_F32,
                                     .copy_dtype = DTYPE_F32};

static float grad[TRAINED + CONTROL_LEN], param[TRAINED], start[TRAINED], momentum[TRAINED], taken;

struct rig {
    struct backend *b;
    struct ring *ring;
    struct coll_group *group;
    struct coll *coll;
    struct reducer *r;
    struct err err;
};

static void begin_rig(struct rig *g)
{
    static const struct local_sgd_options options = {
        .every = EVERY, .start = START, .outer = OUTER_NESTEROV, .outer_lr = 0.5};
    static const struct step_scalars scalars;
    static const double check[2];
    struct reducer_options o = {
        .strategy = strategy_choose(&(struct strategy_options){&strategy_local_sgd, &options}),
        .options = &options,
        .layout = &layout,
        .grad = grad,
        .param = param,
        .control = grad + TRAINED,
        .check = check,
        .scalars = &scalars,
        .slot = {start, momentum, &taken},
        .hooks = idle_hooks};

    *g = (struct rig){.ring = ring_new(), .group = coll_group_new(1)};
    ring_begin(g->ring, 1);
    assert_int_equal(backend_open_cpu(1, &g->b, &g->err), 0);
    o.backend = g->b;
    o.ring = g->ring;
    assert_int_equal(reducer_new(&o, &g->r, &g->err), 0);
    assert_int_equal(coll_new_local(g->group, 0, &g->coll, &g->err), 0);
    reducer_join(g->r, g->coll);
    assert_int_equal(reducer_form(g->r, 0, &g->err), 0);
}

static void end_rig(struct rig *g)
{
    reducer_leave(g->r);
    coll_free(g->coll);
    reducer_free(g->r);
    coll_group_free(g->group);
    ring_free(g->ring);
    backend_close(g->b);
}

/* Make a step; returns its variant. */
static int make_step(struct rig *g, int64_t step)
{
    int variant;

    assert_int_equal(reducer_begin(g->r, step, step, &g->err), 0);
    variant = reducer_variant(g->r);
    assert_int_equal(reducer_micro_begin(g->r, 1, 1, &g->err), 0);
    assert_int_equal(reducer_bucket(g->r, 0, &g->err), 0);
    assert_int_equal(reducer_finish(g->r, &g->err), 0);
    assert_int_equal(reducer_updated(g->r, &g->err), !!(variant & IS_DUE));
    (void)reducer_end(g->r);
    return variant;
}

/* The slots of a run that begins, with parameters that are not 0. */
static void begin_slots(void)
{
    for (int i = 0; i < TRAINED; i++)
        param[i] = (float)(i + 1);
    memset(start, 0, sizeof start);
    memset(momentum, 0, sizeof momentum);
    taken = 0;
}

/* ---- the tests ---- */

static void a_new_run(void **state)
{
    static const int wanted[] = {
        0,        0,        IS_LOCAL | TAKES_START, IS_LOCAL, IS_LOCAL | IS_DUE,
        IS_LOCAL, IS_LOCAL, IS_LOCAL | IS_DUE};
    struct rig g;

    (void)state;
    begin_slots();
    begin_rig(&g);
    for (int i = 0; i < (int)ARRAY_LEN(wanted); i++) {
        assert_int_equal(make_step(&g, i), wanted[i]);
        assert_true(taken == (i >= START));
        assert_true(start[TRAINED - 1] == (i >= START ? TRAINED : 0));
    }
    end_rig(&g);
}

/* A checkpoint without x0, of a later step than `start`: x0 is taken in the first step. */
static void resumed_without_start(void **state)
{
    struct rig g;

    (void)state;
    begin_slots();
    begin_rig(&g);
    assert_int_equal(make_step(&g, 6), IS_LOCAL | TAKES_START);
    assert_true(taken == 1 && start[0] == 1);
    assert_int_equal(make_step(&g, 8), IS_LOCAL);
    end_rig(&g);
}

/* With x0 no other one is taken, whether the slot says that it was, or any of its numbers does. */
static void resumed_with_start(void **state)
{
    static const int places[] = {0, 4095, 4096, TRAINED - 1};

    (void)state;
    for (int i = -1; i < (int)ARRAY_LEN(places); i++) {
        struct rig g;

        begin_slots();
        if (i < 0)
            taken = 1;
        else
            start[places[i]] = 7;
        begin_rig(&g);
        assert_true(taken == 1);
        assert_int_equal(make_step(&g, 6), IS_LOCAL);
        assert_true(start[1] == 0);
        end_rig(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_run),
        cmocka_unit_test(resumed_without_start),
        cmocka_unit_test(resumed_with_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
