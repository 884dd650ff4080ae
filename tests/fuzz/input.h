/* input - a fuzz target's input as a file, and the checks of the data set that was made of it. */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"
#include "data/dataset.h"
#include "data/image.h"
#include "data/moments.h"

/* The descriptor of a file without a name that holds the input; the caller closes it. */
static inline int input_file(const uint8_t *data, size_t size)
{
    const int fd = memfd_create("input", MFD_CLOEXEC);

    ASSERT(fd >= 0);
    ASSERT(size == 0 || write(fd, data, size) == (ssize_t)size);
    return fd;
}

/* Warnings are texts. */
static inline void input_hear(void *arg, const char *text)
{
    (void)arg;
    ASSERT(text[0]);
}

/* The fingerprint of a data set does not change. */
static inline void input_print(const struct dataset *ds)
{
    struct hash128 once, twice;
    struct err err;

    ASSERT(dataset_fingerprint(ds, &once, &err) == 0);
    ASSERT(dataset_fingerprint(ds, &twice, &err) == 0);
    ASSERT(hash_equal(once, twice));
}

/* Where data.normalize: auto can measure a data set, mean and deviation are numbers. */
static inline void input_measure(const struct dataset *ds)
{
    const struct sample_field *x = &ds->spec.field[0];
    struct option_reals mean, std;
    struct err err = {0};
    int rc;

    if (x->dtype != DTYPE_F32 || ds->image.n_channels > 0)
        return;
    rc = x->scale == SAMPLE_UNIT ? image_measure(ds, &mean, &std, &err)
                                 : moments_measure(ds, 0, &mean, &std, &err);
    ASSERT(rc == 0 || (rc == ERR_CONFIG && err.msg[0]));
    for (int c = 0; rc == 0 && c < mean.n; c++)
        ASSERT(isfinite(mean.v[c]) && isfinite(std.v[c]) && std.v[c] > 0);
}

/* Check sample i, gathered alone, and with what is drawn for it.  It is the same as the second of
 * two; one and two have room for as many samples. */
static inline void input_sample(const struct dataset *ds, int64_t i, void *const *one,
                                void *const *two,
                                void (*check)(const struct dataset *ds, void *const *field))
{
    struct dataset_draw draw = {.seed = 5};
    struct err err;

    ASSERT(dataset_gather(ds, &i, 1, one, &err) == 0);
    check(ds, one);
    ASSERT(dataset_gather(ds, (const int64_t[]){ds->n_samples - 1 - i, i}, 2, two, &err) == 0);
    for (int k = 0; k < ds->spec.n_fields; k++) {
        const size_t n = sample_field_bytes(&ds->spec.field[k]);

        ASSERT(!memcmp((char *)two[k] + n, one[k], n));
    }
    for (draw.epoch = 1; dataset_draws(ds) && draw.epoch <= 3; draw.epoch++) {
        ASSERT(dataset_gather_drawn(ds, &draw, &i, 1, one, &err) == 0);
        check(ds, one);
    }
}

/* Check all samples, of which there is at least one, and what is made of all of them. */
static inline void input_samples(const struct dataset *ds,
                                 void (*check)(const struct dataset *ds, void *const *field))
{
    void *one[SAMPLE_MAX_FIELDS], *two[SAMPLE_MAX_FIELDS];
    struct err err;

    ASSERT(ds->n_samples > 0);
    ASSERT(dataset_alloc(ds, 1, one, "a sample", &err) == 0);
    ASSERT(dataset_alloc(ds, 2, two, "two samples", &err) == 0);
    for (int64_t i = 0; i < ds->n_samples; i++)
        input_sample(ds, i, one, two, check);
    input_print(ds);
    input_measure(ds);
    free(one[0]);
    free(two[0]);
}

#endif
