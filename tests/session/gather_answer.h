/* gather_answer - what a follower hears while the job gathers: Welcome or Refused. */
#ifndef TESTS_SESSION_GATHER_ANSWER_H
#define TESTS_SESSION_GATHER_ANSWER_H

#include "rig.h"

static inline void assert_refused(struct rig *r, int conn, Wire__Reason reason, const char *part)
{
    const Wire__Control *m = r->sent[conn];
    assert_non_null(m);
    assert_int_equal(m->body_case, WIRE__CONTROL__BODY_REFUSED);
    assert_int_equal(m->refused->reason, reason);
    assert_has(m->refused->text, part);
    assert_false(r->is_trusted[conn]);
    rig_wait(r, 2000); /* it is given time to read, then closed */
    assert_true(r->is_closed[conn]);
    assert_false(r->is_finished); /* the job goes on */
}

static inline void assert_welcome(struct rig *r, int conn, int rank)
{
    const Wire__Control *m = r->sent[conn];
    assert_non_null(m);
    assert_int_equal(m->body_case, WIRE__CONTROL__BODY_WELCOME);
    assert_int_equal(m->welcome->rank, rank);
    assert_true(r->is_trusted[conn]);
}

#endif
