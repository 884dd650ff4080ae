/* vector - vectors of floats and doubles for loops that the compiler does not vectorise by itself,
 * such as sums, and e^x and the sigmoid for loops that it does.
 *
 * The operations are IEEE's, lane by lane, so all processors compute the same bits.
 *
 * Threads: pure. */
#ifndef BACKEND_CPU_VECTOR_H
#define BACKEND_CPU_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16, WIDE_LANES = 8 };

/* These may be loaded from any float's or double's address. */
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef int32_t lane_bits __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));
typedef uint32_t lane_words __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));
typedef uint16_t lane_halves
    __attribute__((vector_size(LANES * sizeof(uint16_t)), aligned(2), may_alias));
typedef float half_lanes
    __attribute__((vector_size(WIDE_LANES * sizeof(float)), aligned(4), may_alias));
typedef double wide
    __attribute__((vector_size(WIDE_LANES * sizeof(double)), aligned(8), may_alias));

/* Each lane of *most becomes the larger of itself and of x's; it stays where one of them is NaN. */
static inline void lanes_max(lanes *most, const float *x)
{
    const lanes v = *(const lanes *)x;
    const lane_bits more = v > *most;

    *most = (lanes)(((lane_bits)v & more) | ((lane_bits)*most & ~more));
}

/* LANES numbers of BF16 from x on. */
static inline void lanes_from_bf16(lanes *to, const uint16_t *x)
{
    *to = (lanes)(__builtin_convertvector(*(const lane_halves *)x, lane_words) << 16);
}

/* The way back; rounds as bf16_from_float of tensor/half.h. */
static inline void lanes_to_bf16(uint16_t *to, const lanes *x)
{
    const lane_words bits = (lane_words)*x, is_nan = (lane_words)(*x != *x);
    const lane_words rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const lane_words quiet = bits >> 16 | 0x40;

    *(lane_halves *)to =
        __builtin_convertvector((quiet & is_nan) | (rounded & ~is_nan), lane_halves);
}

/* *to = WIDE_LANES numbers from x on */
static inline void wide_load(wide *to, const float *x)
{
    *to = __builtin_convertvector(*(const half_lanes *)x, wide);
}

/* The sum of all lanes, in their order. */
static inline double wide_sum(const wide *x)
{
    double sum = 0;

    for (int i = 0; i < WIDE_LANES; i++)
        sum += (*x)[i];
    return sum;
}

/* e^x within 2 units in the last place, for x <= 0: 2^n * e^r, and a polynomial for e^r.  NaN of
 * NaN: x - y is 0 for every other x that counts.  y is never NaN, which has no integer. */
static inline float exp_of(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    const float y = x > -87.0f ? x : -87.0f;
    const float n = (y * 1.44269504f + magic) - magic;
    const float r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
    const float e =
        1.0f +
        r * (1.0f +
             r * (0.5f + r * (1.66666657e-1f +
                              r * (4.16657962e-2f + r * (8.33345205e-3f + r * 1.39314131e-3f)))));
    const int32_t bits = ((int32_t)n + 127) << 23;
    float power;

    memcpy(&power, &bits, sizeof power);
    return x < -87.0f ? 0.0f : e * power + (x - y);
}

/* 1 / (1 + e^-x); NaN of NaN. */
static inline float sigmoid_of(float x)
{
    const float e = exp_of(-fabsf(x));

    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

#endif
