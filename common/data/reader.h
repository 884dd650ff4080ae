/* reader - what the readers of common/data share; for them and dataset.c only. */
#ifndef DATA_READER_H
#define DATA_READER_H

#include <stdint.h>

#include "data/dataset.h"

/* One sample's field, from how a reader stores it to how programs read it. */
void reader_convert(const struct sample_field *f, void *restrict to, const void *restrict from);

#endif
