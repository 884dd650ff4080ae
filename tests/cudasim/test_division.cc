/* Tests of division by multiplication (struct divisor in device.cuh), for many divisors, at the
 * numbers where an error would show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

#include "backend/cuda/device.cuh"

static void check(int64_t by, int64_t n)
{
    if (n >= 0 && n <= INT32_MAX && divisor_of(by).quotient((uint32_t)n) != (uint32_t)(n / by))
        fail_msg("%lld / %lld is not %u", (long long)n, (long long)by,
                 divisor_of(by).quotient((uint32_t)n));
}

/* A wrong quotient would show around a multiple of the divisor, so the first and the last multiples
 * are checked. */
static void check_all(int64_t by)
{
    const int64_t last = INT32_MAX / by;

    for (int64_t q = 0; q <= last; q = q < 3 || q >= last - 3 ? q + 1 : last - 3)
        for (int64_t n = q * by - 1; n <= q * by + 1; n++)
            check(by, n);
    check(by, INT32_MAX);
}

static void test_division(void **state)
{
    (void)state;
    for (int64_t by = 1; by < 70000; by++)
        check_all(by);
    for (int bit = 16; bit < 31; bit++)
        for (int64_t by = ((int64_t)1 << bit) - 40; by < ((int64_t)1 << bit) + 40; by++)
            check_all(by);
    for (int64_t by = INT32_MAX - 40; by <= INT32_MAX; by++)
        check_all(by);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_division)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
