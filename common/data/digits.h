/* digits - the built-in data set: 28x28 grey digits, drawn from strokes.
 *
 * Sample i of (seed, purpose) is a pure function of the three: the digit i % 10 as a polyline with
 * random rotation, scale, shear, shift, bent corners, thickness, brightness and noise (RNG_DIGITS).
 * Only + - * / sqrt and comparisons in float and integer arithmetic are used, so every machine
 * draws the same bytes.  Validation samples are other draws than training samples, of the same
 * distribution.
 *
 * Opening is instant: a sample is drawn when it is first gathered (6 to 8 us) and kept.
 *
 * Threads: any, as for every data set (data/dataset.h). */
#ifndef DATA_DIGITS_H
#define DATA_DIGITS_H

#include <stdint.h>

#include "data/dataset.h"

enum { DIGITS_SIDE = 28, DIGITS_BYTES = DIGITS_SIDE * DIGITS_SIDE, DIGITS_CLASSES = 10 };

struct digits_options {
    int64_t samples;            /* how many are drawn, >= 1 */
    int64_t validation_samples; /* 0: nothing is validated */
};

/* Draw sample `i` into pixels[DIGITS_BYTES], row-major, 0 background; returns its label. */
int32_t digits_draw(uint64_t seed, enum dataset_purpose purpose, int64_t i, uint8_t *pixels);

#endif
