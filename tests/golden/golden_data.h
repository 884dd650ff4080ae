/* golden_data - the weights, images and labels of the golden runs, by make_golden.py's formulas.
 *
 * They equal PyTorch's bit for bit, so golden.json need only hold results. */
#ifndef TESTS_GOLDEN_GOLDEN_DATA_H
#define TESTS_GOLDEN_GOLDEN_DATA_H

#include <stdint.h>

enum { GOLDEN_STEPS = 20, GOLDEN_BATCH = 64, GOLDEN_PIXELS = 784, GOLDEN_CLASSES = 10 };

/* Write the n values of parameter t (counted in PyTorch's order), in PyTorch's layout, to out. */
void golden_weight(float *out, int64_t n, uint64_t t, float bound);

/* Sample n: its class, and its 28x28 pixels, which are written to out. */
int golden_label(uint64_t n);
void golden_image(float out[GOLDEN_PIXELS], uint64_t n);

#endif
