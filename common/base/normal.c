/* normal - many normal numbers at once, with the bits that rng_to_normal gives.
 *
 * rng_to_normal takes most of its time in log, sin and cos of the C library, one number at a time.
 * Here the same numbers are approximated by polynomials, in loops that the compiler turns into
 * vector instructions.  An approximation is off by less than NEAR of its size, and so is what
 * rng_to_normal computes in double.  If all that lies so near rounds to the same float, the float
 * is right; else, for about one number of a million, rng_to_normal is asked (Ziv 1991, "Fast
 * evaluation of elementary mathematical functions with correctly rounded last bit").
 *
 * Any instruction set gives the same bits. tests/base/test_rng.c compares them. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/util.h"

#define NEAR 0x1p-44 /* the polynomials and their rounding are off by less than 2^-49 */

enum { BLOCK = 256 }; /* pairs */

static inline uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double from_bits(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The double of a number below 2^52.  Many instruction sets have no such conversion of vectors. */
static inline double to_double(uint64_t n) { return from_bits(n | bits_of(0x1p52)) - 0x1p52; }

/* c[0] + c[1] z + c[2] z^2 + ... + c[n-1] z^(n-1).  n is a constant at each call, so compilers
 * unroll the loop. */
static inline double normal_polynomial(double z, const double *c, int n)
{
    double p = c[n - 1];

    for (int i = n - 2; i >= 0; i--)
        p = p * z + c[i];
    return p;
}

/* The logarithm of u, 0 < u < 1.  u = 2^e m with 1/sqrt(2) <= m < sqrt(2); then s = (m-1) / (m+1),
 * and log m = 2 (s + s^3/3 + s^5/5 ...). */
static inline double log_of(double u)
{
    static const double c[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13,
                               1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
    const uint64_t least = 0x3fe6a09e667f3bcd; /* the bits of 1/sqrt(2) */
    const uint64_t shifted = bits_of(u) - least + ((uint64_t)1024 << 52), power = shifted >> 52;
    const double e = to_double(power) - 1024, m = from_bits(bits_of(u) + ((1024 - power) << 52)),
                 s = (m - 1) / (m + 1), z = s * s;
    const double high = 0x1.62e42fee00000p-1, low = 0x1.a39ef35793c76p-33; /* of log 2 */

    return e * high + (2 * s + (2 * s * (z * normal_polynomial(z, c, ARRAY_LEN(c))) + e * low));
}

/* Taylor's polynomials, for |x| a little above pi/4 at most. */
static inline double sin_of(double x)
{
    static const double c[] = {
        -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
        -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
    const double z = x * x;

    return x + x * (z * normal_polynomial(z, c, ARRAY_LEN(c)));
}

static inline double cos_of(double x)
{
    static const double c[] = {
        -0.5,           1.0 / 24,        -1.0 / 720,         1.0 / 40320,
        -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000};
    const double z = x * x;

    return 1 + z * normal_polynomial(z, c, ARRAY_LEN(c));
}

/* Cosine and sine of an angle from 0 to 2 pi: of its distance x from the nearest multiple of pi/2,
 * which is subtracted in three parts, the first two without rounding. */
static inline void normal_circle(double angle, double *c, double *s)
{
    const double to_integer = 0x1.8p52; /* the sum's low bits are the integer */
    const double turned = angle * 0x1.45f306dc9c883p-1 + to_integer, k = turned - to_integer;
    const double x = angle - k * 0x1.921fb544p+0 - k * 0x1.0b4611a6p-34 - k * 0x1.3198a2e037073p-69;
    const uint64_t quarter = bits_of(turned);
    const uint64_t swaps = -(quarter & 1), c_sign = ((quarter + 1) & 2) << 62,
                   s_sign = (quarter & 2) << 62;
    const uint64_t of_sin = bits_of(sin_of(x)), of_cos = bits_of(cos_of(x));

    *c = from_bits(((of_cos & ~swaps) | (of_sin & swaps)) ^ c_sign);
    *s = from_bits(((of_sin & ~swaps) | (of_cos & swaps)) ^ s_sign);
}

/* For n pairs of words the bounds of what rng_to_normal may give: the one nearer to 0, and the one
 * further from it. */
__attribute__((always_inline)) static inline void normal_bound(const uint32_t *word, int64_t n,
                                                               double std, float *inner,
                                                               float *outer)
{
    for (int64_t i = 0; i < n; i++) {
        const double u = (to_double(word[2 * i]) + 0.5) * 0x1p-32,
                     angle = RNG_TURN * (to_double(word[2 * i + 1]) + 0.5) * 0x1p-32,
                     r = sqrt(-2.0 * log_of(u)) * std;
        double c, s;

        normal_circle(angle, &c, &s);
        inner[2 * i] = (float)(r * c * (1 - NEAR));
        outer[2 * i] = (float)(r * c * (1 + NEAR));
        inner[2 * i + 1] = (float)(r * s * (1 - NEAR));
        outer[2 * i + 1] = (float)(r * s * (1 + NEAR));
    }
}

typedef void bound_fn(const uint32_t *word, int64_t n, double std, float *inner, float *outer);

static void bound_plain(const uint32_t *word, int64_t n, double std, float *inner, float *outer)
{
    normal_bound(word, n, std, inner, outer);
}

#ifdef __x86_64__

__attribute__((target("avx2"))) static void bound_avx2(const uint32_t *word, int64_t n, double std,
                                                       float *inner, float *outer)
{
    normal_bound(word, n, std, inner, outer);
}

static bound_fn *normal_choose_bound(void)
{
    return __builtin_cpu_supports("avx2") ? bound_avx2 : bound_plain;
}

#else

static bound_fn *normal_choose_bound(void) { return bound_plain; }

#endif

/* Write the floats of n pairs.  Those whose bounds differ are computed by rng_to_normal. */
static void normal_settle(const uint32_t *word, int64_t n, double std, const float *inner,
                          const float *outer, float *to)
{
    memcpy(to, inner, sizeof *to * 2 * (size_t)n);
    if (!memcmp(inner, outer, sizeof *to * 2 * (size_t)n))
        return;
    for (int64_t i = 0; i < n; i++) {
        double z[2];

        if (!memcmp(&inner[2 * i], &outer[2 * i], 2 * sizeof *inner))
            continue;
        rng_to_normal(word[2 * i], word[2 * i + 1], z);
        to[2 * i] = (float)(z[0] * std);
        to[2 * i + 1] = (float)(z[1] * std);
    }
}

void rng_to_normals(const uint32_t *word, int64_t n, double std, float *to)
{
    bound_fn *const bounds = normal_choose_bound();
    float inner[2 * BLOCK], outer[2 * BLOCK];

    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t part = min_i64(n - i, BLOCK);

        bounds(word + 2 * i, part, std, inner, outer);
        normal_settle(word + 2 * i, part, std, inner, outer, to + 2 * i);
    }
}
