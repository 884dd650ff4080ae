/* Fuzz target: the input is a byte of flags (AS_100 ...) and a CIFAR file, compressed or not.  It
 * is refused, or every sample is there, its pixels are from 0 to 1, and it has a label among the
 * classes, or the ignored one. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "../data/open_set.h"
#include "input.h"

enum {
    AS_100 = 1, /* the file is read as cifar100, else as cifar10 */
    VALIDATES = 2,
    AUGMENTS = 4,
    NORMALIZES = 8,
    IGNORES = 16, /* the job ignores label IGNORED */
    TWICE = 32,   /* the file is given twice */
    IGNORED = 3,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int flags;

static void check_sample(const struct dataset *ds, void *const *field)
{
    const int32_t label = *(int32_t *)field[1];
    const float *x = field[0];

    if (flags & IGNORES)
        ASSERT(label != IGNORED);
    if (!(flags & IGNORES) || label != SAMPLE_IGNORED)
        ASSERT(label >= 0 && label < ds->spec.field[1].n_classes);
    for (int64_t i = 0; i < shape_elements(&ds->spec.field[0].shape); i++)
        ASSERT(flags & NORMALIZES || (x[i] >= 0 && x[i] <= 1));
}

static void open_file(int fd)
{
    static const int64_t ignored = IGNORED;
    const struct dataset_request request = {.purpose = flags & VALIDATES ? DATASET_VALIDATION
                                                                         : DATASET_TRAIN,
                                            .ignored = flags & IGNORES ? &ignored : NULL};
    char names[40];
    const struct setting settings[] = {
        {"data.path", "/proc/self/fd"},
        {"data.train", flags & VALIDATES ? "none" : names},
        {"data.validation", flags & VALIDATES ? names : "none"},
        {"data.augment.crop", flags & AUGMENTS ? "4" : "0"},
        {"data.augment.flip", flags & AUGMENTS ? "true" : "false"},
        {"data.normalize.mean", flags & NORMALIZES ? "[0.5, 0.25, 0]" : "[]"},
        {0}};
    struct dataset *ds = NULL;
    struct err err = {0};
    int rc;

    snprintf(names, sizeof names, flags & TWICE ? "%d, %d" : "%d", fd, fd);
    rc = open_set(&ds, flags & AS_100 ? &format_cifar100 : &format_cifar10, settings, &request,
                  &err);
    if (rc == 0)
        input_samples(ds, check_sample);
    else
        ASSERT(rc < 0 && err.msg[0]);
    dataset_close(ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd;

    if (size == 0)
        return 0;
    flags = data[0];
    fd = input_file(data + 1, size - 1);
    open_file(fd);
    close(fd);
    return 0;
}
