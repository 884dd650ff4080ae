/* test_blocks - numbers in 8 bits: the error that the header states, blocks of zeros, a short last
 * block, and that packing what was unpacked changes nothing. */
#include "../test.h"

#include <math.h>

#include "base/rng.h"
#include "tensor/blocks.h"

enum { N = 5 * BLOCKS_LEN + 7, N_BLOCKS = 6 };

/* Numbers of many magnitudes: each block has its own, and one in it is large. */
static void fill(float *x)
{
    struct rng_stream s;

    rng_stream_init(&s, 7, RNG_TEST, 0);
    for (int i = 0; i < N; i++)
        x[i] = (float)rng_next_normal(&s) * ldexpf(1, 9 * (i / BLOCKS_LEN) - 30);
    x[3] *= 100;
}

static void unpack(const int8_t *codes, const float *scales, float *y)
{
    for (int i = 0; i < N; i++)
        y[i] = (float)codes[i] * scales[i / BLOCKS_LEN];
}

static void error_is_bounded(void **state)
{
    float x[N], y[N], scales[N_BLOCKS];
    int8_t codes[N];

    (void)state;
    assert_int_equal(blocks_of(N), N_BLOCKS);
    fill(x);
    blocks_pack(x, N, codes, scales);
    unpack(codes, scales, y);
    for (int i = 0; i < N; i++)
        assert_true(fabsf(x[i] - y[i]) <= 0.501f * scales[i / BLOCKS_LEN]);
    for (int b = 0; b < N_BLOCKS; b++) {
        int most = 0;

        for (int i = b * BLOCKS_LEN; i < N && i < (b + 1) * BLOCKS_LEN; i++)
            most = abs(codes[i]) > most ? abs(codes[i]) : most;
        assert_int_equal(most, 127);
    }
}

static void packing_is_stable(void **state)
{
    float x[N], y[N], scales[2][N_BLOCKS];
    int8_t codes[2][N];

    (void)state;
    fill(x);
    blocks_pack(x, N, codes[0], scales[0]);
    unpack(codes[0], scales[0], y);
    blocks_pack(y, N, codes[1], scales[1]);
    assert_memory_equal(codes[0], codes[1], sizeof codes[0]);
    assert_memory_equal(scales[0], scales[1], sizeof scales[0]);
}

static void zeros_and_tiny_numbers(void **state)
{
    float x[BLOCKS_LEN + 1] = {0}, scales[2];
    int8_t codes[BLOCKS_LEN + 1];

    (void)state;
    x[BLOCKS_LEN] = -BLOCKS_LEAST / 2;
    blocks_pack(x, BLOCKS_LEN + 1, codes, scales);
    for (int i = 0; i <= BLOCKS_LEN; i++)
        assert_int_equal(codes[i], 0);
    assert_true(scales[0] == 0 && scales[1] == 0);
    x[0] = -BLOCKS_LEAST;
    blocks_pack(x, 1, codes, scales);
    assert_int_equal(codes[0], -127);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_is_bounded),
        cmocka_unit_test(packing_is_stable),
        cmocka_unit_test(zeros_and_tiny_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
