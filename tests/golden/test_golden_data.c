/* Tests of golden_data: the formulas in C give the values and the sums of those that make_golden.py
 * gave PyTorch. */
#include "../test.h"

#include <jansson.h>
#include <math.h>

#include "golden_data.h"

static json_t *golden;

static int load(void **state)
{
    json_error_t error;

    (void)state;
    golden = json_load_file(GOLDEN_JSON, 0, &error);
    if (!golden)
        fprintf(stderr, "%s:%d: %s\n", GOLDEN_JSON, error.line, error.text);
    return golden ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    json_decref(golden);
    return 0;
}

static void labels(void **state)
{
    json_t *want = json_object_get(golden, "labels");
    int64_t sum = 0;

    (void)state;
    for (size_t i = 0; i < json_array_size(want); i++)
        assert_int_equal(golden_label(i), json_integer_value(json_array_get(want, i)));
    for (uint64_t n = 0; n < GOLDEN_STEPS * GOLDEN_BATCH; n++)
        sum += golden_label(n);
    assert_int_equal(sum, json_integer_value(json_object_get(golden, "label_sum")));
}

static void images(void **state)
{
    json_t *pixels = json_object_get(golden, "pixels");
    json_t *sums = json_object_get(golden, "pixel_sums");
    float image[GOLDEN_PIXELS];

    (void)state;
    assert_true(json_array_size(pixels) > 0 && json_array_size(sums) > 0);
    golden_image(image, 0);
    for (size_t p = 0; p < json_array_size(pixels); p++)
        assert_true(image[p] == (float)json_real_value(json_array_get(pixels, p)));
    for (size_t n = 0; n < json_array_size(sums); n++) {
        double sum = 0;

        golden_image(image, n);
        for (int p = 0; p < GOLDEN_PIXELS; p++)
            sum += (double)image[p];
        assert_true(fabs(sum - json_real_value(json_array_get(sums, n))) < 1e-9);
    }
}

static int64_t n_elements(const json_t *shape)
{
    int64_t n = 1;

    for (size_t i = 0; i < json_array_size(shape); i++)
        n *= json_integer_value(json_array_get(shape, i));
    return n;
}

static void check_parameter(uint64_t t, const json_t *row)
{
    int64_t n = n_elements(json_object_get(row, "shape"));
    float bound = (float)json_real_value(json_object_get(row, "bound"));
    float *values = malloc((size_t)n * sizeof *values);
    double sum = 0;

    assert_non_null(values);
    golden_weight(values, n, t, bound);
    for (int64_t i = 0; i < n; i++)
        sum += (double)values[i];
    assert_true(fabs(sum - json_real_value(json_object_get(row, "sum"))) < 1e-9);
    free(values);
}

static void weights(void **state)
{
    const char *name;
    json_t *run;
    int n_checked = 0;

    (void)state;
    json_object_foreach(json_object_get(golden, "runs"), name, run)
    {
        json_t *table = json_object_get(run, "parameters");

        for (size_t t = 0; t < json_array_size(table); t++)
            if (json_object_get(json_array_get(table, t), "bound")) {
                check_parameter(t, json_array_get(table, t));
                n_checked++;
            }
        assert_int_equal(json_array_size(json_object_get(run, "losses")), GOLDEN_STEPS);
    }
    assert_true(n_checked > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels),
        cmocka_unit_test(images),
        cmocka_unit_test(weights),
    };

    return cmocka_run_group_tests(tests, load, unload);
}
