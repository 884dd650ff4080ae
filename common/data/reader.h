/* reader - the conversion from stored numbers to those of programs, for dataset.c.
 *
 * The code of a format states in its spec how its numbers are stored, and converts nothing itself.
 *
 * Threads: any; pure. */
#ifndef DATA_READER_H
#define DATA_READER_H

#include <stdint.h>

#include "data/dataset.h"

/* Converts n stored numbers to those that programs read. */
typedef void reader_convert(void *restrict to, const void *restrict from, int64_t n);

/* The function that converts this field's numbers; asserts that there is one. */
reader_convert *reader_converter(const struct sample_field *f);

#endif
