/* apply - the activations and their derivatives; formulas in op/activation.c. */
#ifndef BACKEND_CUDA_APPLY_CUH
#define BACKEND_CUDA_APPLY_CUH

#include "backend/cuda/device.cuh"

template <int ACT> static __device__ inline float apply(float x)
{
    if (ACT == ACT_RELU)
        return x < 0.0f ? 0.0f : x; /* NaN stays */
    if (ACT == ACT_TANH)
        return tanhf(x);
    if (ACT == ACT_SIGMOID)
        return 1.0f / (1.0f + expf(-x));
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}

/* The derivative: of gelu at x, of the others where the output is `saved`. */
template <int ACT> static __device__ inline float slope(float saved)
{
    if (ACT == ACT_RELU)
        return saved > 0.0f ? 1.0f : 0.0f;
    if (ACT == ACT_TANH)
        return 1.0f - saved * saved;
    if (ACT == ACT_SIGMOID)
        return saved * (1.0f - saved);
    return 0.5f * (1.0f + erff(saved * 0.70710678f)) +
           saved * 0.39894228f * expf(-0.5f * saved * saved);
}

#endif
