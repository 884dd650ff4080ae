/* test_half - every number in half precision, the rounding between every two neighbours, and the
 * ends of the range: overflow, infinities, NaNs. */
#include "../test.h"

#include <math.h>

#include "tensor/half.h"

static const enum dtype halves[] = {DTYPE_BF16, DTYPE_F16};

static float wide(enum dtype t, uint16_t bits) { return real_get(&bits, t, 0); }

static uint16_t narrow(enum dtype t, float v)
{
    uint16_t bits = 0xdead;

    real_put(&bits, t, 0, v);
    return bits;
}

static uint16_t infinity_of(enum dtype t) { return t == DTYPE_BF16 ? 0x7f80 : 0x7c00; }

static void values(void **state)
{
    (void)state;
    assert_float_equal(wide(DTYPE_BF16, 0x3f80), 1, 0);
    assert_float_equal(wide(DTYPE_BF16, 0xc040), -3, 0);
    assert_float_equal(wide(DTYPE_F16, 0x3c00), 1, 0);
    assert_float_equal(wide(DTYPE_F16, 0x7bff), 65504, 0);
    assert_float_equal(wide(DTYPE_F16, 0x0001), 0x1p-24, 0);
    assert_float_equal(wide(DTYPE_F16, 0x83ff), -1023 * 0x1p-24, 0);
    assert_true(isinf(wide(DTYPE_F16, 0xfc00)) && wide(DTYPE_F16, 0xfc00) < 0);
}

static void each_comes_back(void **state)
{
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(halves); t++)
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            const float v = wide(halves[t], (uint16_t)bits);

            if (isnan(v))
                assert_true(isnan(wide(halves[t], narrow(halves[t], v))));
            else
                assert_int_equal(narrow(halves[t], v), bits);
        }
}

/* A number between two neighbours is rounded to the nearer one; the middle goes to the even one. */
static void rounding(void **state)
{
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(halves); t++)
        for (uint32_t bits = 0; bits + 1 < infinity_of(halves[t]); bits++) {
            const float a = wide(halves[t], (uint16_t)bits);
            const float b = wide(halves[t], (uint16_t)(bits + 1)), mid = a / 2 + b / 2;
            const uint16_t even = (uint16_t)(bits + (bits & 1));

            assert_int_equal(narrow(halves[t], mid), even);
            assert_int_equal(narrow(halves[t], -mid), even | 0x8000);
            assert_int_equal(narrow(halves[t], nextafterf(mid, 0)), bits);
            assert_int_equal(narrow(halves[t], nextafterf(mid, INFINITY)), bits + 1);
        }
}

static void the_ends(void **state)
{
    (void)state;
    assert_int_equal(narrow(DTYPE_F16, 65519.996f), 0x7bff);
    assert_int_equal(narrow(DTYPE_F16, 65520), 0x7c00);
    assert_int_equal(narrow(DTYPE_F16, -1e30f), 0xfc00);
    assert_int_equal(narrow(DTYPE_BF16, 3.4e38f), 0x7f80);
    assert_int_equal(narrow(DTYPE_BF16, -INFINITY), 0xff80);
    assert_int_equal(narrow(DTYPE_F16, 0x1p-25f), 0);
    assert_int_equal(narrow(DTYPE_F16, -1e-30f), 0x8000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(each_comes_back),
        cmocka_unit_test(rounding),
        cmocka_unit_test(the_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
