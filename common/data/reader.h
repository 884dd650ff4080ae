/* reader - the conversion from stored numbers to those of programs, for dataset.c.
 *
 * The code of a format states in its spec how its numbers are stored, and converts nothing itself.
 *
 * Threads: any; pure. */
#ifndef DATA_READER_H
#define DATA_READER_H

#include <stdint.h>

#include "data/dataset.h"

#define READER_UNIT_HIGH 0x1.01p-8f
#define READER_UNIT_LOW  (float)(1 / 255.0 - 0x1.01p-8)

/* v / 255, correctly rounded.
 *
 * 1/255 is a sum: v * high is exact (8 bits by 9), and the one rounding of the sum then gives the
 * quotient's bits for each of the 256 values, as a test shows.  This is twice as fast as dividing;
 * a product with 1/255 alone would be wrong for half of the values. */
static inline float reader_unit(uint8_t v)
{
    const float f = (float)v;

    return f * READER_UNIT_HIGH + f * READER_UNIT_LOW;
}

/* Converts n stored numbers to those that programs read. */
typedef void reader_convert(void *restrict to, const void *restrict from, int64_t n);

/* The function that converts this field's numbers; asserts that there is one. */
reader_convert *reader_converter(const struct sample_field *f);

#endif
