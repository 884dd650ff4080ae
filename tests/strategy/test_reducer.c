/* reducer: when a strategy's functions are called.  A strategy that notes its calls takes the place
 * of a real one; the backend is a CPU's, or says that it queues its work, as a device's does. */
#include "../test.h"

#include <stdlib.h>
#include <string.h>

#include "../coll/local.h"
#include "base/alloc.h"
#include "base/util.h"
#include "idle_hooks.h"
#include "op/control.h"
#include "session/ring.h"
#include "strategy/reducer.h"

enum { N_BUCKETS = 2, MICROS = 3 };

static struct bucket buckets[N_BUCKETS] = {
    {.length = 8, .dtype = DTYPE_F32},
    {.offset = 8, .length = 8 + CONTROL_LEN, .dtype = DTYPE_F32}};

static const struct layout layout = {.n_trained = 16,
                                     .n_total = 16,
                                     .bucket = buckets,
                                     .n_buckets = N_BUCKETS,
                                     .n_param_buckets = N_BUCKETS,
                                     .grad_dtype = DTYPE_F32,
                                     .copy_dtype = DTYPE_F32};

/* ---- a strategy that notes its calls ---- */

static char noted[256];

static int note_call(const char *call)
{
    ASSERT(strlen(noted) + strlen(call) + 2 < sizeof noted);
    strcat(strcat(noted, noted[0] ? " " : ""), call);
    return 0;
}

static int noting_new(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    (void)err;
    *out = xcalloc(1, sizeof **out);
    (*out)->at = *site;
    return 0;
}

static int noting_bucket(struct strategy *s, int bucket, struct err *err)
{
    (void)s, (void)err;
    return note_call(bucket ? "bucket1" : "bucket0");
}

static int noting_between(struct strategy *s, struct err *err)
{
    (void)err;
    return note_call(s->begins_round ? "round" : "between");
}

static int noting_overlap(struct strategy *s, struct err *err)
{
    (void)s, (void)err;
    return note_call("overlap");
}

static int noting_before(struct strategy *s, struct err *err)
{
    (void)s, (void)err;
    return note_call("before");
}

static int noting_settled(struct strategy *s, struct err *err)
{
    (void)s, (void)err;
    return note_call("settled");
}

static int noting_after(struct strategy *s, struct err *err)
{
    (void)s, (void)err;
    return note_call("after");
}

static void noting_free(struct strategy *s) { free(s); }

static const struct strategy_ops noting = {.group.name = "noting",
                                           .new = noting_new,
                                           .between = noting_between,
                                           .overlap = noting_overlap,
                                           .bucket_ready = noting_bucket,
                                           .before_update = noting_before,
                                           .settled = noting_settled,
                                           .after_update = noting_after,
                                           .free = noting_free};

static int note_spoil(void *arg, int bucket, int is_reduced, struct err *err)
{
    static const char *const word[2][N_BUCKETS] = {{"spoil0", "spoil1"}, {"reduced0", "reduced1"}};

    (void)arg, (void)err;
    return note_call(word[is_reduced][bucket]);
}

/* ---- a reducer ---- */

struct rig {
    struct backend *b, device;
    struct backend_ops ops; /* the CPU's, for a backend that queues */
    struct ring *ring;
    struct coll_group *group;
    struct coll *coll;
    struct reducer *r;
    struct err err;
};

static void join_rig(struct rig *g, int n_ranks)
{
    g->group = coll_group_new(n_ranks);
    assert_int_equal(coll_new_local(g->group, 0, &g->coll, &g->err), 0);
    reducer_join(g->r, g->coll);
    assert_int_equal(reducer_form(g->r, 0, &g->err), 0);
}

static void leave_rig(struct rig *g)
{
    reducer_leave(g->r);
    coll_free(g->coll);
    coll_group_free(g->group);
}

static void begin_rig(struct rig *g, int is_device, int n_ranks)
{
    static const char stands_for_ops = 0;
    struct reducer_options o = {
        .strategy = &noting, .layout = &layout, .hooks = {idle_hooks.exchange, note_spoil}};

    *g = (struct rig){.b = NULL};
    assert_int_equal(backend_open_cpu(1, &g->b, &g->err), 0);
    g->ops = *g->b->ops;
    g->ops.device = (const void *)&stands_for_ops; /* no code follows this pointer */
    g->device.ops = &g->ops;
    g->ring = ring_new();
    ring_begin(g->ring, 1);
    o.backend = is_device ? &g->device : g->b;
    o.ring = g->ring;
    assert_int_equal(reducer_new(&o, &g->r, &g->err), 0);
    join_rig(g, n_ranks);
    noted[0] = '\0';
}

static void end_rig(struct rig *g)
{
    leave_rig(g);
    reducer_free(g->r);
    ring_free(g->ring);
    backend_close(g->b);
}

static void make_step(struct rig *g, int64_t step)
{
    assert_int_equal(reducer_begin(g->r, step, step, &g->err), 0);
    for (int i = 0; i < MICROS; i++) {
        assert_int_equal(reducer_micro_begin(g->r, i == 0, i == MICROS - 1, &g->err), 0);
        note_call(i == MICROS - 1 ? "last" : "micro");
    }
    for (int b = 0; b < N_BUCKETS; b++)
        assert_int_equal(reducer_bucket(g->r, b, &g->err), 0);
    assert_int_equal(reducer_finish(g->r, &g->err), 0);
    assert_int_equal(reducer_updated(g->r, &g->err), 0);
    (void)reducer_end(g->r);
}

/* 1: a round begins ahead of the step. */
static int begins_at(struct rig *g, int64_t step)
{
    noted[0] = '\0';
    make_step(g, step);
    return !strncmp(noted, "round", strlen("round"));
}

/* ---- the tests ---- */

/* Work that overlaps begins in the first micro-batch, on a device in the last one. */
static void places_of_a_step(void **state)
{
    static const char *const wanted[] = {
        "between overlap micro micro last spoil0 bucket0 spoil1 bucket1 before reduced0 reduced1 "
        "settled after",
        "between micro micro overlap last spoil0 bucket0 spoil1 bucket1 before reduced0 reduced1 "
        "settled after"};

    (void)state;
    for (int is_device = 0; is_device < 2; is_device++) {
        struct rig g;

        begin_rig(&g, is_device, 2);
        make_step(&g, 0);
        assert_string_equal(noted, wanted[is_device]);
        end_rig(&g);
    }
}

/* A round begins once all ranks were ready in one step: ahead of the next step, on a device ahead
 * of the one after. */
static void rounds(void **state)
{
    (void)state;
    for (int is_device = 0; is_device < 2; is_device++) {
        struct rig g;
        int64_t step = 3;

        begin_rig(&g, is_device, 2);
        assert_false(begins_at(&g, step));
        reducer_agree(g.r, step, 1);
        assert_false(begins_at(&g, ++step));
        reducer_agree(g.r, step, 2);
        if (is_device) {
            assert_false(begins_at(&g, ++step));
            reducer_agree(g.r, step, 2); /* one round is agreed on already */
        }
        assert_true(begins_at(&g, ++step));
        reducer_agree(g.r, step - 1, 2); /* that step knew nothing of the round */
        assert_false(begins_at(&g, ++step));
        assert_false(begins_at(&g, ++step));
        reducer_agree(g.r, step, 2);
        step += is_device;
        assert_true(begins_at(&g, ++step));
        end_rig(&g);
    }
}

static void no_round_alone(void **state)
{
    struct rig g;

    (void)state;
    begin_rig(&g, 0, 1);
    for (int64_t step = 0; step < 4; step++) {
        assert_false(begins_at(&g, step));
        reducer_agree(g.r, step, 1);
    }
    end_rig(&g);
}

/* A round that has not begun is forgotten before the ranks meet, and by a new formation, which may
 * begin at an earlier step. */
static void rounds_forgotten(void **state)
{
    struct rig g;

    (void)state;
    begin_rig(&g, 0, 2);
    (void)begins_at(&g, 7);
    reducer_agree(g.r, 7, 2);
    assert_int_equal(reducer_epoch_end(g.r, &g.err), 0);
    assert_false(begins_at(&g, 8));
    reducer_agree(g.r, 8, 2);
    leave_rig(&g);
    join_rig(&g, 2);
    assert_false(begins_at(&g, 9));
    reducer_agree(g.r, 9, 2);
    assert_true(begins_at(&g, 10));
    leave_rig(&g);
    join_rig(&g, 2);
    assert_false(begins_at(&g, 4));
    reducer_agree(g.r, 4, 2);
    assert_true(begins_at(&g, 5));
    end_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_of_a_step),
        cmocka_unit_test(rounds),
        cmocka_unit_test(no_round_alone),
        cmocka_unit_test(rounds_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
