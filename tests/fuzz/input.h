/* input - a fuzz target's input as a file, and all samples of the data set that was made of it. */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"
#include "data/dataset.h"

/* The descriptor of a file without a name that holds the input; the caller closes it. */
static inline int input_file(const uint8_t *data, size_t size)
{
    const int fd = memfd_create("input", MFD_CLOEXEC);

    ASSERT(fd >= 0);
    ASSERT(write(fd, data, size) == (ssize_t)size);
    return fd;
}

/* Gather each sample, and check its fields.  There is at least one. */
static inline void input_samples(const struct dataset *ds,
                                 void (*check)(const struct dataset *ds, void *const *field))
{
    void *to[SAMPLE_MAX_FIELDS];
    struct err err;

    ASSERT(ds->n_samples > 0);
    ASSERT(dataset_alloc(ds, 1, to, "a sample", &err) == 0);
    for (int64_t i = 0; i < ds->n_samples; i++) {
        ASSERT(dataset_gather(ds, &i, 1, to, &err) == 0);
        check(ds, to);
    }
    free(to[0]);
}

#endif
