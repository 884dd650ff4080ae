/* golden_main - the main function of a test that has one case for each run in a JSON file. */
#ifndef TESTS_GOLDEN_GOLDEN_MAIN_H
#define TESTS_GOLDEN_GOLDEN_MAIN_H

#include "../test.h"

#include <jansson.h>

/* Load argv[1] into *golden, and run test_run for each member of its object "runs", which is the
 * test's state; then the test `last`, unless its function is NULL.  Returns the exit status: 2 for
 * a wrong command line, 1 if the file cannot be read or has no run. */
int golden_main(int argc, char **argv, const char *group, json_t **golden,
                CMUnitTestFunction test_run, struct CMUnitTest last);

#endif
