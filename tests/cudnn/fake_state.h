/* What the two stand-ins share. */
#ifndef TESTS_CUDNN_FAKE_STATE_H
#define TESTS_CUDNN_FAKE_STATE_H

#include "fakes.h"

extern int fake_refuse_tails, fake_open_things, fake_queries, fake_disowned;
extern int fake_runs[FAKE_ENGINES];

int fake_fails(void); /* asked by every call once */

#endif
