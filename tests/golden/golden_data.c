/* golden_data - the formulas of make_golden.py in C: weights, labels and images from rng_draw's
 * random words. */
#include "golden_data.h"

#include "base/rng.h"

enum { LABELS = 1000, PATTERNS = 1001, NOISE = 1002 }; /* streams; lower ones are parameters' */

static uint32_t word(uint64_t stream, uint64_t index)
{
    return rng_draw(1, RNG_TEST, stream, index).v[0];
}

void golden_weight(float *out, int64_t n, uint64_t t, float bound)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (2.0f * rng_to_unit(word(t, (uint64_t)i)) - 1.0f) * bound;
}

int golden_label(uint64_t n) { return (int)(word(LABELS, n) % GOLDEN_CLASSES); }

void golden_image(float out[GOLDEN_PIXELS], uint64_t n)
{
    uint64_t label = (uint64_t)golden_label(n);

    for (uint64_t p = 0; p < GOLDEN_PIXELS; p++) {
        uint64_t square = 7 * (p / 28 / 4) + p % 28 / 4;
        float pattern = rng_to_unit(word(PATTERNS, 49 * label + square));
        float noise = rng_to_unit(word(NOISE, GOLDEN_PIXELS * n + p));

        out[p] = 0.5f * pattern + 0.5f * noise;
    }
}
