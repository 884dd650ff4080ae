/* test_half - every number in half precision, the rounding between every two neighbours, and the
 * ends of the range: overflow, infinities, NaNs.  Arrays give the bits of single numbers. */
#include "../test.h"

#include <math.h>

#include "base/alloc.h"
#include "tensor/half.h"
#include "tensor/half_array.h"

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

static uint32_t bits_of(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static void arrays_are_widened_alike(void **state)
{
    const int64_t n = 0x10000;
    uint16_t *from = xcalloc((size_t)n, sizeof *from);
    float *to = xcalloc((size_t)n, sizeof *to);

    (void)state;
    for (int64_t i = 0; i < n; i++)
        from[i] = (uint16_t)i;
    f16_array_widen(to, from, n);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(bits_of(to[i]), bits_of(f16_to_float(from[i])));
    free(from);
    free(to);
}

/* All signs and exponents, with the 11 leading bits of the fraction and what decides its rounding:
 * nothing more, the last bit, all bits. */
static void arrays_are_rounded_alike(void **state)
{
    const uint32_t rests[] = {0, 1, 0xfff};
    enum { N = 1 << 11 };
    static float from[N];
    static uint16_t to[N];

    (void)state;
    for (uint32_t top = 0; top < 512; top++)
        for (size_t r = 0; r < ARRAY_LEN(rests); r++) {
            for (uint32_t i = 0; i < N; i++) {
                const uint32_t bits = top << 23 | i << 12 | rests[r];

                memcpy(&from[i], &bits, sizeof bits);
            }
            f16_array_round(to, from, N);
            for (uint32_t i = 0; i < N; i++)
                assert_int_equal(to[i], f16_from_float(from[i]));
        }
}

/* 25173 is odd, so b takes every value, too. */
static void arrays_are_summed_alike(void **state)
{
    const int64_t n = 0x10000;
    uint16_t *a = xcalloc((size_t)n, sizeof *a), *b = xcalloc((size_t)n, sizeof *b);
    uint16_t *to = xcalloc((size_t)n, sizeof *to);

    (void)state;
    for (uint32_t turn = 0; turn < 64; turn++) {
        for (uint32_t i = 0; i < n; i++) {
            a[i] = (uint16_t)i;
            b[i] = (uint16_t)(i * 25173 + turn * 1021);
        }
        f16_array_sum(to, a, b, n);
        for (int64_t i = 0; i < n; i++) {
            const float sum = f16_to_float(a[i]) + f16_to_float(b[i]);

            if (isnan(sum))
                assert_true(isnan(f16_to_float(to[i])));
            else
                assert_int_equal(to[i], f16_from_float(sum));
        }
        f16_array_sum(a, a, b, n);
        assert_memory_equal(a, to, (size_t)n * sizeof *to);
    }
    free(a);
    free(b);
    free(to);
}

/* Also where an array is no multiple of a vector; nothing else is written. */
static void arrays_of_every_length(void **state)
{
    (void)state;
    for (int n = 0; n < 20; n++) {
        uint16_t half[20], back[20], twice[20];
        float wider[20];

        for (int i = 0; i < 20; i++) {
            half[i] = (uint16_t)(0x3c00 + i);
            back[i] = twice[i] = 0xdead;
            wider[i] = -5;
        }
        f16_array_widen(wider, half, n);
        f16_array_round(back, wider, n);
        f16_array_sum(twice, half, half, n);
        for (int i = 0; i < 20; i++) {
            assert_float_equal(wider[i], i < n ? f16_to_float(half[i]) : -5, 0);
            assert_int_equal(back[i], i < n ? half[i] : 0xdead);
            assert_int_equal(twice[i], i < n ? half[i] + 0x400 : 0xdead);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(each_comes_back),
        cmocka_unit_test(rounding),
        cmocka_unit_test(the_ends),
        cmocka_unit_test(arrays_are_widened_alike),
        cmocka_unit_test(arrays_are_rounded_alike),
        cmocka_unit_test(arrays_are_summed_alike),
        cmocka_unit_test(arrays_of_every_length),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
