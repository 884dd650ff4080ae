/* golden_backend - where test_golden runs: a file for each backend, linked with it. */
#ifndef TESTS_GOLDEN_GOLDEN_BACKEND_H
#define TESTS_GOLDEN_GOLDEN_BACKEND_H

#include "backend/backend.h"

/* 0: there is one; else the exit status of who needs it (77), and it was said why. */
int golden_backend_find(void);
int golden_backend_open(struct backend **out, struct err *err);

#endif
