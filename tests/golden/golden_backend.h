/* golden_backend - the backend on which test_golden runs.  Each backend has a file that implements
 * these functions; test_golden is linked with one of them. */
#ifndef TESTS_GOLDEN_GOLDEN_BACKEND_H
#define TESTS_GOLDEN_GOLDEN_BACKEND_H

#include "backend/backend.h"

/* Returns 0 if the backend can be used; else prints why not, and returns the exit status (77). */
int golden_backend_find(void);
int golden_backend_open(struct backend **out, struct err *err);

#endif
