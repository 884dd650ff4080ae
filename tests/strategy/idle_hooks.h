/* idle_hooks - a reducer's hooks, for tests in which nobody listens and nothing is spoiled. */
#ifndef TESTS_STRATEGY_IDLE_HOOKS_H
#define TESTS_STRATEGY_IDLE_HOOKS_H

#include "strategy/reducer.h"

static void idle_at(void *arg, enum phase phase, int64_t bucket)
{
    (void)arg, (void)phase, (void)bucket;
}

static int idle_is_left_out(void *arg, int bucket)
{
    (void)arg, (void)bucket;
    return 0;
}

static int idle_spoil(void *arg, int bucket, int is_reduced, struct err *err)
{
    (void)arg, (void)bucket, (void)is_reduced, (void)err;
    return 0;
}

static const struct reducer_hooks idle_hooks = {
    .exchange = {.at = idle_at, .is_left_out = idle_is_left_out}, .spoil = idle_spoil};

#endif
