/* golden_main - one cmocka test for each run. */
#include "golden_main.h"

enum { MOST = 32 };

int golden_main(int argc, char **argv, const char *group, json_t **golden,
                CMUnitTestFunction test_run, struct CMUnitTest last)
{
    struct CMUnitTest tests[MOST + 1];
    json_error_t error;
    const char *name;
    json_t *run;
    size_t n = 0;
    int rc;

    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE.JSON\n", argv[0]);
        return 2;
    }
    *golden = json_load_file(argv[1], 0, &error);
    if (!*golden) {
        fprintf(stderr, "%s:%d: %s\n", argv[1], error.line, error.text);
        return 1;
    }
    json_object_foreach(json_object_get(*golden, "runs"), name, run)
    {
        assert_in_range(n, 0, MOST - 1);
        tests[n++] = (struct CMUnitTest){.name = name, .test_func = test_run, .initial_state = run};
    }
    if (n > 0 && last.test_func)
        tests[n++] = last;
    rc = n ? _cmocka_run_group_tests(group, tests, n, NULL, NULL) : 1;
    json_decref(*golden);
    return rc;
}
