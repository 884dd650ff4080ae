/* live_engine - an engine for live.h.  It holds its commands until it is told to answer the oldest
 * one. */
#ifndef TESTS_SESSION_LIVE_ENGINE_H
#define TESTS_SESSION_LIVE_ENGINE_H

#include "session/command.h"

struct live_engine {
    struct cmd *next[8];
    int n;
    int64_t step, posted; /* newest generation */
    int64_t canceled;     /* commands of this generation and older ones are broken off */
    int is_stopped, is_driver;
};

void live_engine_post(struct live_engine *e, struct cmd *c); /* takes c */

/* The answer to its oldest command; there must be one.  is_bad: the answer is a failure, and `how`
 * says which. */
struct report *live_engine_answer(struct live_engine *e, int is_bad, unsigned how);
void live_engine_clear(struct live_engine *e);

#endif
