/* follower_rig - a follower whose driver and engine are the test. */
#ifndef TESTS_SESSION_FOLLOWER_RIG_H
#define TESTS_SESSION_FOLLOWER_RIG_H

#include "rig.h"

#include <errno.h>

#include "base/alloc.h"
#include "session/follower_impl.h"

#include "samples.h"

enum {
    HELLO,
    READY,
    ENDPOINTS,
    FORMED,
    BEAT,
    EPOCH_DONE,
    VALIDATE_DONE,
    CHECKPOINT_DONE,
    FAULT,
    GOODBYE,
    WELCOME,
    REFUSED,
    PREPARE,
    FORM,
    TRAIN,
    VALIDATE,
    CHECKPOINT,
    ABORT,
    STOP,
    INSPECT = 21
};

/* The driver sends sample `i`, with this generation (-1: the sample's own). */
static inline void get(struct rig *r, int i, int64_t generation)
{
    struct arena a;
    Wire__Control m;
    arena_init(&a);
    assert_true(sample_make(&a, i, &m));
    if (generation >= 0)
        m.generation = generation;
    rig_message(r, 0, &m);
    arena_fini(&a);
}

static inline void answer(struct rig *r) { rig_report(r, 1, rig_answer(r->command)); }

static inline void assert_ends(struct rig *r, int status, int retry, const char *part)
{
    if (!r->is_finished)
        rig_report(r, 1, report_new(REPORT_STOPPED, 1));
    assert_true(r->is_finished);
    assert_true(r->is_closed[0]);
    assert_has(r->text, part);
    assert_int_equal(r->status, status);
    assert_int_equal(r->retry, retry);
    assert_false(r->is_engine_stuck);
    rig_free(r);
}

/* Go on up to the answer to command `last`, of PREPARE .. CHECKPOINT.  READY: up to Ready. */
static inline void go_to(struct rig *r, int last)
{
    rig_follower(r);
    assert_int_equal(r->sent[0]->body_case, WIRE__CONTROL__BODY_HELLO);
    get(r, WELCOME, 0);
    rig_report(r, 1, rig_opened());
    for (int i = PREPARE; last != READY && i <= last; i++) {
        get(r, i, 1);
        if (i < last)
            answer(r);
    }
}

#endif
