/* Fuzz target: the input is a CIFAR file, compressed or not, read as cifar10 and as cifar100.  It
 * is refused, or every sample is there and has a label among the classes. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "../data/open_set.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_label(const struct dataset *ds, void *const *field)
{
    ASSERT(*(int32_t *)field[1] < ds->spec.field[1].n_classes);
}

static void open_as(const struct data_format *format, const char *file)
{
    const struct setting settings[] = {
        {"data.path", "/proc/self/fd"}, {"data.train", file}, {"data.validation", file}, {0}};
    const struct dataset_request request = {.purpose = DATASET_TRAIN};
    struct dataset *ds = NULL;
    struct err err;

    if (open_set(&ds, format, settings, &request, &err) == 0)
        input_samples(ds, check_label);
    dataset_close(ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[16];
    const int fd = input_file(data, size);

    snprintf(name, sizeof name, "%d", fd);
    open_as(&format_cifar10, name);
    open_as(&format_cifar100, name);
    close(fd);
    return 0;
}
