/* Tests of the lists of report.operators: which of the tensors that differ is the first, and what
 * two lists have in common. */
#include "../test.h"

#include <stdio.h>
#include <unistd.h>

#include "driver/operators.h"

enum { LINES = 4 };

struct made {
    int first, micro, number;
    const char *node, *hash;
};

static void write_list(const char *path, const struct made *m, int n)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    for (int i = 0; i < n; i++)
        fprintf(f,
                "{\"first\":%d,\"samples\":8,\"micro\":%d,\"number\":%d,\"operator\":\"%s\","
                "\"kind\":\"linear\",\"tensor\":\"t\",\"given\":false,\"type\":\"F32\","
                "\"shape\":[2],\"hash\":\"%s\"}\n",
                m[i].first, m[i].micro, m[i].number, m[i].node, m[i].hash);
    assert_int_equal(fclose(f), 0);
}

static void test_compare(void **state)
{
    static const struct {
        struct made a[LINES], b[LINES];
        int n, batches, tensors;
        int first, number; /* of the tensor that is told; -1: none */
    } rows[] = {
        /* The first micro-batch counts, whatever the numbers of the tensors. */
        {{{0, 0, 1, "a", "1"}, {0, 0, 2, "b", "2"}, {8, 1, 1, "a", "3"}, {8, 1, 2, "b", "4"}},
         {{0, 0, 1, "a", "1"}, {0, 0, 2, "b", "9"}, {8, 1, 1, "a", "9"}, {8, 1, 2, "b", "9"}},
         4,
         2,
         4,
         0,
         2},
        /* Of micro-batches made side by side the lower number counts, then the first samples. */
        {{{0, 0, 1, "a", "1"}, {0, 0, 2, "b", "2"}, {8, 0, 1, "a", "3"}, {8, 0, 2, "b", "4"}},
         {{8, 0, 1, "a", "9"}, {8, 0, 2, "b", "9"}, {0, 0, 1, "a", "1"}, {0, 0, 2, "b", "9"}},
         4,
         2,
         4,
         8,
         1},
        /* The same samples as another micro-batch of a rank have other sums. */
        {{{0, 0, 1, "a", "1"}, {8, 1, 1, "a", "2"}},
         {{0, 0, 1, "a", "1"}, {8, 0, 1, "a", "9"}},
         2,
         1,
         1,
         -1,
         0},
        /* Fused otherwise: operators of one list alone. */
        {{{0, 0, 1, "a", "1"}, {0, 0, 2, "b", "2"}},
         {{0, 0, 1, "c", "7"}, {0, 0, 2, "b", "2"}},
         2,
         1,
         1,
         -1,
         0},
        {{{0, 0, 1, "a", "1"}}, {{0, 0, 1, "b", "1"}}, 1, 1, 0, -1, 0},
        {{{0, 0, 1, "a", "1"}}, {{8, 0, 1, "a", "2"}}, 1, 0, 0, -1, 0},
    };
    char path[] = "/tmp/dptrain-operators-XXXXXX";

    (void)state;
    close(mkstemp(path));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct operators list[2] = {{NULL}};
        struct operators_common c;
        struct err err;

        for (int k = 0; k < 2; k++) {
            write_list(path, k ? rows[i].b : rows[i].a, rows[i].n);
            assert_int_equal(operators_read(path, &list[k], &err), 0);
        }
        c = operators_compare(&list[0], &list[1]);
        assert_int_equal(c.batches, rows[i].batches);
        assert_int_equal(c.tensors, rows[i].tensors);
        assert_int_equal(c.first[0] ? c.first[0]->first : -1, rows[i].first);
        if (c.first[0])
            assert_int_equal(c.first[1]->number, rows[i].number);
        for (int k = 0; k < 2; k++)
            operators_fini(&list[k]);
    }
    unlink(path);
}

static void test_damaged(void **state)
{
    char path[] = "/tmp/dptrain-operators-XXXXXX";
    struct operators list = {NULL};
    struct err err;
    FILE *f = fdopen(mkstemp(path), "w");

    (void)state;
    fprintf(f, "{\"first\":0}\n[1]\n{}\n");
    fclose(f);
    assert_int_equal(operators_read(path, &list, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "line 2 is no object"));
    operators_fini(&list);
    unlink(path);
    assert_int_equal(operators_read(path, &list, &err), ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_compare),
                                       cmocka_unit_test(test_damaged)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
