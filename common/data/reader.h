/* reader - what the readers of common/data share; for them and dataset.c only. */
#ifndef DATA_READER_H
#define DATA_READER_H

#include <stdint.h>

#include "data/dataset.h"

/* x[i] = v[i] / 255, correctly rounded. */
void reader_scale(float *restrict x, const uint8_t *restrict v, int64_t n);

/* Have the beginning of a sample's bytes brought near, as it is wanted soon: samples are in random
 * order, which the processor cannot foresee. */
void reader_fetch(const uint8_t *v, int64_t n);

#endif
