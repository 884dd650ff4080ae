/* apply - an activation of one number, and its derivative, for the kernels that need them.
 *
 * op/activation.c has the formulas. */
#ifndef BACKEND_CUDA_APPLY_CUH
#define BACKEND_CUDA_APPLY_CUH

#include "backend/cuda/device.cuh"

/* sqrt(2/pi) * (x + 0.044715 x^3) */
static __device__ inline float gelu_argument(float x)
{
    return 0.79788456f * (x + 0.044715f * x * x * x);
}

template <int ACT> static __device__ inline float apply(float x)
{
    if (ACT == ACT_RELU)
        return x < 0.0f ? 0.0f : x; /* keeps a NaN */
    if (ACT == ACT_TANH)
        return tanhf(x);
    if (ACT == ACT_SIGMOID)
        return 1.0f / (1.0f + expf(-x));
    if (ACT == ACT_SILU)
        return x / (1.0f + expf(-x));
    if (ACT == ACT_LEAKY_RELU)
        return x > 0.0f ? x : 0.01f * x;
    if (ACT == ACT_GELU_TANH)
        return 0.5f * x * (1.0f + tanhf(gelu_argument(x)));
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}

/* The derivative.  For silu and the gelus `saved` is the activation's input, for the others its
 * output. */
template <int ACT> static __device__ inline float slope(float saved)
{
    if (ACT == ACT_GELU_TANH) {
        const float t = tanhf(gelu_argument(saved));

        return 0.5f * (1.0f + t) +
               0.5f * saved * (1.0f - t * t) * 0.79788456f * (1.0f + 0.134145f * saved * saved);
    }
    if (ACT == ACT_SILU) {
        const float s = 1.0f / (1.0f + expf(-saved));

        return s * (1.0f + saved * (1.0f - s));
    }
    if (ACT == ACT_LEAKY_RELU)
        return saved > 0.0f ? 1.0f : 0.01f;
    if (ACT == ACT_RELU)
        return saved <= 0.0f ? 0.0f : 1.0f; /* NaN: 1 */
    if (ACT == ACT_TANH)
        return 1.0f - saved * saved;
    if (ACT == ACT_SIGMOID)
        return saved * (1.0f - saved);
    return 0.5f * (1.0f + erff(saved * 0.70710678f)) +
           saved * 0.39894228f * expf(-0.5f * saved * saved);
}

#endif
