/* test_tensor - element types: values, sizes, names; shapes: number of elements, comparison, text.
 * The values of types travel in messages, so they must never change. */
#include "../test.h"

#include "tensor/dtype.h"
#include "tensor/shape.h"

static void dtypes(void **state)
{
    static const struct {
        enum dtype d;
        size_t n_bytes;
        const char *name;
    } want[] = {{DTYPE_F32, 4, "F32"},  {DTYPE_F64, 8, "F64"}, {DTYPE_I32, 4, "I32"},
                {DTYPE_I64, 8, "I64"},  {DTYPE_U8, 1, "U8"},   {DTYPE_BF16, 2, "BF16"},
                {DTYPE_F16, 2, "F16"},  {DTYPE_I16, 2, "I16"}, {DTYPE_I8, 1, "I8"},
                {DTYPE_BOOL, 1, "BOOL"}};

    (void)state;
    assert_int_equal(DTYPE_COUNT, sizeof want / sizeof want[0]);
    for (int i = 0; i < DTYPE_COUNT; i++) {
        assert_int_equal(want[i].d, i); /* values travel in messages */
        assert_int_equal(dtype_size(want[i].d), want[i].n_bytes);
        assert_string_equal(dtype_name(want[i].d), want[i].name);
        assert_int_equal(dtype_from_name(want[i].name), i);
    }
    assert_int_equal(dtype_from_name("f32"), -1);
    assert_int_equal(dtype_from_name(""), -1);
}

static void shapes(void **state)
{
    const struct shape scalar = {0}, a = SHAPE(256, 28, 28, 1), empty = SHAPE(0, 7);
    struct shape b = a;
    char text[SHAPE_TEXT_LEN];

    (void)state;
    assert_int_equal(shape_elements(&scalar), 1);
    assert_int_equal(shape_elements(&a), 256 * 28 * 28);
    assert_int_equal(shape_elements(&empty), 0);
    assert_string_equal(shape_text(&a, text), "[256,28,28,1]");
    assert_string_equal(shape_text(&scalar, text), "[]");
    assert_true(shape_equal(&a, &b));
    b.dim[4] = 9; /* beyond n, so not part of the shape */
    assert_true(shape_equal(&a, &b));
    b.dim[3] = 2;
    assert_false(shape_equal(&a, &b));
    assert_false(shape_equal(&a, &empty));
}

static void longest_text_fits(void **state)
{
    const struct shape s = SHAPE(INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX);
    char text[SHAPE_TEXT_LEN];

    (void)state;
    assert_int_equal(strlen(shape_text(&s, text)), 5 * 19 + 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes),
        cmocka_unit_test(shapes),
        cmocka_unit_test(longest_text_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
