/* Tests of what an evaluation tells by class, of outputs that are written down here: counts,
 * ratios, names, the confusions of many classes; and of the samples whose outputs are not finite.
 *
 * e2e/evaluate and e2e/predict compare the figures of networks with those that Python makes of the
 * same rows. */
#include "../test.h"

#include <math.h>

#include "judge/judge.h"
#include "judge/predict.h"
#include "judge/table.h"

/* Outputs that are compared with one of so many classes. */
struct subject {
    struct job job;
    struct sample_spec spec;
    struct outputs outputs;
};

static void subject_init(struct subject *s, int64_t n_classes)
{
    *s = (struct subject){.spec = {.n_fields = 2}};
    s->spec.field[0] = (struct sample_field){
        .name = "x", .role = SAMPLE_INPUT, .dtype = DTYPE_F32, .stored = DTYPE_F32};
    s->spec.field[1] = (struct sample_field){.name = "y",
                                             .role = SAMPLE_CLASS,
                                             .dtype = DTYPE_I32,
                                             .stored = DTYPE_I32,
                                             .n_classes = n_classes};
    s->job.model.loss = LOSS_CROSS_ENTROPY;
    s->outputs = (struct outputs){.job = &s->job, .spec = &s->spec};
}

/* Count the predictions `got` of n samples, by logits, and compare what is told. */
static void want_told(struct judge *j, int64_t n_classes, const int32_t *target, const int *got,
                      int64_t n, const char *key, const char *want)
{
    float *rows = calloc((size_t)(n * n_classes) + 1, sizeof *rows);
    json_t *told = json_object(), *wanted = json_loads(want, 0, NULL);

    assert_true(rows && wanted);
    for (int64_t i = 0; i < n; i++)
        rows[i * n_classes + got[i]] = 1;
    judge_count(j, rows, target, n);
    judge_tell(j, told);
    if (!json_equal(json_object_get(told, key), wanted))
        fail_msg("%s: %s, want %s", key, json_dumps(told, JSON_COMPACT), want);
    json_decref(told);
    json_decref(wanted);
    free(rows);
}

/* Sample 2 has no target.  Class b is never right, c never wanted. */
static void test_classes(void **state)
{
    static const char *const names[] = {"a", "b", "c"};
    static const int32_t target[] = {0, 0, SAMPLE_IGNORED, 1, 0};
    static const int got[] = {0, 1, 1, 2, 0};
    struct subject s;
    struct judge *j;

    (void)state;
    subject_init(&s, 3);
    s.outputs.class_name = names;
    s.outputs.n_class_names = ARRAY_LEN(names);
    j = judge_new(&s.outputs, 3);
    want_told(j, 3, target, got, 5, "classes",
              "[{\"class\": \"a\", \"count\": 3, \"predicted\": 2, \"correct\": 2, "
              "\"precision\": 1.0, \"recall\": 0.66666666666666663, \"f1\": 0.8},"
              "{\"class\": \"b\", \"count\": 1, \"predicted\": 1, \"correct\": 0, "
              "\"precision\": 0.0, \"recall\": 0.0, \"f1\": 0.0},"
              "{\"class\": \"c\", \"count\": 0, \"predicted\": 1, \"correct\": 0, "
              "\"precision\": 0.0, \"recall\": null, \"f1\": 0.0}]");
    want_told(j, 3, target, got, 0, "confusion", "[[2, 1, 0], [0, 0, 1], [0, 0, 0]]");
    judge_free(j);
}

/* A network may have more outputs than the data name classes: those have numbers. */
static void test_names_end(void **state)
{
    static const char *const names[] = {"a", "b", "behind the list"};
    static const int32_t target[] = {1};
    static const int got[] = {2};
    struct subject s;
    struct judge *j;

    (void)state;
    subject_init(&s, 2);
    s.outputs.class_name = names;
    s.outputs.n_class_names = 2;
    assert_true(judge_can_count(&s.outputs, 3));
    assert_false(judge_can(&s.outputs, 1)); /* fewer than classes */
    assert_null(outputs_class_name(&s.outputs, 2));
    j = judge_new(&s.outputs, 3);
    want_told(j, 3, target, got, 1, "classes",
              "[{\"class\": \"a\", \"count\": 0, \"predicted\": 0, \"correct\": 0, "
              "\"precision\": null, \"recall\": null, \"f1\": null},"
              "{\"class\": \"b\", \"count\": 1, \"predicted\": 0, \"correct\": 0, "
              "\"precision\": null, \"recall\": 0.0, \"f1\": 0.0},"
              "{\"class\": 2, \"count\": 0, \"predicted\": 1, \"correct\": 0, "
              "\"precision\": 0.0, \"recall\": null, \"f1\": 0.0}]");
    judge_free(j);
}

/* Of many classes the largest confusions are told, of equal ones the first of the matrix. */
static void test_many_classes(void **state)
{
    enum { N = JUDGE_MOST_SHOWN + 1 };
    static const int32_t target[] = {7, 7, 3, 3, 100, 5};
    static const int got[] = {9, 9, 2, 1, 0, 5};
    struct subject s;
    struct judge *j;

    (void)state;
    subject_init(&s, N);
    assert_false(judge_has_matrix(&s.outputs));
    assert_true(judge_can(&s.outputs, N));
    j = judge_new(&s.outputs, N);
    want_told(j, N, target, got, ARRAY_LEN(target), "confusions",
              "[{\"class\": 7, \"predicted\": 9, \"count\": 2},"
              "{\"class\": 3, \"predicted\": 1, \"count\": 1},"
              "{\"class\": 3, \"predicted\": 2, \"count\": 1},"
              "{\"class\": 100, \"predicted\": 0, \"count\": 1}]");
    judge_free(j);
}

/* The outputs of these losses are no logits of the target's classes. */
static void test_losses_that_are_not_judged(void **state)
{
    struct subject s;

    (void)state;
    subject_init(&s, 3);
    assert_true(table_can(&s.outputs, 3));
    s.job.model.loss = LOSS_CONTRASTIVE;
    assert_false(judge_can(&s.outputs, 3));
    assert_false(judge_has_matrix(&s.outputs));
    assert_false(table_can(&s.outputs, 3));
    s.job.model.loss = LOSS_OUTPUT;
    assert_true(judge_can(&s.outputs, 3));
    assert_false(judge_has_matrix(&s.outputs));
}

static void test_path_of_a_table(void **state)
{
    static const char *const cases[][2] = {
        {"out/p.npy", "out/p.csv"}, {"p", "p.csv"}, {".npy", ".npy.csv"}, {"p.npz", "p.npz.csv"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *path = table_path(cases[i][0]);

        assert_string_equal(path, cases[i][1]);
        free(path);
    }
}

/* Samples are counted once, where each comes in pieces, and several ranks' by turns. */
static void test_samples_with_bad_outputs(void **state)
{
    static const float x[] = {NAN, 0, INFINITY, NAN, 0, -INFINITY, 1, 2, 3}; /* [3 samples, 3] */
    int64_t last[2] = {0};
    struct predict_bad bad = {.last = last};

    (void)state;
    for (int at = 0; at < 3; at++) { /* sample 5 of rank 1, and sample 1 of rank 0 */
        predict_note_bad(&bad, 1, 3, 15 + at, x + 3 + at, 1);
        predict_note_bad(&bad, 0, 3, 3 + at, x + at, 1);
    }
    assert_int_equal(bad.n, 2);
    assert_int_equal(bad.first, 1);
    predict_note_bad(&bad, 0, 3, 6, x, 3);
    predict_note_bad(&bad, 1, 3, 18, x + 6, 3);
    assert_int_equal(bad.n, 3);
    assert_int_equal(bad.first, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),         cmocka_unit_test(test_names_end),
        cmocka_unit_test(test_many_classes),    cmocka_unit_test(test_losses_that_are_not_judged),
        cmocka_unit_test(test_path_of_a_table), cmocka_unit_test(test_samples_with_bad_outputs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
