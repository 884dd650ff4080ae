/* all - `test_train NAME` runs test_NAME.c, for the names of TRAIN_TESTS (meson.build).
 *
 * One program has all of these tests, since each program that trains has 2 MB of the product in it,
 * and the bundle (deploy/bundle.sh) has them all.  The compiler's -Dmain=train_test_NAME renames
 * the function main of each. */
#include <stdio.h>
#include <string.h>

#define X(name) int train_test_##name(void);
TRAIN_TESTS(X)
#undef X

static const struct {
    const char *name;
    int (*run)(void);
} train_tests[] = {
#define X(name) {#name, train_test_##name},
    TRAIN_TESTS(X)
#undef X
};

int main(int argc, char **argv)
{
    const size_t n = sizeof train_tests / sizeof *train_tests;

    for (size_t i = 0; argc == 2 && i < n; i++)
        if (!strcmp(argv[1], train_tests[i].name))
            return train_tests[i].run();
    fprintf(stderr, "usage: test_train NAME, want one of:");
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, " %s", train_tests[i].name);
    fprintf(stderr, "\n");
    return 2;
}
