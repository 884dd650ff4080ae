/* fake_state - the switches and counters that the stand-ins for cuDNN and cuBLASLt share; they are
 * defined in fake_cublaslt.c. */
#ifndef TESTS_CUDNN_FAKE_STATE_H
#define TESTS_CUDNN_FAKE_STATE_H

#include "fakes.h"

extern int fake_refuse_tails, fake_open_things, fake_queries, fake_disowned;
extern int fake_runs[FAKE_ENGINES];

int fake_fails(void); /* every call asks once; 1: the call must fail */

#endif
